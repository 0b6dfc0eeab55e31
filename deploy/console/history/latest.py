"""The newest record of each key, of topics that the pages show live alone: Jobs and the queue. Pure."""

from __future__ import annotations

from slacktide.schemas.codec import decode
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.queue import QueueState
from slacktide.schemas.topics import JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD, Topic
from slacktide.streams.queue.reading import object_of, workload_of
from slacktide.streams.records import Record

LATEST = (JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE)
"""Compacted, too. A cluster may lack them."""


class Latest:
    """As the topics stand. One thread takes, others read."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bytes | None], Record] = {}

    def take(self, record: Record) -> None:
        """The next record of its partition. A null takes back what was held of its key.

        Raises:
            BadMessageError: it cannot be read; what was held stays.

        """
        place = record.topic, record.key
        if record.value is not None:
            _READ[record.topic](record)
        if record.topic == QUEUE_STATE.name and record.value is not None and _is_late(record, self._held.get(place)):
            return
        self._held.pop(place, None)  # the order is that of the log
        if record.value is not None:
            self._held[place] = record

    def of(self, *topics: Topic) -> list[Record]:
        """What is held of these topics."""
        names = {topic.name for topic in topics}
        return [one for one in list(self._held.values()) if one.topic in names]


def _is_late(record: Record, held: Record | None) -> bool:
    """A late decider may write after a new one: the highest epoch and turn holds."""
    return held is not None and _turn(record) < _turn(held)


def _turn(record: Record) -> tuple[int, int]:
    state = decode(record.value, QueueState)
    return state.epoch, state.turn


_READ = {
    JOB_STATUS.name: lambda record: decode(record.value, JobStatus),
    QUEUE_SPEC.name: object_of,
    QUEUE_WORKLOAD.name: workload_of,
    QUEUE_STATE.name: _turn,
}
