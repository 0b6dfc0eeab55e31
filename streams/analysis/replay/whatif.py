"""Decides recorded samples by another policy, and reports the changes per node and in total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded, with_limits
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, FORECAST, INVENTORY, POLICY, SAMPLE
from slacktide.streams.analysis.replay.model import Hypothetical, Listed, allowed_milli, used_milli
from slacktide.streams.analysis.replay.policies import Policies, Run
from slacktide.streams.analysis.replay.replay import BATCH, TURN
from slacktide.streams.decisions.suppress.cpu_suppress import measured
from slacktide.streams.proofs import believes
from slacktide.streams.records import Record, text_of
from slacktide.streams.samples import SampleReader
from slacktide.streams.worker import Worker

INTERVAL_MS_MAX = 10_000
"""A sample covers at most this time before it."""
EVICTS = b'"evict":'
HOUR_MILLI_MS = 3_600_000 * 1_000
"""Millicore-milliseconds per core-hour."""


class Side(msgspec.Struct, kw_only=True):
    """Results of one policy, in core-hours and seconds."""

    allowed_core_h: float = 0.0
    used_low_core_h: float = 0.0
    used_high_core_h: float = 0.0
    batch_sold_core_h: float = 0.0
    over_line_low_s: float = 0.0
    over_line_high_s: float = 0.0
    evictions: int = 0

    def add(self, other: Side) -> None:
        """Add another result."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class NodeChange(msgspec.Struct, kw_only=True):
    """One node, or all."""

    node: str
    covered_s: float = 0.0
    recorded: Side = msgspec.field(default_factory=Side)
    other: Side = msgspec.field(default_factory=Side)
    evictions_more: list[str] = []
    """Pods that only the other policy evicts, as namespace/name."""
    evictions_fewer: list[str] = []
    """Pods that only the recorded policies evict."""
    undecided: int = 0
    """Samples that were not counted: figures, pods or facts are unknown."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Changes by the other policy."""

    policy_version: str
    since_ms: int | None
    until_ms: int | None
    samples: int
    all: NodeChange
    nodes: list[NodeChange]
    unproven: int = 0
    """Samples left out because their proof was rejected."""

    @classmethod
    def of(cls, parts: Sequence[Change]) -> Change:
        """Combine the results of parts without common nodes."""
        nodes = sorted((node for part in parts for node in part.nodes), key=lambda node: node.node)
        return cls(
            policy_version=parts[0].policy_version,
            since_ms=min((part.since_ms for part in parts if part.since_ms is not None), default=None),
            until_ms=max((part.until_ms for part in parts if part.until_ms is not None), default=None),
            samples=sum(part.samples for part in parts),
            all=_all(nodes),
            nodes=nodes,
            unproven=sum(part.unproven for part in parts),
        )


@dataclass(slots=True)
class _Node:
    """A node's state on both sides."""

    change: NodeChange
    newest: tuple[str, int] = ("", -1)
    facts: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, Listed] = field(default_factory=dict)
    other: Hypothetical = field(default_factory=Hypothetical)
    offered: list[int] = field(default_factory=lambda: [0, 0])
    """Batch millicores: by the recorded policies, by the other one."""
    victims: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))

    def obeyed(self, side: int, command: NodeCommand, *, counted: bool) -> None:
        """Note the victims of a command."""
        if counted:
            self.victims[side].update({one.uid: f"{one.namespace}/{one.name}" for one in command.evict})


@dataclass(slots=True)
class _Asked:
    """A sample to be decided."""

    record: Record
    sample: NodeSample
    node: _Node
    facts: NodeFacts | None
    listed: Listed | None
    counted: bool
    answer: bytes | None = None
    """By the recorded policies."""
    allocatable: NodeAllocatable | None = None
    """As published after it by the recorded policies."""

    @property
    def pods(self) -> Sequence[Pod] | None:
        """Return its pods; None: unknown."""
        return None if self.listed is None else self.listed.pods


