"""Decides the best-effort CPU limits of a node, for both the stream and the guard.

The policy selects one knob, quota or CPU set. The other one is released step by step. Reading:
koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go, suppressBECPU.
"""

from collections.abc import Collection, Sequence

import msgspec

from slacktide.schemas.command import Answer
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.known_pods import known
from slacktide.streams.decisions.resources.node_load import node_reserved
from slacktide.streams.decisions.suppress.cpu_pressure import fold
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import (
    apart,
    free_cpus,
    next_be_cpuset,
    node_cpus,
    off_exclusive,
    pinned_pods,
)
from slacktide.streams.decisions.suppress.cpu_suppress_quota import (
    PERIOD_US,
    Allowed,
    CpuUse,
    be_allowed_cpu,
    next_cfs_quota,
)
from slacktide.streams.decisions.suppress.learned_cap import EXPLORE, LEARNED_CAP, LearnedCap, learned_cap


def looser(one: Limits, other: Limits) -> bool:
    """Return whether ``one`` allows more CPU time than ``other``, or a CPU that ``other`` lacks."""
    if quota_rate(one) > quota_rate(other):
        return True
    mine, others = one.be_cpuset, other.be_cpuset
    # An unknown set may be all CPUs.
    return others is not None and (mine is None or not set(mine) <= set(others))


def tighter(current: Limits, wanted: Limits, free: Collection[int]) -> Limits:
    """Return only the reductions to ``wanted``. They remove CPUs that are not free first, and wanted CPUs last."""
    quota = current if quota_rate(current) <= quota_rate(wanted) else wanted
    cpuset, least = current.be_cpuset, wanted.be_cpuset
    if cpuset is not None and least is not None:
        stay = [cpu for cpu in cpuset if cpu in free] or cpuset
        cpuset = sorted(sorted(stay, key=lambda cpu: cpu not in least)[: len(least)])
    return Limits(be_cfs_quota_us=quota.be_cfs_quota_us, be_cfs_period_us=quota.be_cfs_period_us, be_cpuset=cpuset)


def capped(limits: Limits, quota_us: int) -> Limits:
    """Cap the CPU time at ``quota_us`` per standard period."""
    own_us = limits.be_cfs_quota_us
    if own_us is not None and own_us * PERIOD_US <= quota_us * limits.be_cfs_period_us:
        return limits
    return Limits(be_cfs_quota_us=quota_us, be_cfs_period_us=PERIOD_US, be_cpuset=limits.be_cpuset)


def released(current: Sequence[int] | None, free: Collection[int], step_cpus: int) -> list[int] | None:
    """Return the CPU set one step closer to all free CPUs. It is unchanged if no CPU is free or no set is known."""
    if current is None or not free:
        return None if current is None else list(current)
    kept = [cpu for cpu in current if cpu in free]
    more = sorted(set(free) - set(kept))
    return sorted([*kept, *more[:step_cpus]])


def measured(limits: Limits | None) -> Limits | None:
    """Return the limits, or None if the period is not positive or the quota is negative."""
    if limits is None or limits.be_cfs_period_us <= 0 or (limits.be_cfs_quota_us or 0) < 0:
        return None
    return limits


def quota_rate(limits: Limits) -> float:
    """Return the quota in CPUs; infinity if unlimited."""
    quota_us = limits.be_cfs_quota_us
    return float("inf") if quota_us is None else quota_us / limits.be_cfs_period_us


