"""Whether all topics that are keyed by node have as many partitions: what is published of a node stays in its one."""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import (
    ALLOCATABLE,
    BACKFILL,
    COMMAND,
    DEAD_LETTER,
    FORECAST,
    INVENTORY,
    METRIC,
    POLICY,
    SAMPLES,
    SCORE,
    TICK,
    WINDOW,
)
from slacktide.streams.kafka import present

KEYED_BY_NODE = (*SAMPLES, INVENTORY, FORECAST, METRIC, ALLOCATABLE, SCORE, WINDOW, BACKFILL, COMMAND)


async def checked_partitions(bootstrap: Cluster) -> dict[str, int]:
    """How many partitions each topic has that a worker touches.

    Raises:
        LogError: a topic is missing, or those that are keyed by node have not as many.

    """
    there = await present(bootstrap, [topic.name for topic in (*KEYED_BY_NODE, POLICY, TICK, DEAD_LETTER)])
    if trouble := unequal({topic.name: there[topic.name] for topic in KEYED_BY_NODE}, str(bootstrap)):
        raise LogError(trouble)
    return there


def unequal(counts: Mapping[str, int], bootstrap: str) -> str:
    """Name the topics that have fewer partitions than another one, and what gives them as many; "": all are equal.

    Partitions are only ever added: Kafka takes none away.
    """
    most = max(counts.values())
    few = {name: count for name, count in counts.items() if count < most}
    if not few:
        return ""
    most_of = ", ".join(name for name, count in counts.items() if count == most)
    texts = ", ".join(f"{name} has {count}" for name, count in few.items())
    commands = "; ".join(
        f"kafka-topics --bootstrap-server {bootstrap} --alter --topic {name} --partitions {most}" for name in few
    )
    return f"{most_of}: {most} partitions, but {texts}, and a node has one number in all of them: {commands}"
