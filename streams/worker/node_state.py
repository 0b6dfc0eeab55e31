"""The nodes that a worker keeps state for: windows, and the pods and facts that later samples name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.policy.message import NodeSource
from slacktide.streams.columns.series import NodeWindow
from slacktide.streams.columns.windows import Arrival, Windows
from slacktide.streams.decisions.known_pods import KnownPods
from slacktide.streams.decisions.prediction.mid_forecast import HeldForecast
from slacktide.streams.records import Record
from slacktide.streams.worker.nodes import SILENT_MS, Boots, Described, Nodes
from slacktide.streams.worker.reading import ABSENT, Naming, SoundSample

T = TypeVar("T")

REVISIONS_KEPT = 4
"""Of pods and of facts, per node: a redelivered sample may name an older one."""
NULL = b"null"
SEGMENT_SPREAD_MS = 4_000
WAVE = 512
"""Nodes that are merged and published together: fits a processor's cache."""


@dataclass(slots=True)
class Revisions(Generic[T]):
    """The newest contents that samples carried, by revision; the one in use is the last."""

    read: Callable[[bytes, T | None], T]
    """Decodes a content, given the node's content before."""
    kept: dict[str, tuple[int, T]] = field(default_factory=dict)
    """With a hash of the encoded form, so that a repeated one is not decoded."""

    @property
    def newest(self) -> tuple[str, T] | None:
        """Return the revision and content in use; None: there is none."""
        if not self.kept:
            return None
        revision, (_, content) = next(reversed(self.kept.items()))
        return revision, content

    def carried(self, revision: str, written: msgspec.Raw) -> tuple[int, T] | None:
        """Decode what a sample carries, and change nothing; None: it carries nothing new.

        Raises BadMessageError if it cannot be decoded.
        """
        had, raw = self.kept.get(revision), bytes(written)
        if raw in {b"", NULL} or (had is not None and had[0] == hash(raw)):
            return None
        return hash(raw), self.read(raw, None if self.newest is None else self.newest[1])

    def named(self, revision: str, carried: tuple[int, T] | None, *, newer: bool) -> T | None:
        """Return the content that a sample names, or carries as ``carried`` decoded it; None: unknown.

        What an older sample carries displaces nothing.
        """
        if carried is None:
            had = self.kept.get(revision)
            if had is None:
                return None
            if newer and len(self.kept) > 1:
                self.kept[revision] = self.kept.pop(revision)
            return had[1]
        if newer:
            self.kept.pop(revision, None)
            self.kept[revision] = carried
            while len(self.kept) > REVISIONS_KEPT:
                del self.kept[next(iter(self.kept))]
        elif revision not in self.kept and len(self.kept) < REVISIONS_KEPT:
            self.kept = {revision: carried, **self.kept}
        return carried[1]


class Carried(NamedTuple):
    """Facts and pods that a record carries, with their revisions; empty: it carries none."""

    node: str
    pods_revision: str
    pods: msgspec.Raw
    facts_revision: str
    facts: msgspec.Raw


@dataclass(slots=True)
class Node:
    """The state of one node."""

    partition: int
    window: NodeWindow
    boots: Boots = field(default_factory=Boots)
    described: Described | None = None
    newest: tuple[str, int] = ("", -1)
    """Boot and seq of the newest sample of the trusted boot."""
    clock_epoch: int = 0
    pods: Revisions[KnownPods] = field(default_factory=lambda: Revisions(KnownPods.packed))
    facts: Revisions[NodeFacts] = field(default_factory=lambda: Revisions(lambda raw, _: decode(raw, NodeFacts)))
    late: tuple[str, int] = ("", 0)
    """The newest boot with late samples, and their number."""
    in_force: tuple[NodeFacts, Policy, int] | None = None
    """The window's length, with the facts and policy that determine it."""
    spread_ms: int = 0
    """Delay of a minute's segment after its end, to spread the nodes."""

    def __post_init__(self) -> None:
        """Derive the delay from the node's name."""
        self.spread_ms = zlib.crc32(self.window.node.encode()) % SEGMENT_SPREAD_MS

    def window_ms(self, facts: NodeFacts | None, policy: Policy) -> int:
        """Return the length of the window. Without facts the strategy is unknown, and the length stays."""
        if facts is None:
            return self.window.window_ms
        if self.in_force is None or self.in_force[0] is not facts or self.in_force[1] is not policy:
            self.in_force = facts, policy, colocation_on(policy, facts).metric_aggregate_duration_s * 1_000
        return self.in_force[2]

    def uids_of(self, revision: str) -> Sequence[str] | None:
        """Return the pods of a list, in order; None: no recent sample carried it."""
        had = self.pods.kept.get(revision)
        return None if had is None else had[1].uids

    def adopt(self, carried: Carried) -> None:
        """Remember contents older than all known ones. Raises BadMessageError if they cannot be decoded."""
        pods = self.pods.carried(carried.pods_revision, carried.pods)
        facts = self.facts.carried(carried.facts_revision, carried.facts)
        self.pods.named(carried.pods_revision, pods, newer=False)
        self.facts.named(carried.facts_revision, facts, newer=False)

    def in_use(self) -> Carried:
        """Return the facts and pods in use, for the next owner of the node."""
        pods, facts = self.pods.newest, self.facts.newest
        return Carried(
            self.window.node,
            *(("", ABSENT) if pods is None else (pods[0], msgspec.Raw(pods[1].raw))),
            *(("", ABSENT) if facts is None else (facts[0], msgspec.Raw(encode(facts[1])))),
        )

    def too_late(self, boot_id: str) -> None:
        """Count a late sample of that boot."""
        if boot_id >= self.late[0]:
            self.late = boot_id, self.late_of(boot_id) + 1

    def late_of(self, boot_id: str) -> int:
        """Return the number of late samples of a boot; 0 unless it is the newest with any."""
        return self.late[1] if self.late[0] == boot_id else 0

    def take(self, record: Record, sample: SoundSample | Naming, *, late: bool = False) -> NamedSample:
        """Take in what the sample carries, and find what it names.

        ``late``: it was buffered during an outage, and does not show which agent sends now. Raises BadMessageError if
        its pods or facts cannot be decoded; nothing has changed.
        """
        its_pods = self.pods.carried(sample.pods_revision, sample.pods)
        its_facts = self.facts.carried(sample.facts_revision, sample.facts)
        boots = self.boots
        standing = (boots.see_late if late else boots.see)(sample.boot_id, record.timestamp_ms, sample.observed_ms)
        newest = (sample.boot_id, sample.seq)
        newer = standing == "believed" and (sample.boot_id != self.newest[0] or newest > self.newest)
        pods = self.pods.named(sample.pods_revision, its_pods, newer=newer)
        facts = self.facts.named(sample.facts_revision, its_facts, newer=newer)
        restarted = False
        if newer:
            restarted = (sample.boot_id, sample.clock_epoch) != (self.newest[0], self.clock_epoch)
            self.newest, self.clock_epoch = newest, sample.clock_epoch
            if sample.boot_id < self.late[0]:
                self.late = "", 0
        two = standing == "two boots"
        whole = cast("SoundSample", sample)  # nobody reads figures of a ``Naming``
        return NamedSample(record, whole, self, facts, pods, newer, restarted, self.described, two)