class WhatIf:
    """One run over a trace: the recorded policies against another one."""

    def __init__(self, policies: Policies, other: Policy, *, since_ms: int = 0, nodes: Iterable[str] = ()) -> None:
        """Create a run.

        ``policies``: of the trace. ``other``: the policy to try. ``since_ms``: earlier samples serve as history.
        ``nodes``: only these; empty: all.
        """
        self._recorded = Run(policies, since_ms, nodes)
        self._other = Worker("what-if", believes)
        source = self._recorded.worker.in_force.node_source
        tried = encode(msgspec.structs.replace(other, node_source=source))
        self._other.policy(
            Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=0, key=KEY.encode(), value=tried)
        )
        self._reader = SampleReader()
        self._nodes: dict[str, _Node] = {}
        self._turn: list[_Asked] = []
        self._samples = 0

    def take(self, record: Record) -> None:
        """Add the next record."""
        if not self._recorded.covers(record):
            return
        if record.topic == INVENTORY.name:
            self._end_turn()
            self._recorded.worker.inventory(record)
            self._other.inventory(record)
        elif record.topic == FORECAST.name:
            self._end_turn()
            self._recorded.worker.forecast(record)
            self._other.forecast(record)
        elif record.topic == SAMPLE.name and record.value is not None:
            self._sample(record)

    def finish(self) -> Change:
        """End the run."""
        self._end_turn()
        nodes = []
        for _, node in sorted(self._nodes.items()):
            change, (recorded, other) = node.change, node.victims
            change.evictions_more = sorted(name for uid, name in other.items() if uid not in recorded)
            change.evictions_fewer = sorted(name for uid, name in recorded.items() if uid not in other)
            change.recorded.evictions, change.other.evictions = len(recorded), len(other)
            nodes.append(change)
        return Change(
            policy_version=self._other.in_force.version,
            since_ms=self._recorded.first_ms,
            until_ms=self._recorded.last_ms,
            samples=self._samples,
            all=_all(nodes),
            nodes=nodes,
        )

    def _sample(self, record: Record) -> None:
        if self._recorded.due(record.timestamp_ms) or len(self._turn) == TURN:
            self._end_turn()
            self._recorded.advance(record.timestamp_ms)
        try:
            sample = self._reader.read(record)
        except BadMessageError:
            return  # both policies send it to the dead letters
        if sample.node != text_of(record.key or b""):
            return  # the same for a sample in the name of another node
        node = self._nodes.setdefault(sample.node, _Node(NodeChange(node=sample.node)))
        if (sample.boot_id, sample.seq) <= node.newest:
            return  # a duplicate
        node.newest = (sample.boot_id, sample.seq)
        if sample.facts is not None:
            node.facts = {sample.facts_revision: sample.facts}
        if sample.pods is not None:
            node.pods = {sample.pods_revision: Listed(sample.pods)}
        facts, listed = node.facts.get(sample.facts_revision), node.pods.get(sample.pods_revision)
        counted = not self._recorded.early(record)
        if counted:
            self._samples += 1
            self._recorded.counted(record.timestamp_ms, record.timestamp_ms)
        self._turn.append(_Asked(record, sample, node, facts, listed, counted))

    def _end_turn(self) -> None:
        """Let both workers decide the samples: the recorded policies' at once, the other one in waves."""
        turn, self._turn = self._turn, []
        if not turn:
            return
        self._decide_recorded(turn)
        wave: dict[bytes, _Asked] = {}
        for asked in turn:
            key = asked.record.key or b""
            if key in wave or len(wave) == BATCH:
                self._decide(wave)
                wave = {}
            if asked.counted:
                self._count(asked)
            wave[key] = asked
        self._decide(wave)

    def _decide_recorded(self, turn: Sequence[_Asked]) -> None:
        answers, outs = self._recorded.decided([asked.record for asked in turn], _latest_ms(turn))
        published: dict[tuple[str, str, int], NodeAllocatable] = {}
        for out in outs:
            if out.topic == ALLOCATABLE.name:
                allocatable = decode(out.value, NodeAllocatable)
                published[allocatable.node, allocatable.boot_id, allocatable.seq] = allocatable
        for asked, answer in zip(turn, answers, strict=True):
            sample = asked.sample
            asked.answer = answer
            asked.allocatable = published.get((sample.node, sample.boot_id, sample.seq))

    def _decide(self, wave: Mapping[bytes, _Asked]) -> None:
        """Let the other policy decide at most one sample per node: its next one depends on the answer."""
        would_be = []
        for asked in wave.values():
            node = asked.node
            if asked.answer is not None and EVICTS in asked.answer:
                node.obeyed(0, decode(asked.answer, NodeCommand), counted=asked.counted)
            if asked.allocatable is not None:
                node.offered[0] = asked.allocatable.batch_cpu_milli or 0
            sample = node.other.sample(asked.sample, asked.pods, self._other.in_force.version)
            would_be.append(_written(asked, sample))
        for out in self._other.samples(would_be, _latest_ms(wave.values())):
            if out.topic == COMMAND.name:
                asked, command = wave[out.key or b""], decode(out.value, NodeCommand)
                asked.node.obeyed(1, command, counted=asked.counted)
                asked.node.other.obey(command, asked.pods or [])
            elif out.topic == ALLOCATABLE.name:
                wave[out.key or b""].node.offered[1] = decode(out.value, NodeAllocatable).batch_cpu_milli or 0

    def _count(self, asked: _Asked) -> None:
        """Count the time since the previous sample, under the limits in it."""
        node, sample, facts, pods = asked.node, asked.sample, asked.facts, asked.listed
        recorded = measured(sample.limits)
        other = node.other.limits or recorded
        used = sample.use.cpu_milli
        if facts is None or pods is None or recorded is None or other is None or used is None:
            node.change.undecided += 1
            return
        span_ms = min(sample.interval_ms, INTERVAL_MS_MAX)
        be = pods.best_effort(sample)
        be_milli = float(sum(use.cpu_milli or 0 for use, _ in be))
        away = [use.uid for use, _ in be if node.other.away(use.uid)]
        held, would = allowed_milli(recorded, facts), allowed_milli(other, facts)
        room = (facts.capacity.cpu_milli or 0) - (used - be_milli)
        bounds = used_milli(be, held, would, room, away)
        threshold = resource_threshold_on(self._recorded.worker.in_force, facts)
        line = (facts.capacity.cpu_milli or 0) * threshold.cpu_suppress_threshold_pct / 100
        change = node.change
        change.covered_s += span_ms / 1_000
        _add(change.recorded, span_ms, held, (be_milli, be_milli), node.offered[0], (used - line,) * 2)
        rest = used - be_milli
        over = (rest + bounds.low_milli - line, rest + bounds.high_milli - line)
        _add(change.other, span_ms, would, (bounds.low_milli, bounds.high_milli), node.offered[1], over)


