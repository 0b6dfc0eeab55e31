"""The peer as Faust's documentation teaches it: Records, a windowed table, one event and one send at a time.

``python -m bench.peers.plain_faust BROKER OUT FOLDER``
"""

from __future__ import annotations

import sys
from typing import Any

import faust

from bench.peers.answer import WINDOW_S, answer
from slacktide.schemas.topics import NODE_PARTITIONS, SAMPLE


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


def blank() -> dict[str, Any]:
    """A minute that begins: node use a sample, and of each pod count and sums."""
    return {"cpu_milli": [], "mem_bytes": [], "pods": {}}


def taken(window: dict[str, Any], sample: Sample) -> dict[str, Any]:
    """Take one sample into its minute, and answer it."""
    window["cpu_milli"].append(sample.use.cpu_milli)
    window["mem_bytes"].append(sample.use.mem_bytes)
    system_milli, system_bytes = sample.use.cpu_milli, sample.use.mem_bytes
    pods = []
    for use in sample.pod_use:
        sums = window["pods"].setdefault(use.uid, [0, 0, 0])
        sums[0] += 1
        sums[1] += use.cpu_milli
        sums[2] += use.mem_bytes
        system_milli -= use.cpu_milli
        system_bytes -= use.mem_bytes
        pods.append((use.uid, sums[1] / sums[0], sums[2] / sums[0], use.best_effort_group))
    system = (system_milli, system_bytes)
    return answer(sample.node, sample.observed_ms, window["cpu_milli"], window["mem_bytes"], pods, system)


def app(bootstrap: str, out: str, folder: str) -> faust.App:
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
    samples = made.topic(SAMPLE.name, key_type=str, value_type=Sample, key_serializer="raw")
    answers = made.topic(out, key_type=str, key_serializer="raw", value_serializer="json")
    # Generous: with two windows Faust, cleaning up every 30 s, also forgets minutes that still go on.
    minutes = made.Table("minutes", default=blank).tumbling(float(WINDOW_S), expires=60.0 * WINDOW_S)

    async def window(stream: faust.StreamT[Sample]) -> None:
        async for sample in stream:
            minute = minutes[sample.node].value()
            answered = taken(minute, sample)
            minutes[sample.node] = minute
            await answers.send(key=sample.node, value=answered)

    made.agent(samples)(window)
    return made


if __name__ == "__main__":
    broker, out_topic, state = sys.argv[1:]
    worker = faust.Worker(app(broker, out_topic, state), loglevel="WARNING")
    worker.execute_from_commandline()
