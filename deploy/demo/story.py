"""Stores the records so far, for the view and the figures, and describes decisions in words. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from slacktide.deploy.demo.conditions import Name
from slacktide.deploy.demo.figures import percentile
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.suppress.cpu_suppress import BY_QUOTA, looser

MOVED_MILLI_MIN = 20
PLAIN = {"disabled": "the policy does not limit batch work", "restored": "the agent removed its limits"}
POINTS_MAX = 400
LINES_MAX = 40
SECONDS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One sample of the chart, in millicores."""

    at_ms: int
    ls_milli: int
    be_milli: int
    """The batch work in any form."""
    system_milli: int
    """Use outside of pods."""
    allowance_milli: int | None
    """The best-effort limit in force; None: unlimited."""
    reclaimable_milli: int | None
    """Batch CPU published by the stream; None: none yet."""
    condition: Name | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Durations of one decision's stages, milliseconds."""

    sample_to_command: int | None
    """None: the guard decided, or the command was not read yet."""
    command_to_applied: int | None
    sample_to_applied: int


@dataclass(slots=True)
class NodeStory:
    """One node's records."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    newest: NodeSample | None = None
    answered_seq: int = -1
    reclaimable_milli: int | None = None
    decided_ms: dict[int, int] = field(default_factory=dict)
    """The time of the stream's decision, by seq."""
    moved_milli: dict[int, int] = field(default_factory=dict)
    """The change of the service's use, by seq."""
    last: NodeOutcome | None = None
    """The newest decision that was applied or already in force."""

    @property
    def in_charge(self) -> str:
        """Return the origin of the last decision; "": none yet."""
        return self.last.origin if self.last else ""

    @property
    def ages(self) -> Ages | None:
        """Return the ages of the newest decision."""
        return self.ages_of(self.last) if self.last else None

    def ages_of(self, outcome: NodeOutcome) -> Ages:
        """Compute the ages on access, since an outcome may be read before its command."""
        decided_ms = self.decided_ms.get(outcome.seq) if outcome.origin == "stream" else None
        return Ages(
            sample_to_command=None if decided_ms is None else max(0, decided_ms - outcome.observed_ms),
            command_to_applied=None if decided_ms is None else max(0, outcome.acted_ms - decided_ms),
            sample_to_applied=outcome.age_ms,
        )


class Story:
    """All nodes."""

    def __init__(self, batch_uids: Iterable[str]) -> None:
        self.nodes: dict[str, NodeStory] = {}
        self._changes: deque[NodeOutcome] = deque(maxlen=LINES_MAX)
        self.cuts: list[NodeOutcome] = []
        """Those that lowered the best-effort limit."""
        self.condition: Name | None = None
        self._batch_uids = frozenset(batch_uids)
        self._decided: list[NodeOutcome] = []
        self._others_milli: list[tuple[int, int]] = []
        self._latencies: dict[int, list[float]] = {}
        self._p99_ms: dict[int, float | None] = {}

    def sample(self, sample: NodeSample) -> None:
        """Add a sample."""
        story = self.nodes.setdefault(sample.node, NodeStory())
        before = story.points[-1] if story.points else None
        batch = sum(use.cpu_milli or 0 for use in sample.pod_use if use.uid in self._batch_uids)
        service = sum(use.cpu_milli or 0 for use in sample.pod_use if use.uid not in self._batch_uids)
        others = max(0, (sample.use.cpu_milli or 0) - service - batch)
        if before is not None and _pods_changed(story.newest, sample):
            # A new or ended pod has no rate. It is counted as batch work.
            usual = min(others, before.system_milli)
            batch, others = batch + others - usual, usual
        story.newest = sample
        self._others_milli.append((sample.observed_ms, others))
        story.points.append(
            Point(
                at_ms=sample.observed_ms,
                ls_milli=service,
                be_milli=batch,
                system_milli=others,
                allowance_milli=limit_milli(sample.limits) if sample.limits else None,
                reclaimable_milli=story.reclaimable_milli,
                condition=self.condition,
            )
        )
        if before is not None:
            _remember(story.moved_milli, sample.seq, service - before.ls_milli)

    def command(self, command: NodeCommand) -> None:
        """Add a command."""
        story = self.nodes.setdefault(command.node, NodeStory())
        story.answered_seq = max(story.answered_seq, command.seq)
        _remember(story.decided_ms, command.seq, command.decided_ms)

    def outcome(self, outcome: NodeOutcome) -> None:
        """Add an outcome of the limit; others are ignored."""
        if not outcome.about_limit or outcome.result not in {"applied", "unchanged"} or outcome.origin == "agent":
            return
        self.nodes.setdefault(outcome.node, NodeStory()).last = outcome
        self._decided.append(outcome)
        if outcome.result == "applied":
            self._changes.append(outcome)
            if outcome.before and outcome.after and looser(outcome.before, outcome.after):
                self.cuts.append(outcome)

    def lines(self, count: int) -> list[tuple[NodeOutcome, str]]:
        """Return the last changes of limits with their description, newest first."""
        newest = list(self._changes)[: -count - 1 : -1]
        return [(one, because(one, self.nodes[one.node].moved_milli.get(one.seq))) for one in newest]

    def allocatable(self, allocatable: NodeAllocatable) -> None:
        """Add an allocatable record."""
        self.nodes.setdefault(allocatable.node, NodeStory()).reclaimable_milli = allocatable.batch_cpu_milli

    def latencies(self, served: Iterable[tuple[int, float]]) -> None:
        """Add served requests: (scheduled arrival in epoch milliseconds, latency in milliseconds)."""
        for arrival_ms, latency_ms in served:
            second = arrival_ms // 1000
            self._latencies.setdefault(second, []).append(latency_ms)
            self._p99_ms.pop(second, None)
        while len(self._latencies) > SECONDS_MAX:
            oldest = next(iter(self._latencies))
            del self._latencies[oldest]
            self._p99_ms.pop(oldest, None)

    def p99_ms(self, at_ms: int) -> float | None:
        """Return the service's p99 latency in a second; None: no request served."""
        second = at_ms // 1000
        if second not in self._p99_ms:
            self._p99_ms[second] = percentile(self._latencies.get(second, ()), 99)
        return self._p99_ms[second]

    def decided(self, since_ms: int, until_ms: int) -> Counter[tuple[str, str]]:
        """Count the decisions in a span by (origin, result)."""
        return Counter((one.origin, one.result) for one in self._decided if since_ms <= one.acted_ms < until_ms)

    def others_milli(self, since_ms: int, until_ms: int) -> list[int]:
        """Return the use outside of pods in a span, per sample."""
        return [milli for at_ms, milli in self._others_milli if since_ms <= at_ms < until_ms]

    def applied(self) -> int:
        """Count the decisions that changed a limit in a kernel, in the whole run."""
        return sum(one.result == "applied" for one in self._decided)

    def lag(self) -> int:
        """Count the samples without an answer so far, over all nodes."""
        return sum(
            max(0, story.newest.seq - story.answered_seq) for story in self.nodes.values() if story.newest is not None
        )


