"""Decides a recorded trace by each policy of a grid, and counts by node and time block."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.analysis.advise.demand import BUCKETS, CpuWindow, Demand
from slacktide.streams.analysis.replay.model import (
    Hypothetical,
    Range,
    Successors,
    allowed_milli,
    best_effort,
    held_back,
    used_milli,
)
from slacktide.streams.analysis.replay.policies import Policies
from slacktide.streams.analysis.replay.whatif import INTERVAL_MS_MAX
from slacktide.streams.decisions.known_pods import KnownPods, known
from slacktide.streams.decisions.node_decision import decide_node
from slacktide.streams.decisions.suppress.cpu_suppress import measured
from slacktide.streams.records import Record, text_of
from slacktide.streams.samples import SampleReader

BLOCK_MS = 300_000


@dataclass(frozen=True, slots=True)
class Moment:
    """A sample with the time since the previous one."""

    at_ms: int
    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]
    line_pct: float
    counts: bool

    @property
    def span_ms(self) -> int:
        """Return the time that the sample covers."""
        return min(self.sample.interval_ms, INTERVAL_MS_MAX)

    @property
    def capacity_milli(self) -> int:
        """Return the node's CPU."""
        return self.facts.capacity.cpu_milli or 0

    @property
    def line_milli(self) -> float:
        """Return the node's use above which it is at risk."""
        return self.capacity_milli * self.line_pct / 100

    def pct(self, milli: float) -> int:
        """Convert millicores to percent of the node's CPU."""
        return min(BUCKETS, round(milli * 100 / self.capacity_milli)) if self.capacity_milli else 0


class Tally(msgspec.Struct, kw_only=True):
    """Counts for a policy, node and block. CPU in millicore-milliseconds."""

    covered_ms: int = 0
    be_low: float = 0.0
    be_high: float = 0.0
    over_low_ms: int = 0
    over_high_ms: int = 0
    evictions: int = 0


