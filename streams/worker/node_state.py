"""What samples show of a node: its window, and the pods and facts that later samples name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.streams.columns.node_window import NodeWindow
from slacktide.streams.columns.windows import Arrival
from slacktide.streams.decisions.known_pods import KnownPods
from slacktide.streams.decisions.prediction.mid_forecast import HeldForecast
from slacktide.streams.records import Record
from slacktide.streams.worker.boots import Boots
from slacktide.streams.worker.nodes import Described
from slacktide.streams.worker.reading import ABSENT, Naming, SoundSample
from slacktide.streams.worker.shadow import Seen

T = TypeVar("T")

REVISIONS_KEPT = 4
"""Of pods and of facts, per node: what a redelivered sample may still name."""
NULL = b"null"
SEGMENT_SPREAD_MS = 4_000
WAVE = 512
"""Nodes whose windows are filled and published together: what fits a processor's cache."""


@dataclass(slots=True)
class Revisions(Generic[T]):
    """What samples have carried, by the revision that it goes by: the newest few, the one in use last."""

    read: Callable[[bytes, T | None], T]
    """Takes what is written, and what the node named before."""
    kept: dict[str, tuple[int, T]] = field(default_factory=dict)
    """With a hash of how it was written: what comes again is not read again."""

    @property
    def newest(self) -> tuple[str, T] | None:
        """The one in use last, behind its revision; None: there is none."""
        if not self.kept:
            return None
        revision, (_, content) = next(reversed(self.kept.items()))
        return revision, content

    def named(self, revision: str, written: msgspec.Raw, *, newer: bool) -> T | None:
        """What a sample names, which it may carry itself; None: it is not known.

        What an older sample carries displaces nothing; it is for that sample alone.

        Raises:
            BadMessageError: it cannot be read.

        """
        had = self.kept.get(revision)
        if written:
            raw = bytes(written)
            if raw != NULL and (had is None or had[0] != hash(raw)):
                before = None if self.newest is None else self.newest[1]
                return self._carried(revision, (hash(raw), self.read(raw, before)), newer=newer)
        if had is None:
            return None
        if newer and len(self.kept) > 1:
            self.kept[revision] = self.kept.pop(revision)
        return had[1]

    def _carried(self, revision: str, content: tuple[int, T], *, newer: bool) -> T:
        if newer:
            self.kept.pop(revision, None)
            self.kept[revision] = content
            while len(self.kept) > REVISIONS_KEPT:
                del self.kept[next(iter(self.kept))]
        elif revision not in self.kept and len(self.kept) < REVISIONS_KEPT:
            self.kept = {revision: content, **self.kept}
        return content[1]


def _facts(raw: bytes, _: NodeFacts | None) -> NodeFacts:
    return decode(raw, NodeFacts)


class Carried(NamedTuple):
    """Facts and pods as a record carries them, with the revisions that they go by; empty: it does not."""

    node: str
    pods_revision: str
    pods: msgspec.Raw
    facts_revision: str
    facts: msgspec.Raw


