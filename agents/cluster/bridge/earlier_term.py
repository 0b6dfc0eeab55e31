"""State of earlier leaders, from Kafka: epoch, published nodes, last valid policy."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from slacktide.agents.publisher import REPUBLISH_S
from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import INVENTORY, POLICY
from slacktide.schemas.writer import supersedes
from slacktide.streams.kafka import read_topic

ROUNDS = 3
"""Republishing intervals: each living node was published within this many before the last policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTerm:
    """What earlier leaders published."""

    epoch: int
    """The highest epoch of any writer."""
    nodes: frozenset[str]
    """Nodes published and not removed."""
    policy: Policy | None
    """The last valid policy of the highest epoch."""


async def read_back(bootstrap: Cluster) -> EarlierTerm:
    """Read the policy topic, and the last minutes of the inventory by its last writer.

    Raises:
        LogError: Kafka is unavailable, or a topic is missing.
    """
    policy: Policy | None = None
    highest, newest_ms = 0, None
    async with aclosing(read_topic(bootstrap, POLICY.name)) as records:
        async for record in records:
            newest_ms = record.timestamp_ms
            try:
                read = policies.read(record.key, record.value)
            except BadMessageError:
                continue
            highest = max(highest, read.writer_epoch)
            if policy is None or supersedes(read, policy):
                policy = read
    since_ms = None if newest_ms is None else newest_ms - round(ROUNDS * REPUBLISH_S * 1_000)
    nodes, epoch = await _inventory(bootstrap, since_ms)
    return EarlierTerm(epoch=max(epoch, highest), nodes=nodes, policy=policy)


async def _inventory(bootstrap: Cluster, since_ms: int | None) -> tuple[frozenset[str], int]:
    nodes: set[str] = set()
    epoch = 0
    async with aclosing(read_topic(bootstrap, INVENTORY.name, since_ms=since_ms)) as records:
        async for record in records:
            name = (record.key or b"").decode(errors="replace")
            if record.value is None:
                nodes.discard(name)
                continue
            nodes.add(name)
            try:
                epoch = max(epoch, decode(record.value, NodeInventory).writer_epoch)
            except BadMessageError:
                continue
    return frozenset(nodes), epoch