class NamedSample(msgspec.Struct):
    """A sample, and what it names."""

    record: Record
    sample: SoundSample
    node: Node
    facts: NodeFacts | None
    pods: KnownPods | None
    newer: bool
    """Than all before it of its node, by boot and seq."""
    restarted: bool
    described: Described | None
    """The node's inventory when the sample was read."""
    two_boots: bool
    metric: NodeMetric | None = None
    held_forecast: HeldForecast | None = None

    @property
    def offered_by(self) -> NodeFacts | None:
        """Return the facts that reclaimed resources are computed from: the inventory's, otherwise the sample's."""
        return self.facts if self.described is None else self.described.offering(self.facts)

    @property
    def inventory_revision(self) -> str:
        """Return the revision of the inventory that ``offered_by`` is from; "": none."""
        return "" if self.described is None else self.described.revision

    def arrival(self, policy: Policy) -> Arrival:
        """Return the sample as input of its window."""
        window_ms = self.node.window_ms(self.offered_by, policy)
        return Arrival(self.node.window, self.sample, self.pods, window_ms, self.restarted)


def waves(samples: Sequence[NamedSample]) -> list[list[NamedSample]]:
    """Split samples into waves in which each node occurs once; each node keeps its order."""
    turns: list[list[NamedSample]] = []
    seen: dict[int, int] = {}
    for each in samples:
        turn = seen.get(each.node.window.row, 0)
        seen[each.node.window.row] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(each)
    return [turn[at : at + WAVE] for turn in turns for at in range(0, len(turn), WAVE)]


class Held:
    """States of nodes, with their windows. ``existing`` decides which nodes exist."""

    def __init__(self, existing: Nodes) -> None:
        self.existing = existing
        self.windows = Windows()
        self.dropped: set[tuple[int, str]] = set()
        """Partition and name of dropped nodes, until a consumer of their samples removes them."""
        self._nodes: dict[int, dict[str, Node]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._nodes.values()))

    def of(self, partition: int) -> dict[str, Node]:
        """Return the nodes of a partition, by name."""
        return self._nodes.get(partition, {})

    def begin(self, partition: int, name: str, window_ms: int) -> Node | str:
        """Return a node's state, created if needed, or the reason why there is none. ``window_ms``: of a new window."""
        node = self._nodes.get(partition, {}).get(name)
        if node is None:
            if why := self.existing.stranger(partition, name, len(self)):
                return why
            node = Node(partition, self.windows.window(name, window_ms))
            node.described = self.existing.described(partition, name)
            self._nodes.setdefault(partition, {})[name] = node
        return node

    def describe(self, partition: int, name: str) -> bool:
        """Update the node's inventory; return whether it changed."""
        node, described = self.of(partition).get(name), self.existing.described(partition, name)
        if node is None or node.described is described:
            return False
        node.described = described
        return True

    def follow(self, source: NodeSource) -> list[tuple[int, str]]:
        """Set the source of existing nodes; return partition and name of those that no longer exist."""
        self.existing.source = source
        return [
            (partition, name)
            for partition, nodes in self._nodes.items()
            for name in nodes
            if not self.existing.may_exist(partition, name)
        ]

    def drop(self, partition: int, name: str) -> Node | None:
        """Drop a node's state and return it; None: there was none."""
        self.dropped.add((partition, name))
        known = self.of(partition).pop(name, None)
        if known is not None:
            self.windows.drop(known.window)
        return known

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        for node in self._nodes.pop(partition, {}).values():
            self.windows.drop(node.window)

    def two_boots(self, now_ms: int) -> Collection[str]:
        """Return the nodes with two sending agents; ``now_ms``: by the clock of append times."""
        return [
            name
            for nodes in self._nodes.values()
            for name, node in nodes.items()
            if node.boots.two and now_ms - node.boots.newest_ms < SILENT_MS
        ]
