"""Stores the records so far, for the view and the figures, and describes decisions in words. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from slacktide.deploy.demo.conditions import Name
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

    def stages_ms(self, outcome: NodeOutcome) -> tuple[int, int] | None:
        """Return the times from sample to command and on to its outcome; None: by the guard, or not read yet."""
        # Computed on access, since an outcome may be read before its command.
        decided_ms = self.decided_ms.get(outcome.seq) if outcome.origin == "stream" else None
        if decided_ms is None:
            return None
        return max(0, decided_ms - outcome.observed_ms), max(0, outcome.acted_ms - decided_ms)


class Story:
    """All nodes."""

    def __init__(self, batch_uids: Iterable[str]) -> None:
        self.nodes: dict[str, NodeStory] = {}
        self.cuts: list[NodeOutcome] = []
        """Those that lowered the best-effort limit."""
        self.applied = 0
        """The number of decisions that changed a limit in a kernel, in the whole run."""
        self.condition: Name | None = None
        self._batch_uids = frozenset(batch_uids)
        self._changes: deque[NodeOutcome] = deque(maxlen=LINES_MAX)
        self._decided: list[tuple[int, str]] = []
        self._others_milli: list[tuple[int, int]] = []

    def sample(self, sample: NodeSample) -> None:
        """Add a sample."""
        story = self.nodes.setdefault(sample.node, NodeStory())
        before = story.points[-1] if story.points else None
        batch = sum(use.cpu_milli or 0 for use in sample.pod_use if use.uid in self._batch_uids)
        service = sum(use.cpu_milli or 0 for use in sample.pod_use if use.uid not in self._batch_uids)
        others = max(0, (sample.use.cpu_milli or 0) - service - batch)
        if before is not None and story.newest is not None:
            _remember(story.moved_milli, sample.seq, service - before.ls_milli)
            gone = {use.uid for use in story.newest.pod_use} - {use.uid for use in sample.pod_use}
            if gone or any(use.cpu_milli is None for use in sample.pod_use):
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
        self._decided.append((outcome.acted_ms, outcome.origin))
        if outcome.result == "applied":
            self.applied += 1
            self._changes.append(outcome)
            if outcome.before and outcome.after and looser(outcome.before, outcome.after):
                self.cuts.append(outcome)

    def allocatable(self, allocatable: NodeAllocatable) -> None:
        """Add an allocatable record."""
        self.nodes.setdefault(allocatable.node, NodeStory()).reclaimable_milli = allocatable.batch_cpu_milli

    def lines(self, count: int) -> list[tuple[NodeOutcome, str]]:
        """Return the last changes of limits with their description, newest first."""
        newest = list(self._changes)[: -count - 1 : -1]
        return [(one, because(one, self.nodes[one.node].moved_milli.get(one.seq))) for one in newest]

    def decided(self, since_ms: int, until_ms: int) -> list[str]:
        """Return the origin of each decision in a span."""
        return [origin for acted_ms, origin in self._decided if since_ms <= acted_ms < until_ms]

    def others_milli(self, since_ms: int, until_ms: int) -> list[int]:
        """Return the use outside of pods in a span, per sample."""
        return [milli for at_ms, milli in self._others_milli if since_ms <= at_ms < until_ms]

    def lag(self) -> int:
        """Count the samples without an answer so far, over all nodes."""
        return sum(max(0, one.newest.seq - one.answered_seq) for one in self.nodes.values() if one.newest is not None)


def _remember(by_seq: dict[int, int], seq: int, value: int) -> None:
    by_seq[seq] = value
    if len(by_seq) > POINTS_MAX:
        del by_seq[next(iter(by_seq))]


def because(outcome: NodeOutcome, ls_moved_milli: int | None = None) -> str:
    """Describe an applied outcome in one line, with the change of the service's use since the previous sample."""
    moved = ""
    if ls_moved_milli is not None and abs(ls_moved_milli) >= MOVED_MILLI_MIN:
        moved = f"LS {ls_moved_milli:+d}m → "
    change = f"BE {_limit_text(outcome.before)} → {_limit_text(outcome.after)}"
    why = _arithmetic(outcome.bound, outcome.terms)
    return f"{moved}{change}: {why}" if why else f"{moved}{change}"


def _limit_text(limits: Limits | None) -> str:
    if limits is None:
        return "?"
    milli = limit_milli(limits)
    return "unlimited" if milli is None else f"{milli}m"


def limit_milli(limits: Limits) -> int | None:
    """Return a limit in millicores; None: unlimited."""
    quota_us = limits.be_cfs_quota_us
    return None if quota_us is None else quota_us * 1000 // limits.be_cfs_period_us


def _arithmetic(bound: str, terms: Terms) -> str:
    """Return the rule's terms, and the step that determined the result."""
    if "ceiling_milli" not in terms:
        return PLAIN.get(bound, bound)
    host_milli = terms.get("nonbe_hosts_milli", 0)
    hosts = f" - hosts {host_milli}" if host_milli else ""
    text = f"ceiling {terms['ceiling_milli']} - LS {terms['nonbe_pods_milli']}{hosts} - system {terms['system_milli']}"
    fixed = bound.removeprefix(BY_QUOTA)
    if fixed == "target":
        return text
    if fixed == "stepped":
        step = _milli(terms["step_us_max"]) if "step_us_max" in terms else f"{terms['step_cpus']} CPUs"
        bound = f"at most +{step} per step"
    elif fixed == "floored":
        lowest = _milli(terms["target_us"]) if "target_us" in terms else f"{terms['be_cpus']} CPUs"
        bound = f"at least {lowest}"
    elif fixed == "minimum":
        bound = f"the policy's minimum is {terms['minimum_milli']}"
    return f"{text} = {terms['formula_milli']}, {bound}"


def _milli(quota_us: float) -> str:
    return f"{quota_us * 1000 // 100_000:.0f}m"