@dataclass(slots=True)
class Node:
    """What samples have shown of one node."""

    partition: int
    window: NodeWindow
    boots: Boots = field(default_factory=Boots)
    described: Described | None = None
    """Its inventory; None: there is none."""
    newest: tuple[str, int] = ("", -1)
    """Boot and seq of the newest sample of the boot that is believed."""
    clock_epoch: int = 0
    pods: Revisions[KnownPods] = field(default_factory=lambda: Revisions(KnownPods.packed))
    facts: Revisions[NodeFacts] = field(default_factory=lambda: Revisions(_facts))
    late: tuple[str, int] = ("", 0)
    """The newest boot of which samples came too late for its window, and how many."""
    in_force: tuple[NodeFacts, Policy, int] | None = None
    """The window's length, by which facts and policy."""
    spread_ms: int = 0
    """After a minute's end its segment is published so much later: not all nodes' at once."""

    def __post_init__(self) -> None:
        """Choose by the node's name."""
        self.spread_ms = zlib.crc32(self.window.node.encode()) % SEGMENT_SPREAD_MS

    def window_ms(self, facts: NodeFacts | None, policy: Policy) -> int:
        """Without facts it is unknown which strategy holds: the window stays as it is, and begins as the cluster's."""
        if facts is None:
            return self.window.window_ms
        if self.in_force is None or self.in_force[0] is not facts or self.in_force[1] is not policy:
            self.in_force = facts, policy, colocation_on(policy, facts).metric_aggregate_duration_s * 1_000
        return self.in_force[2]

    def uids_of(self, revision: str) -> Sequence[str] | None:
        """The pods of a list, in its order; None: no sample has carried it lately."""
        had = self.pods.kept.get(revision)
        return None if had is None else had[1].uids

    def adopt(self, carried: Carried) -> None:
        """Remember what is older than all that is known.

        Raises:
            BadMessageError: these are no pods, or no facts.

        """
        self.pods.named(carried.pods_revision, carried.pods, newer=False)
        self.facts.named(carried.facts_revision, carried.facts, newer=False)

    def in_use(self) -> Carried:
        """The newest facts and pods, for whoever takes the node over."""
        pods, facts = self.pods.newest, self.facts.newest
        return Carried(
            self.window.node,
            *(("", ABSENT) if pods is None else (pods[0], msgspec.Raw(pods[1].raw))),
            *(("", ABSENT) if facts is None else (facts[0], msgspec.Raw(encode(facts[1])))),
        )

    def too_late(self, boot_id: str) -> None:
        """One of that boot is in no window."""
        if boot_id >= self.late[0]:
            self.late = boot_id, self.late_of(boot_id) + 1

    def late_of(self, boot_id: str) -> int:
        """How many of the newest boot came too late."""
        return self.late[1] if self.late[0] == boot_id else 0

    def take(self, record: Record, sample: SoundSample | Naming, *, late: bool = False) -> NamedSample:
        """Remember what the sample carries, and find what it names.

        Args:
            record: that it came in.
            sample: decoded.
            late: it was held back during an outage, and does not show which agent sends now.

        Raises:
            BadMessageError: it carries what are no pods, or no facts.

        """
        boots = self.boots
        standing = (boots.see_late if late else boots.see)(sample.boot_id, record.timestamp_ms)
        newest = (sample.boot_id, sample.seq)
        newer = standing == "believed" and (sample.boot_id != self.newest[0] or newest > self.newest)
        pods = self.pods.named(sample.pods_revision, sample.pods, newer=newer)
        facts = self.facts.named(sample.facts_revision, sample.facts, newer=newer)
        restarted = False
        if newer:
            restarted = (sample.boot_id, sample.clock_epoch) != (self.newest[0], self.clock_epoch)
            self.newest, self.clock_epoch = newest, sample.clock_epoch
            if sample.boot_id < self.late[0]:
                self.late = "", 0
        two = standing == "two boots"
        whole = cast("SoundSample", sample)  # of what only names, nobody reads figures
        return NamedSample(record, whole, self, facts, pods, newer, restarted, self.described, two)


class NamedSample(msgspec.Struct):
    """A sample, and what it names."""

    record: Record
    sample: SoundSample
    node: Node
    facts: NodeFacts | None
    pods: KnownPods | None
    newer: bool
    """By boot and seq, than all before it of its node."""
    restarted: bool
    described: Described | None
    """The node's inventory when the sample was read."""
    two_boots: bool
    """Two agents use the node's name just now."""
    metric: NodeMetric | None = None
    """What was published with it."""

    @property
    def sold_by(self) -> NodeFacts | None:
        """The facts that sold figures go by: the inventory's, else those that the sample names."""
        return self.facts if self.described is None else self.described.facts

    @property
    def inventory_revision(self) -> str:
        """Of the inventory that ``sold_by`` comes from; "": there is none."""
        return "" if self.described is None else self.described.revision

    def seen(self, held_forecast: HeldForecast | None) -> Seen:
        """The same for whoever decides beside the worker; ``held_forecast``: the node's forecast."""
        return Seen(
            record=self.record,
            sample=self.sample,
            facts=self.facts,
            pods=self.pods,
            sold_by=self.sold_by,
            inventory_revision=self.inventory_revision,
            metric=self.metric,
            held_forecast=held_forecast,
        )

    def arrival(self, policy: Policy) -> Arrival:
        """The sample on its way into its window."""
        window_ms = self.node.window_ms(self.sold_by, policy)
        return Arrival(self.node.window, self.sample, self.pods, window_ms, self.restarted)


def waves(samples: Sequence[NamedSample]) -> list[list[NamedSample]]:
    """The same, so that no node is twice in a wave, and each node's samples keep their order."""
    turns: list[list[NamedSample]] = []
    seen: dict[int, int] = {}
    for each in samples:
        turn = seen.get(each.node.window.row, 0)
        seen[each.node.window.row] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(each)
    return [turn[at : at + WAVE] for turn in turns for at in range(0, len(turn), WAVE)]
