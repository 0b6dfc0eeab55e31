"""``slacktide size``: the resources for a cluster size, from measurements.

``measured.json`` has the measurements and their source; ``bench/record_sizes.py`` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import msgspec

from slacktide.deploy.runtime.text import output_option, show_result, table
from slacktide.schemas.topics import BY_NAME, NODE_PARTITIONS

DAY_S = 86_400
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NODES_PER_PARTITION_MAX = 100
"""An agent reads the answers of all nodes in its partition."""
COMPACTED_DAYS = 7
"""A segment is closed after a week, Kafka's default, and only then compacted."""
SEGMENT_BYTES = 1 << 30
"""Or at this size, also Kafka's default; one is active and one waits for compaction."""
BROKERS = 3
PODS_MEASURED = 30
"""Pods per node in the worker benchmarks."""


@click.command(epilog="Example: slacktide size --nodes 1000 --pods 30")
@click.option("--nodes", type=click.IntRange(1, 100_000), required=True, help="Number of nodes.")
@click.option(
    "--pods", type=click.IntRange(1, 1_000), default=30, show_default=True, help="Average number of pods per node."
)
@output_option("table", "json")
def command(nodes: int, pods: int, output: str) -> None:
    """Compute what a cluster needs: bytes per day and topic, brokers' disks, partitions, workers and memory.

    Bytes of records were measured, without compression and with each codec of Kafka. CODEC is what the topic is created
    with. Each node is sampled once per second. Outcomes are counted for nodes whose use changes each second. Topics
    that depend on events, such as placements and dead letters, are not counted.
    """
    found = sized(nodes, pods, measured())
    show_result(found, output, lambda: _text(found), indent=0)


def _text(size: Size) -> str:
    head = ("TOPIC", "RECORDS/S", "CODEC", "GB/DAY", "DISK GB", "DISK GB none")
    rows = [
        (
            one.topic,
            f"{one.records_per_s:,.0f}",
            one.codec,
            *_gb(one.bytes_per_day[one.codec], one.disk_bytes[one.codec], one.disk_bytes["none"]),
        )
        for one in size.topics
    ]
    total = ("all", "", "", *_gb(size.created_bytes_per_day, size.created_disk_bytes, size.disk_bytes["none"]))
    created, none = _gb(size.created_disk_bytes_per_broker, size.disk_bytes_per_broker["none"])
    partitions = f"{size.partitions}, the default"
    if size.partitions > size.partitions_created:
        partitions = (
            f"{size.partitions}; by default, topics are created with {size.partitions_created}, so that agents read "
            "more answers of other nodes"
        )
    return "\n".join(
        [
            table(head, [*rows, total]),
            "",
            f"disk of each of three brokers  {created} GB; {none} GB without compression",
            f"partitions                     {partitions}",
            f"workers                        {size.workers}, of which one may fail",
            f"memory of a worker             {size.worker_mem_bytes / 1e6:,.0f} MB",
        ]
    )


def _gb(*sizes_bytes: int) -> tuple[str, ...]:
    return tuple(f"{size / 1e9:,.1f}" for size in sizes_bytes)


class Measured(msgspec.Struct, frozen=True):
    """The data file."""

    source: str
    nodes_per_worker: int
    nodes_per_worker_from: str
    worker_base_bytes: int
    worker_node_bytes: int
    worker_bytes_from: str
    records_by_pods: dict[int, dict[str, dict[str, float]]]
    """Bytes of a record in its batch by codec, and records_per_s; by pods per node and topic."""


class TopicSize(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the whole cluster."""

    topic: str
    codec: str
    """The codec on brokers, as ``slacktide topics apply`` sets it."""
    records_per_s: float
    bytes_per_day: dict[str, int]
    """The bytes of one replica, by codec."""
    disk_bytes: dict[str, int]
    """The bytes on all brokers, with retention and replicas, by codec."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The required resources."""

    nodes: int
    pods: int
    topics: list[TopicSize]
    bytes_per_day: dict[str, int]
    disk_bytes: dict[str, int]
    disk_bytes_per_broker: dict[str, int]
    created_bytes_per_day: int
    """The bytes with each topic's own codec. The following two fields use it, too."""
    created_disk_bytes: int
    created_disk_bytes_per_broker: int
    partitions: int
    """The number of partitions that bounds the nodes in each partition."""
    partitions_created: int
    """The partitions that ``slacktide topics apply`` creates."""
    workers: int
    """The number of workers, including one spare."""
    worker_mem_bytes: int
    """The memory of each worker while one has failed."""


@cache
def measured() -> Measured:
    """Read the data file."""
    return msgspec.json.decode(Path(__file__).with_name("measured.json").read_bytes(), type=Measured)


def sized(nodes: int, pods: int, by: Measured) -> Size:
    """Compute the resources for nodes that are each sampled once per second, with this average number of pods."""
    topics = [
        _topic(name, nodes, pods, by) for name in sorted({name for one in by.records_by_pods.values() for name in one})
    ]
    per_day, disk = (
        {codec: sum(sums[codec] for sums in found) for codec in CODECS}
        for found in ([one.bytes_per_day for one in topics], [one.disk_bytes for one in topics])
    )
    created_disk = sum(one.disk_bytes[one.codec] for one in topics)
    factor = max(1.0, pods / PODS_MEASURED)
    busy = math.ceil(nodes * factor / by.nodes_per_worker)
    return Size(
        nodes=nodes,
        pods=pods,
        topics=topics,
        bytes_per_day=per_day,
        disk_bytes=disk,
        disk_bytes_per_broker={codec: math.ceil(total / BROKERS) for codec, total in disk.items()},
        created_bytes_per_day=sum(one.bytes_per_day[one.codec] for one in topics),
        created_disk_bytes=created_disk,
        created_disk_bytes_per_broker=math.ceil(created_disk / BROKERS),
        partitions=max(NODE_PARTITIONS, math.ceil(nodes / NODES_PER_PARTITION_MAX)),
        partitions_created=NODE_PARTITIONS,
        workers=busy + 1,
        worker_mem_bytes=by.worker_base_bytes + math.ceil(nodes * factor * by.worker_node_bytes / busy),
    )


def _topic(name: str, nodes: int, pods: int, by: Measured) -> TopicSize:
    points = {count: topics[name] for count, topics in sorted(by.records_by_pods.items()) if name in topics}
    records_per_s = nodes * max(one["records_per_s"] for one in points.values())
    each = {codec: interpolated({count: one[codec] for count, one in points.items()}, pods) for codec in CODECS}
    per_day = {codec: math.ceil(records_per_s * DAY_S * size) for codec, size in each.items()}
    topic = BY_NAME[name]

    def kept_bytes(bytes_per_day: int) -> int:
        if topic.retention_ms is not None:
            return math.ceil(bytes_per_day * topic.retention_ms / 1000 / DAY_S)
        return min(bytes_per_day * COMPACTED_DAYS, topic.partitions * 2 * SEGMENT_BYTES)

    disk = {codec: kept_bytes(one) * topic.replication for codec, one in per_day.items()}
    codec, rate = topic.compression or "none", round(records_per_s, 2)
    return TopicSize(topic=name, codec=codec, records_per_s=rate, bytes_per_day=per_day, disk_bytes=disk)


def interpolated(points: Mapping[int, float], at: float) -> float:
    """Interpolate linearly between the nearest points, and extrapolate beyond the outer ones."""
    pairs = list(pairwise(sorted(points.items())))
    (low, at_low), (high, at_high) = next((pair for pair in pairs if at <= pair[1][0]), pairs[-1])
    return max(0.0, at_low + (at_high - at_low) * (at - low) / (high - low))