class NodeTrial(msgspec.Struct, kw_only=True):
    """One node under one policy."""

    blocks: dict[int, Tally] = {}
    """The blocks by Kafka time in units of ``BLOCK_MS``."""
    raises: dict[tuple[int, int], int] = {}
    """Time with a higher limit than a recorded one that throttled pods, ms, for ``share_used``."""
    crossings: dict[tuple[int, int], int] = {}
    """The part of that time with the maximum above the line and the minimum below, ms, for ``share_over``."""

    def block(self, at_ms: int) -> Tally:
        """Return the block of that time."""
        return self.blocks.setdefault(at_ms // BLOCK_MS, Tally())

    def raised(self, moment: Moment, rest_milli: float, be: Range, scale: float) -> None:
        """Count time for which only bounds are known.

        ``rest_milli``: use of everything else. ``scale``: recorded pods per remaining pod, which scales the demand.
        """
        low_pct = moment.pct(be.low_milli * scale)
        place = low_pct, moment.pct(be.high_milli * scale)
        self.raises[place] = self.raises.get(place, 0) + moment.span_ms
        if rest_milli + be.low_milli <= moment.line_milli < rest_milli + be.high_milli:
            place = low_pct, max(low_pct, moment.pct((moment.line_milli - rest_milli) * scale))
            self.crossings[place] = self.crossings.get(place, 0) + moment.span_ms


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all trials. The first one of ``trials`` is the recorded policy."""

    since_ms: int | None
    until_ms: int | None
    samples: int
    undecided: int
    trials: list[dict[str, NodeTrial]]
    """The trials by policy, then by node."""
    demand: dict[str, Demand]
    unproven: int = 0
    """Samples left out because their proof was rejected."""

    @classmethod
    def of(cls, parts: Sequence[Tried]) -> Tried:
        """Combine the results of parts without common nodes."""
        return cls(
            since_ms=min((part.since_ms for part in parts if part.since_ms is not None), default=None),
            until_ms=max((part.until_ms for part in parts if part.until_ms is not None), default=None),
            samples=sum(part.samples for part in parts),
            undecided=sum(part.undecided for part in parts),
            trials=[
                {name: node for trial in same for name, node in trial.items()}
                for same in zip(*(part.trials for part in parts), strict=True)
            ],
            demand={name: demand for part in parts for name, demand in part.demand.items()},
            unproven=sum(part.unproven for part in parts),
        )


class Trials:
    """One run over a trace."""

    def __init__(
        self,
        policies: Policies,
        grid: Sequence[Policy],
        *,
        line_pct: float,
        since_ms: int = 0,
        nodes: Iterable[str] = (),
    ) -> None:
        """Create a run over a trace with these policies; ``nodes``: only these (empty: all).

        ``line_pct``: node CPU use in percent above which latency-sensitive pods count as at risk. Samples before
        ``since_ms`` serve as history.
        """
        self._policies = policies
        self._grid = grid
        self._line_pct = line_pct
        self._since_ms = since_ms
        self._keys = {node.encode() for node in nodes}
        self._reader = SampleReader()
        self._nodes: dict[str, _Node] = {}
        self._by_version: dict[str, Policy | None] = {}
        self._samples = self._undecided = 0
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def take(self, record: Record) -> None:
        """Add the next record. Other topics and nodes, and invalid records, change nothing."""
        if record.topic != SAMPLE.name or record.value is None or (self._keys and record.key not in self._keys):
            return
        try:
            sample = self._reader.read(record)
        except BadMessageError:
            return
        if sample.node != text_of(record.key or b""):
            return
        node = self._nodes.get(sample.node)
        if node is None:
            node = self._nodes[sample.node] = _Node(trials=[_Trial() for _ in self._grid])
        if (sample.boot_id, sample.seq) <= node.newest:
            return  # a duplicate
        facts, pods = node.take(sample)
        counts = record.timestamp_ms >= self._since_ms
        if counts:
            self._samples += 1
            self._first_ms = record.timestamp_ms if self._first_ms is None else self._first_ms
            self._last_ms = record.timestamp_ms
        if facts is None or pods is None:
            self._undecided += counts
            return
        moment = Moment(record.timestamp_ms, sample, facts, pods, self._line_pct, counts=counts)
        self._undecided += counts and not node.decide(moment, self._policy(sample.policy_version), self._grid)

    def finish(self) -> Tried:
        """End the run."""
        counted = {name: node for name, node in sorted(self._nodes.items()) if node.recorded.blocks}
        return Tried(
            since_ms=self._first_ms,
            until_ms=self._last_ms,
            samples=self._samples,
            undecided=self._undecided,
            trials=[
                {name: node.recorded for name, node in counted.items()},
                *({name: node.trials[at].counted for name, node in counted.items()} for at in range(len(self._grid))),
            ],
            demand={name: node.demand for name, node in counted.items()},
        )

    def _policy(self, version: str) -> Policy | None:
        """Return the agent's policy; None: not in the trace."""
        if version not in self._by_version:
            record = self._policies.record(version)
            self._by_version[version] = None if record is None else decode(record.value, Policy)
        return self._by_version[version]


@dataclass(slots=True)
class _Trial:
    """One policy on one node."""

    other: Hypothetical = field(default_factory=lambda: Hypothetical(successors=Successors()))
    cpu: CpuWindow = field(default_factory=CpuWindow)
    be: Range | None = None
    """Use of best-effort pods since the previous sample; None: unknown."""
    counted: NodeTrial = field(default_factory=NodeTrial)


@dataclass(slots=True)
class _Node:
    """A node's state on all sides."""

    trials: Sequence[_Trial]
    recorded: NodeTrial = field(default_factory=NodeTrial)
    demand: Demand = field(default_factory=Demand)
    newest: tuple[str, int] = ("", -1)
    facts: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, KnownPods] = field(default_factory=dict)
    victims: set[str] = field(default_factory=set)
    """Pods that the recorded policies evicted."""

    def take(self, sample: NodeSample) -> tuple[NodeFacts | None, KnownPods | None]:
        """Keep facts and pods of a sample; returns those that it refers to, if known."""
        self.newest = sample.boot_id, sample.seq
        if sample.facts is not None:
            self.facts = {sample.facts_revision: sample.facts}
        if sample.pods is not None:
            self.pods = {sample.pods_revision: known(sample.pods)}
        return self.facts.get(sample.facts_revision), self.pods.get(sample.pods_revision)

    def decide(self, moment: Moment, recorded: Policy | None, grid: Sequence[Policy]) -> bool:
        """Count and decide a sample on all sides; returns whether it was counted."""
        sample, pods = moment.sample, moment.pods
        for trial in self.trials:
            trial.other.follow(sample, pods, self.victims)
        counted = self._count(moment)
        named: set[str] = set()
        if recorded is not None:
            named = {one.pod.uid for one in decide_node(sample, moment.facts, pods, recorded).evict}
        new = named - self.victims
        self.victims |= named
        if moment.counts:
            self.recorded.block(moment.at_ms).evictions += len(new)
        for trial, policy in zip(self.trials, grid, strict=True):
            evictions = _decided(trial, moment, policy, new, self.demand)
            if moment.counts:
                trial.counted.block(moment.at_ms).evictions += evictions
        return counted

    def _count(self, moment: Moment) -> bool:
        """Count the time since the previous sample, under the limits in it."""
        sample, facts = moment.sample, moment.facts
        limits, used = measured(sample.limits), sample.use.cpu_milli
        for trial in self.trials:
            trial.be = None
        if limits is None or used is None:
            return False
        be = best_effort(sample, moment.pods)
        be_milli = float(sum(use.cpu_milli or 0 for use, _ in be))
        rest, held = used - be_milli, allowed_milli(limits, facts)
        was_held_back = held_back(be, be_milli, held)
        if moment.counts:
            self.demand.count(moment.pct(be_milli), moment.span_ms, held_back=was_held_back)
            _add(self.recorded, moment, rest, Range(low_milli=be_milli, high_milli=be_milli))
        for trial in self.trials:
            would, room = allowed_milli(trial.other.limits or limits, facts), moment.capacity_milli - rest
            away = [use.uid for use, _ in be if trial.other.away(use.uid)]
            bounds = used_milli(be, held, would, room, away)
            if more := sum(use.cpu_milli or 0 for use, _ in trial.other.kept()):  # additional pods, up to the limit
                most = min(would, room)
                low, high = (max(one, min(one + more, most)) for one in (bounds.low_milli, bounds.high_milli))
                bounds = Range(low_milli=low, high_milli=high)
            trial.be = bounds
            if not moment.counts:
                continue
            _add(trial.counted, moment, rest, bounds)
            if bounds.high_milli > bounds.low_milli and was_held_back:
                trial.counted.raised(moment, rest, bounds, len(be) / (len(be) - len(away) or 1))
        return True