def allowed_milli(limits: Limits, capacity_milli: int | None) -> int | None:
    """Return the CPU time that best-effort pods may use, by quota and CPU set; None if unlimited or unknown.

    ``capacity_milli``: of the node. A set of all its CPUs limits nothing.
    """
    allowed = list[int]()
    if limits.be_cpuset is not None and (not capacity_milli or len(limits.be_cpuset) * 1_000 < capacity_milli):
        allowed.append(len(limits.be_cpuset) * 1_000)
    if limits.be_cfs_quota_us is not None and limits.be_cfs_period_us > 0:
        allowed.append(limits.be_cfs_quota_us * 1_000 // limits.be_cfs_period_us)
    return min(allowed, default=None)


def normal_us(limits: Limits) -> int | None:
    """Convert the quota to the standard period; None if unlimited."""
    if limits.be_cfs_quota_us is None:
        return None
    return limits.be_cfs_quota_us * PERIOD_US // limits.be_cfs_period_us


RULE = "cpu_suppress"
AHEAD = "cpu_suppress_ahead"
"""Rule name: an agent cuts by ``RULE`` before the answer to its sample."""
TARGET = "besteffort"
RAISE_SPACING_MS = 900
UNLIMITED = Limits(be_cfs_quota_us=None)
BY_QUOTA = "quota_"
"""Prefix of the bound if the policy selects the CPU set, but the quota is used."""

OFF_EXCLUSIVE = "exclusive_cpus"
"""The bound if only exclusive CPUs of other pods are removed from the CPU set."""

PRESSURE = "pressure_"
"""Prefix of a bound that the gate of ``cpu_pressure`` determines."""

NO_PRESSURE = "no_pressure_"
"""Prefix of a usage bound, if the policy uses pressure and the sample has none."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The limits to apply, or the reason why there are none."""

    answer: Answer
    limits: Limits | None
    """The limits after the decision; None if skipped."""
    bound: str
    reason: str = ""
    terms: Terms


class _Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The limits that one knob requires, with the other knob released."""

    wanted: Limits
    bound: str
    terms: Terms


def decide(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> Decision:
    """Decide the best-effort CPU limits from a sample, its pods, the node and the policy.

    If suppression is disabled, the limits are lifted. Otherwise they move one step toward the allowed CPU. A raise
    waits until 900 ms after the last raise; a cut never waits. Without pressure in the sample, usage decides. Exclusive
    CPUs of other pods are always removed from the CPU set, also without a policy. A learned cap in force, or what
    exploring leaves of it, is a ceiling of the quota, whichever signal and knob the policy selects.
    """
    if sample.limits is None:
        return _skip("the limit in force is unknown")
    pods = known(pods)
    current = off_exclusive(sample.limits, facts, pods)
    if current is sample.limits:
        return _decide(sample, current, facts, pods, policy)
    found = _decide(msgspec.structs.replace(sample, limits=current), current, facts, pods, policy)
    if found.answer == "set":
        return found
    return Decision(answer="set", limits=current, bound=OFF_EXCLUSIVE, terms=found.terms)


def _decide(sample: NodeSample, current: Limits, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> Decision:
    threshold = resource_threshold_on(policy, facts)
    if not threshold.enable:
        return _settle(current, lifted(current, facts, pods), "disabled", {})
    if not pods:
        return _keep(current, "no_pods", {})
    if sample.use.cpu_milli is None:
        return _skip("the node's CPU use is unknown")
    if not facts.capacity.cpu_milli:
        return _skip("the node's CPU capacity is unknown")
    by = _suppress if threshold.cpu_suppress_signal == "usage" else _by_signal
    found = by(sample, current, facts, pods, threshold)
    cap = learned_cap(policy, facts, threshold)
    return found if cap is None or found.limits is None else _below(cap, found, found.limits, current, sample)


def _below(cap: LearnedCap, found: Decision, limits: Limits, current: Limits, sample: NodeSample) -> Decision:
    """Return a decision with its limits, below the learned cap."""
    most_us = cap.most_us(sample.observed_ms)
    below = capped(limits, most_us)
    if below is limits:
        return found
    terms = found.terms | {"cap_us": cap.cap_us}
    if most_us == cap.cap_us:
        return _settle(current, below, LEARNED_CAP, terms)
    return _settle(current, below, EXPLORE, terms | {"explored_us": most_us})


def lifted(current: Limits, facts: NodeFacts, pods: Sequence[Pod]) -> Limits:
    """Return limits without a quota, and with all CPUs that best-effort pods may use."""
    free = _free(facts, pods)
    return Limits(be_cfs_quota_us=None, be_cpuset=released(current.be_cpuset, free, len(free)))


def _by_signal(
    sample: NodeSample, current: Limits, facts: NodeFacts, pods: Sequence[Pod], threshold: ResourceThreshold
) -> Decision:
    """Decide by pressure. A closed gate leaves the minimum; an open one leaves all, or the limit by usage."""
    if sample.ls_pressure is None:
        usage = _suppress(sample, current, facts, pods, threshold)
        return msgspec.structs.replace(usage, bound=f"{NO_PRESSURE}{usage.bound}")
    capacity_milli = facts.capacity.cpu_milli or 0
    gate = fold(sample.ls_pressure)
    bound = f"{PRESSURE}{gate.bound}"
    if gate.gate.closed:
        least_milli = (capacity_milli - apart(sample, pods).milli) * (threshold.cpu_suppress_min_pct or 0) // 100
        allowed = Allowed(allowed_milli=least_milli, bound="formula", terms={"allowed_milli": least_milli})
        step = _step(current, facts, pods, allowed, threshold)
        cut = tighter(current, step.wanted, _free(facts, pods))
        return _settle(current, cut, bound, gate.terms | step.terms)
    if threshold.cpu_suppress_signal == "both":
        usage = _suppress(sample, current, facts, pods, threshold)
        return msgspec.structs.replace(usage, terms=gate.terms | usage.terms)
    step = _Step(wanted=lifted(current, facts, pods), bound=bound, terms=gate.terms)
    return _spaced(step, sample, current, facts, pods)


def _suppress(
    sample: NodeSample, current: Limits, facts: NodeFacts, pods: Sequence[Pod], threshold: ResourceThreshold
) -> Decision:
    alone = apart(sample, pods)
    # The recent CPU usage of latency-sensitive pods that the sample's rates do not show yet.
    rise_cores, lately_milli = 0.0, sample.ls_lately_cpu_milli or 0
    if lately_milli > 0:
        known_milli = sum(use.cpu_milli or 0 for use in sample.pod_use if not use.best_effort_group)
        rise_cores = max(0, lately_milli - known_milli) / 1000
    allowed = be_allowed_cpu(
        capacity_milli=(facts.capacity.cpu_milli or 0) - alone.milli,
        reserved_milli=node_reserved(facts).cpu_milli or 0,
        node_used_cores=((sample.use.cpu_milli or 0) - alone.used_milli) / 1000 + rise_cores,
        pods=[*_used(sample, pods, alone.used_milli), CpuUse(rise_cores, best_effort=False)],
        threshold_pct=threshold.cpu_suppress_threshold_pct,
        min_pct=threshold.cpu_suppress_min_pct,
    )
    if alone.milli:
        allowed = msgspec.structs.replace(allowed, terms={"exclusive_milli": alone.milli} | allowed.terms)
    return _spaced(_step(current, facts, pods, allowed, threshold), sample, current, facts, pods)


def _spaced(step: _Step, sample: NodeSample, current: Limits, facts: NodeFacts, pods: Sequence[Pod]) -> Decision:
    """Decide on a step, or only on its reductions if the last raise was too recent."""
    since_ms = sample.since_raise_ms
    if looser(step.wanted, current) and since_ms is not None and since_ms < RAISE_SPACING_MS:
        cut = tighter(current, step.wanted, _free(facts, pods))
        return _settle(current, cut, "raise_spaced", step.terms | {"since_raise_ms": since_ms})
    return _settle(current, step.wanted, step.bound, step.terms)


def _step(
    current: Limits, facts: NodeFacts, pods: Sequence[Pod], allowed: Allowed, threshold: ResourceThreshold
) -> _Step:
    """Move the knob that the policy selects, or the quota if a CPU set cannot limit best-effort pods."""
    free = _free(facts, pods)
    if threshold.cpu_suppress_policy == "cfsQuota":
        return _by_quota(current, facts, free, allowed)
    cpus_min = threshold.cpuset_cpus_min
    if current.be_cpuset is not None and len(free) > cpus_min:
        return _by_cpuset(current, facts, pods, allowed, cpus_min)
    step = _by_quota(current, facts, free, allowed)
    known = len(free) if current.be_cpuset is not None else 0
    terms = step.terms | {"free_cpus": known, "cpuset_cpus_min": cpus_min}
    return _Step(wanted=step.wanted, bound=f"{BY_QUOTA}{step.bound}", terms=terms)


def _by_quota(current: Limits, facts: NodeFacts, free: Sequence[int], allowed: Allowed) -> _Step:
    step = next_cfs_quota(
        allowed_milli=allowed.allowed_milli, current_us=normal_us(current), capacity_milli=facts.capacity.cpu_milli or 0
    )
    cpuset = released(current.be_cpuset, free, -(-len(facts.processors) // 10))
    terms = allowed.terms | step.terms
    if step.bound == "bypassed":
        bound = "bypassed" if cpuset == current.be_cpuset else "cpuset_restored"
        return _Step(wanted=msgspec.structs.replace(current, be_cpuset=cpuset), bound=bound, terms=terms)
    wanted = Limits(be_cfs_quota_us=step.quota_us, be_cpuset=cpuset)
    return _Step(wanted=wanted, bound="minimum" if allowed.bound == "minimum" else step.bound, terms=terms)


def _by_cpuset(current: Limits, facts: NodeFacts, pods: Sequence[Pod], allowed: Allowed, cpus_min: int) -> _Step:
    step = next_be_cpuset(
        allowed_milli=allowed.allowed_milli,
        current=current.be_cpuset or (),
        node=node_cpus(facts, pods),
        pods=pinned_pods(pods),
        cpus_min=cpus_min,
    )
    terms = allowed.terms | step.terms
    if step.bound == "pools_short":
        return _Step(wanted=current, bound=step.bound, terms=terms)
    quota_us = normal_us(current)
    if quota_us is not None:
        # Raise an unused quota by one step. There is none once it covers all CPUs of the set.
        quota_us += -(-(facts.capacity.cpu_milli or 0) // 1000) * PERIOD_US // 10
        if quota_us >= len(step.cpus) * PERIOD_US:
            quota_us = None
        else:
            terms = terms | {"quota_us": quota_us}
    return _Step(
        wanted=Limits(be_cfs_quota_us=quota_us, be_cpuset=list(step.cpus)),
        bound="minimum" if allowed.bound == "minimum" and step.bound == "target" else step.bound,
        terms=terms,
    )


def _free(facts: NodeFacts, pods: Sequence[Pod]) -> list[int]:
    return free_cpus(node_cpus(facts, pods), pinned_pods(pods)) if facts.processors else []


def _used(sample: NodeSample, pods: Sequence[Pod], apart_milli: int) -> tuple[CpuUse, CpuUse]:
    """Sum the usage of best-effort pods, and of others without ``apart_milli``. The pod list overrides the cgroup."""
    listed = known(pods)
    by_uid, best_effort = listed.by_uid, listed.best_effort
    all_milli = best_effort_milli = 0
    for use in sample.pod_use:
        if milli := use.cpu_milli:
            all_milli += milli
            if use.uid in best_effort or (use.best_effort_group and use.uid not in by_uid):
                best_effort_milli += milli
    others_milli = all_milli - best_effort_milli - apart_milli
    return CpuUse(best_effort_milli / 1000, best_effort=True), CpuUse(others_milli / 1000, best_effort=False)


def _settle(current: Limits, wanted: Limits, bound: str, terms: Terms) -> Decision:
    if not looser(current, wanted) and not looser(wanted, current):
        return _keep(current, bound, terms)
    return Decision(answer="set", limits=wanted, bound=bound, terms=terms)


def _keep(current: Limits, bound: str, terms: Terms) -> Decision:
    return Decision(answer="keep", limits=current, bound=bound, terms=terms)


def _skip(reason: str) -> Decision:
    return Decision(answer="skipped", limits=None, bound="skipped", reason=reason, terms={})
