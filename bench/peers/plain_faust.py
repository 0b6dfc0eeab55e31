"""The peer as Faust's documentation teaches it: Records, a windowed table, one event and one send at a time.

``python -m bench.peers.plain_faust BROKER SAMPLES rows|columns OUT FOLDER``
"""

import sys
from collections.abc import Iterable
from typing import Any

import faust

from bench.peers.answer import WINDOW_S, answer
from bench.peers.joined import CPU, MEM, TIME, Use, uses
from slacktide.schemas.topics import NODE_PARTITIONS


class PodUse(faust.Record, serializer="json"):
    uid: str
    cpu_milli: int
    mem_bytes: int
    best_effort_group: bool = False


class NodeUse(faust.Record, serializer="json"):
    cpu_milli: int
    mem_bytes: int


class Sample(faust.Record, serializer="json"):
    node: str
    observed_ms: int
    use: NodeUse
    pod_use: list[PodUse]


class Of(faust.Record, serializer="json"):
    node: str
    be_group: str


class Pod(faust.Record, serializer="json"):
    uid: str


class Columns(faust.Record, serializer="json"):
    of: Of
    now: list[int]
    pods: list[Pod] | None = None


def blank() -> dict[str, Any]:
    """A minute that begins: node use a sample, and of each pod count and sums."""
    return {"cpu_milli": [], "mem_bytes": [], "pods": {}}


def of_rows(window: dict[str, Any], sample: Sample) -> dict[str, Any]:
    """Take a sample in rows into its minute, and answer it."""
    pods = ((use.uid, use.cpu_milli, use.mem_bytes, use.best_effort_group) for use in sample.pod_use)
    return taken(window, sample.node, sample.observed_ms, sample.use.cpu_milli, sample.use.mem_bytes, pods)


def of_columns(window: dict[str, Any], sample: Columns, uids: list[str]) -> dict[str, Any]:
    """Likewise one in columns; ``uids``: those of the node's newest keyframe."""
    now = sample.now
    pods = uses(uids, sample.of.be_group, now)
    return taken(window, sample.of.node, now[TIME], now[CPU], now[MEM], pods)


def taken(
    window: dict[str, Any], node: str, observed_ms: int, cpu_milli: int, mem_bytes: int, pods: Iterable[Use]
) -> dict[str, Any]:
    """Take figures into their minute, and answer them."""
    window["cpu_milli"].append(cpu_milli)
    window["mem_bytes"].append(mem_bytes)
    averages = []
    for uid, pod_milli, pod_bytes, batch in pods:
        sums = window["pods"].setdefault(uid, [0, 0, 0])
        sums[0] += 1
        sums[1] += pod_milli
        sums[2] += pod_bytes
        cpu_milli -= pod_milli
        mem_bytes -= pod_bytes
        averages.append((uid, sums[1] / sums[0], sums[2] / sums[0], batch))
    return answer(node, observed_ms, window["cpu_milli"], window["mem_bytes"], averages, (cpu_milli, mem_bytes))


def app(bootstrap: str, samples: str, form: str, out: str, folder: str) -> faust.App:
    """The stock settings but for what a worker without web pages and leader needs not."""
    made = faust.App(
        out,
        broker=f"kafka://{bootstrap}",
        datadir=folder,
        store="memory://",
        topic_partitions=NODE_PARTITIONS,
        topic_replication_factor=1,
        topic_disable_leader=True,
        value_serializer="json",
        web_enabled=False,
    )
    value_type = Sample if form == "rows" else Columns
    source = made.topic(samples, key_type=str, value_type=value_type, key_serializer="raw")
    answers = made.topic(out, key_type=str, key_serializer="raw", value_serializer="json")
    # Generous: with two windows Faust, cleaning up every 30 s, also forgets minutes that still go on.
    minutes = made.Table("minutes", default=blank).tumbling(float(WINDOW_S), expires=60.0 * WINDOW_S)

    lists = made.Table("lists")

    async def rows(stream: faust.StreamT[Sample]) -> None:
        async for sample in stream:
            minute = minutes[sample.node].value()
            answered = of_rows(minute, sample)
            minutes[sample.node] = minute
            await answers.send(key=sample.node, value=answered)

    async def columns(stream: faust.StreamT[Columns]) -> None:
        async for sample in stream:
            node = sample.of.node
            if sample.pods is not None:
                lists[node] = [pod.uid for pod in sample.pods]
            minute = minutes[node].value()
            answered = of_columns(minute, sample, lists[node])
            minutes[node] = minute
            await answers.send(key=node, value=answered)

    made.agent(source)(rows if form == "rows" else columns)
    return made


if __name__ == "__main__":
    worker = faust.Worker(app(*sys.argv[1:]), loglevel="WARNING")
    worker.execute_from_commandline()