def _decided(trial: _Trial, moment: Moment, policy: Policy, recorded: Collection[str], demand: Demand) -> int:
    """Decide a sample and apply the decision; returns the number of evictions.

    ``recorded``: uids that the recorded policy evicts now.
    """
    other = trial.other
    sample = other.sample(moment.sample, moment.pods, policy.version)
    pods = moment.pods if sample.pods is None else sample.pods
    sample = trial.cpu.filled(sample, moment.span_ms, trial.be, demand, moment.facts, pods, policy)
    decision = decide_node(sample, moment.facts, pods, policy)
    if decision.limits.answer == "set" and decision.limits.limits is not None:
        other.hold(decision.limits.limits)
    return sum(other.evict(one.pod.uid, one.rule, pods, by_both=one.pod.uid in recorded) for one in decision.evict)


def _add(trial: NodeTrial, moment: Moment, rest_milli: float, be: Range) -> None:
    tally, line = trial.block(moment.at_ms), moment.line_milli
    tally.covered_ms += moment.span_ms
    tally.be_low += be.low_milli * moment.span_ms
    tally.be_high += be.high_milli * moment.span_ms
    tally.over_low_ms += moment.span_ms * (rest_milli + be.low_milli > line)
    tally.over_high_ms += moment.span_ms * (rest_milli + be.high_milli > line)
