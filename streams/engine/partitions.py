"""Checks that all topics keyed by node have the same number of partitions."""

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
    """Return the partition counts of the topics that a worker uses.

    Raises:
        LogError: a topic is missing, or partition counts of topics keyed by node differ.
    """
    there = await present(bootstrap, [topic.name for topic in (*KEYED_BY_NODE, POLICY, TICK, DEAD_LETTER)])
    if trouble := unequal({topic.name: there[topic.name] for topic in KEYED_BY_NODE}, str(bootstrap)):
        raise LogError(trouble)
    return there


def unequal(counts: Mapping[str, int], bootstrap: str) -> str:
    """Name the topics with too few partitions, and the command that adds them; "": counts are equal."""
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
