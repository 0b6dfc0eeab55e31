"""``slacktide size``: the command."""

from __future__ import annotations

import click
import msgspec

from slacktide.deploy.cli.size.sizing import Size, measured, sized
from slacktide.deploy.runtime.text import show, show_json, table


@click.command(epilog="Example: slacktide size --nodes 1000 --pods 30")
@click.option("--nodes", type=click.IntRange(1, 100_000), required=True, help="Number of nodes.")
@click.option(
    "--pods", type=click.IntRange(1, 1_000), default=30, show_default=True, help="Average number of pods per node."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(nodes: int, pods: int, output: str) -> None:
    """Compute what a cluster needs: bytes per day and topic, brokers' disks, partitions, workers and memory.

    Bytes of records were measured, without compression and with each codec of Kafka. CODEC is what the topic is created
    with. Each node is sampled once per second. Outcomes are counted for nodes whose use changes each second. Topics
    that depend on events, such as placements and dead letters, are not counted.
    """
    found = sized(nodes, pods, measured())
    if output == "json":
        show_json(msgspec.json.encode(found))
    else:
        show(shown(found))


def shown(size: Size) -> str:
    """Return the text: each topic with its codec."""
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
    return "\n".join(
        [
            table(head, [*rows, total]),
            "",
            f"disk of each of three brokers  {created} GB; {none} GB without compression",
            f"partitions                     {_partitions(size)}",
            f"workers                        {size.workers}, of which one may fail",
            f"memory of a worker             {size.worker_mem_bytes / 1e6:,.0f} MB",
        ]
    )


def _partitions(size: Size) -> str:
    if size.partitions <= size.partitions_created:
        return f"{size.partitions_created}, the default"
    return (
        f"{size.partitions}; by default, topics are created with {size.partitions_created}, so that agents read "
        "more answers of other nodes"
    )


def _gb(*sizes_bytes: int) -> tuple[str, ...]:
    return tuple(f"{size / 1e9:,.1f}" for size in sizes_bytes)
