"""A worker's second: how far it had read. Topic slacktide.stream.tick.v1, key: worker. Time, for replay and silence."""

from slacktide.schemas.bounds import Count, TimeMs
from slacktide.schemas.message import Message


class Reached(Message, frozen=True, kw_only=True):
    """One partition of the samples."""

    partition: Count
    position: Count
    """The next offset that the worker would read."""
    end: Count | None
    """The end offset, fetched after the tick before; None: not known."""


class WorkerTick(Message, frozen=True, kw_only=True):
    """Written once a second by each worker, for the partitions that it holds."""

    worker: str
    number: Count
    """Since its session with the log began, in steps of one; from 1 on it knows nothing of what was before."""
    ticked_ms: TimeMs
    """The worker's wall clock. ``number`` and ``paused_ms`` show how much time passed."""
    paused_ms: TimeMs = 0
    """How long it had not ticked before, beyond a second."""
    partitions: list[Reached] = []
