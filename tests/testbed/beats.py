"""Heartbeats as a worker writes them."""

from collections.abc import Iterable

from slacktide.schemas.heartbeat import Heartbeat
from slacktide.schemas.topics import METRIC, Topic
from slacktide.streams.records import Record, Writer

EPOCH_MS = 1_800_000_000_000


def beat(
    nodes: Iterable[str],
    at_s: float,
    *,
    worker: str = "w",
    epoch: int = 1,
    ticked_s: float | None = None,
    topic: Topic = METRIC,
    partition: int = 0,
) -> Record:
    """One that was appended at that second; ``ticked_s``: by the worker's clock, the same unless given."""
    ticked_ms = round((at_s if ticked_s is None else ticked_s) * 1_000)
    message = Heartbeat(worker=worker, epoch=epoch, ticked_ms=ticked_ms, nodes=sorted(nodes))
    outs = Writer(f"stream/{worker}").heartbeats(message, partition, EPOCH_MS)
    [out] = [one for one in outs if one.topic == topic.name]
    return Record(
        topic=out.topic,
        partition=partition,
        offset=0,
        timestamp_ms=EPOCH_MS + round(at_s * 1_000),
        key=out.key,
        value=out.value,
        headers=out.headers,
    )