def _all(nodes: Sequence[NodeChange]) -> NodeChange:
    everything = NodeChange(node="all")
    for change in nodes:
        everything.covered_s += change.covered_s
        everything.undecided += change.undecided
        everything.recorded.add(change.recorded)
        everything.other.add(change.other)
        everything.evictions_more = everything.evictions_more + change.evictions_more
        everything.evictions_fewer = everything.evictions_fewer + change.evictions_fewer
    return everything


def _latest_ms(asked: Iterable[_Asked]) -> int:
    return max([0, *(one.record.timestamp_ms for one in asked)])  # -1: Kafka has no timestamp


def _written(asked: _Asked, sample: NodeSample) -> Record:
    """Return the sample as its agent would encode it."""
    record, recorded = asked.record, asked.sample
    listed = asked.pods if sample.pods is None else sample.pods
    if record.value is not None and sample.pod_use is recorded.pod_use and sample.evict == recorded.evict:
        value = with_limits(
            record.value,
            policy_version=sample.policy_version,
            limits=sample.limits,
            since_raise_ms=sample.since_raise_ms,
        )
    else:
        value = encoded(sample, listed or ())
    return msgspec.structs.replace(record, value=value)


def _add(
    side: Side, span_ms: int, allowed: float, used: tuple[float, float], offered: int, over_line: tuple[float, float]
) -> None:
    hours = span_ms / HOUR_MILLI_MS
    side.allowed_core_h += allowed * hours
    side.used_low_core_h += used[0] * hours
    side.used_high_core_h += used[1] * hours
    side.batch_sold_core_h += offered * hours
    side.over_line_low_s += span_ms / 1_000 * (over_line[0] > 0)
    side.over_line_high_s += span_ms / 1_000 * (over_line[1] > 0)
