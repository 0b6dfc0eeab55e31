"""A run's records: raw, and decoded by topic."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import (
    ALLOCATABLE,
    BACKFILL,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    METRIC,
    OUTCOME,
    POLICY,
    SAMPLE,
    TICK,
    Topic,
)
from slacktide.streams.kafka import read_topic
from slacktide.streams.samples import SampleReader
from testbed.sampled import decoded

M = TypeVar("M", bound=Message)
READ = (SAMPLE, BACKFILL, COMMAND, OUTCOME, CREDIT, METRIC, ALLOCATABLE, TICK, POLICY, DEAD_LETTER)
"""What the invariants are about."""
DONE = frozenset({"applied", "unchanged", "failed"})
"""Results of acts; the others say why there was none."""


class Kept(Protocol):
    """One record as a topic holds it: of a broker, or of the simulation."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Entry(Generic[M]):
    at_ms: int
    """The record's timestamp, UTC epoch."""
    partition: int
    offset: int
    body: M


@dataclass(frozen=True, slots=True)
class Shown:
    """One look at the best-effort group's quota in a node's kernel."""

    at_ms: int
    """UTC epoch: it was seen then or later."""
    until_ms: int
    """And by then: a look takes a while where the machine is busy."""
    quota_us: int | None


@dataclass
class History:
    """What a run left behind, and what the test knows of it.

    A node that forged its records is not judged by them: only ``nodes`` are, all when it is empty.
    """

    records: Sequence[Kept]
    nodes: frozenset[str] = frozenset()
    """Nodes that were honest; empty: all that sent samples."""
    until_ms: int | None = None
    """When the last worker ended: later samples need no answer. None: a worker runs."""
    kernels: dict[str, Sequence[Shown]] = field(default_factory=dict)
    """By node the looks at its kernel, in their order."""

    def of(self, topic: Topic, kind: type[M]) -> list[Entry[M]]:
        found = []
        samples = SampleReader()
        for record in self.records:
            if record.topic == topic.name and record.value is not None:
                try:
                    body = decoded(record, kind, samples)
                except BadMessageError:
                    continue
                if self._honest(record, body):
                    found.append(Entry(record.timestamp_ms, record.partition, record.offset, body))
        return found

    def _honest(self, record: Kept, body: Message) -> bool:
        node = getattr(body, "node", None)
        if node is None:
            return True
        return record.key == node.encode() and (not self.nodes or node in self.nodes)

    @cached_property
    def samples(self) -> list[Entry[NodeSample]]:
        return self.of(SAMPLE, NodeSample)

    @cached_property
    def outcomes(self) -> dict[str, list[NodeOutcome]]:
        """By node, in the order of the acts; what was sent twice, once."""
        found: dict[str, list[NodeOutcome]] = {}
        seen: set[bytes] = set()
        for record in self.records:
            if record.topic != OUTCOME.name or record.value is None or record.value in seen:
                continue
            seen.add(record.value)
            try:
                body = decode(record.value, NodeOutcome)
            except BadMessageError:
                continue
            if self._honest(record, body):
                found.setdefault(body.node, []).append(body)
        return found

    @cached_property
    def pods(self) -> dict[str, list[Pod]]:
        """Every pod list that a sample carried, by its revision."""
        found: dict[str, list[Pod]] = {}
        for topic in (SAMPLE, BACKFILL):
            for entry in self.of(topic, NodeSample):
                if entry.body.pods is not None:
                    found[entry.body.pods_revision] = entry.body.pods
        return found


def read_history(bootstrap: str, topics: Iterable[Topic] = READ, since_ms: int | None = None) -> list[Kept]:
    """What topics hold now, each partition in its order; from a time on, or all."""

    async def read() -> list[Kept]:
        found: list[Kept] = []
        for topic in topics:
            async with aclosing(read_topic(Cluster(bootstrap), topic.name, since_ms=since_ms)) as records:
                found += [record async for record in records]
        return found

    return sorted(asyncio.run(read()), key=lambda record: (record.topic, record.partition, record.offset))