def _pods_changed(before: NodeSample | None, now: NodeSample) -> bool:
    """Return whether pods started or ended between two samples."""
    gone = before is not None and {use.uid for use in before.pod_use} - {use.uid for use in now.pod_use}
    return bool(gone) or any(use.cpu_milli is None for use in now.pod_use)


def _remember(by_seq: dict[int, int], seq: int, value: int) -> None:
    by_seq[seq] = value
    if len(by_seq) > POINTS_MAX:
        del by_seq[next(iter(by_seq))]


def because(outcome: NodeOutcome, ls_moved_milli: int | None = None) -> str:
    """Describe an applied outcome in one line, with the change of the service's use since the previous sample."""
    moved = ""
    if ls_moved_milli is not None and abs(ls_moved_milli) >= MOVED_MILLI_MIN:
        moved = f"LS {ls_moved_milli:+d}m → "
    change = f"BE {limit_text(outcome.before)} → {limit_text(outcome.after)}"
    why = arithmetic(outcome.bound, outcome.terms)
    return f"{moved}{change}: {why}" if why else f"{moved}{change}"


def limit_text(limits: Limits | None) -> str:
    """Format a limit in millicores."""
    if limits is None:
        return "?"
    milli = limit_milli(limits)
    return "unlimited" if milli is None else f"{milli}m"


def limit_milli(limits: Limits) -> int | None:
    """Return a limit in millicores; None: unlimited."""
    quota_us = limits.be_cfs_quota_us
    return None if quota_us is None else quota_us * 1000 // limits.be_cfs_period_us


def arithmetic(bound: str, terms: Terms) -> str:
    """Return the rule's terms, and the step that determined the result."""
    if "ceiling_milli" not in terms:
        return PLAIN.get(bound, bound)
    host_milli = terms.get("nonbe_hosts_milli", 0)
    hosts = f" - hosts {host_milli}" if host_milli else ""
    text = f"ceiling {terms['ceiling_milli']} - LS {terms['nonbe_pods_milli']}{hosts} - system {terms['system_milli']}"
    if bound.removeprefix(BY_QUOTA) == "target":
        return text
    return f"{text} = {terms['formula_milli']}, {_fixed(bound, terms)}"


def _fixed(bound: str, terms: Terms) -> str:
    """Describe the bound that replaced the formula's result."""
    match bound.removeprefix(BY_QUOTA):
        case "stepped":
            step = _milli(terms["step_us_max"]) if "step_us_max" in terms else f"{terms['step_cpus']} CPUs"
            return f"at most +{step} per step"
        case "floored":
            lowest = _milli(terms["target_us"]) if "target_us" in terms else f"{terms['be_cpus']} CPUs"
            return f"at least {lowest}"
        case "minimum":
            return f"the policy's minimum is {terms['minimum_milli']}"
    return bound


def _milli(quota_us: float) -> str:
    return f"{quota_us * 1000 // 100_000:.0f}m"
