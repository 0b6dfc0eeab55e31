"""What samples tell of a node: its window, and the pods and facts that later samples name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.known_pods import KnownPods, sharing
from slacktide.streams.records import Record
from slacktide.streams.shadow import Seen
from slacktide.streams.windows.node_window import NodeWindow
from slacktide.streams.windows.windows import Arrival

T = TypeVar("T")

REVISIONS_KEPT = 4
"""Of pods and of facts, per node: what a redelivered sample may still name."""
WAVE = 128
"""Nodes whose windows are filled and published together: what fits a processor's cache."""


@dataclass(slots=True)
class Node:
    """What samples have told of one node."""

    partition: int
    window: NodeWindow
    newest: tuple[str, int] = ("", -1)
    clock_epoch: int = 0
    pods: OrderedDict[str, Sequence[Pod]] = field(default_factory=OrderedDict)
    facts: OrderedDict[str, NodeFacts] = field(default_factory=OrderedDict)
    late: int = 0
    """Samples of this boot that came too late for its window."""
    minute: int = 0
    """Of event time: the first of which no segment has been said."""
    in_force: tuple[NodeFacts, Policy, int] | None = None
    """The window's length, by which facts and policy."""

    def window_ms(self, facts: NodeFacts | None, policy: Policy) -> int:
        """Without facts nothing tells which strategy holds: the window stays as it is, and begins as the cluster's."""
        if facts is None:
            return self.window.window_ms
        if self.in_force is None or self.in_force[0] is not facts or self.in_force[1] is not policy:
            self.in_force = facts, policy, colocation_on(policy, facts).metric_aggregate_duration_s * 1_000
        return self.in_force[2]

    def hear(self, record: Record, sample: NodeSample) -> Heard:
        """Remember what the sample carries, and find what it names."""
        newest = (sample.boot_id, sample.seq)
        newer = newest > self.newest
        restarted = False
        if newer:
            if sample.boot_id != self.newest[0]:
                self.late = 0
            restarted = (sample.boot_id, sample.clock_epoch) != (self.newest[0], self.clock_epoch)
            self.newest, self.clock_epoch = newest, sample.clock_epoch
        pods = _remember(self.pods, sample.pods_revision, self._carried(sample), newer=newer)
        facts = _remember(self.facts, sample.facts_revision, sample.facts, newer=newer)
        return Heard(record, sample, self, facts, pods, newer, restarted)

    def _carried(self, sample: NodeSample) -> KnownPods | None:
        """The pods that a sample brings; None: it brings none, or those that are known by that name."""
        if sample.pods is None or sample.pods == self.pods.get(sample.pods_revision):
            return None
        return sharing(sample.pods, next(reversed(self.pods.values()), ()))


class Heard(msgspec.Struct):
    """A sample, and what it names."""

    record: Record
    sample: NodeSample
    node: Node
    facts: NodeFacts | None
    pods: Sequence[Pod] | None
    newer: bool
    """By boot and seq, than all before it of its node."""
    restarted: bool
    metric: NodeMetric | None = None
    """What was published with it."""

    def seen(self) -> Seen:
        """The same for whoever decides beside the worker."""
        return Seen(record=self.record, sample=self.sample, facts=self.facts, pods=self.pods, metric=self.metric)

    def arrival(self, policy: Policy) -> Arrival:
        """The sample on its way into its window."""
        window_ms = self.node.window_ms(self.facts, policy)
        return Arrival(self.node.window, self.sample, self.pods, window_ms, self.restarted)


def _remember(kept: OrderedDict[str, T], revision: str, content: T | None, *, newer: bool) -> T | None:
    """Keep the newest revisions, the one in use last; returns what the sample names.

    What an older sample carries displaces nothing; it is for that sample alone.
    """
    had = kept.get(revision)
    if content is None or content == had:
        if newer and had is not None:
            kept.move_to_end(revision)
        return had
    if newer or (had is None and len(kept) < REVISIONS_KEPT):
        kept[revision] = content
        kept.move_to_end(revision, last=newer)
    while len(kept) > REVISIONS_KEPT:
        kept.popitem(last=False)
    return content


def waves(heard: Sequence[Heard]) -> list[list[Heard]]:
    """The same, so that no node is twice in a wave, and each node's samples keep their order."""
    turns: list[list[Heard]] = []
    seen: dict[int, int] = {}
    for each in heard:
        turn = seen.get(each.node.window.row, 0)
        seen[each.node.window.row] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(each)
    return [turn[at : at + WAVE] for turn in turns for at in range(0, len(turn), WAVE)]
