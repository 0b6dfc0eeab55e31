"""What shall hold for best-effort CPU on a node: the one function that stream and guard both call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.command import Answer
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.cpu_suppress_allowed import CpuUse, be_allowed_cpu
from slacktide.streams.decisions.cpu_suppress_cfs_quota import PERIOD_US, next_cfs_quota
from slacktide.streams.decisions.node_reserved import node_reserved

RULE = "cpu_suppress"
TARGET = "besteffort"
RAISE_SPACING_MS = 900
UNLIMITED = Limits(be_cfs_quota_us=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Limits that shall hold, or why none can be named."""

    answer: Answer
    limits: Limits | None
    """What shall hold after it; None where skipped."""
    bound: str
    reason: str = ""
    terms: Terms


def looser(one: Limits, other: Limits) -> bool:
    """Whether ``one`` gives best-effort pods more than ``other``."""
    return _rate(one) > _rate(other)


def _rate(limits: Limits) -> float:
    quota_us = limits.be_cfs_quota_us
    return float("inf") if quota_us is None else quota_us / limits.be_cfs_period_us


def decide(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> Decision:
    """Decide the best-effort CPU limit from one sample, its pods, its node and what of the policy holds there.

    Suppress off: the limit is lifted. On: one step toward what is allowed; a raise waits until
    900 ms after the last one, a cut never waits.
    """
    if sample.limits is None:
        return _skip("the limit in force is unknown")
    threshold = resource_threshold_on(policy, facts)
    if not threshold.enable:
        return _settle(sample.limits, UNLIMITED, "disabled", {})
    if not pods:
        return _keep(sample.limits, "no_pods", {})
    if sample.use.cpu_milli is None:
        return _skip("the node's CPU use is unknown")
    capacity_milli = facts.capacity.cpu_milli
    if not capacity_milli:
        return _skip("the node's CPU capacity is unknown")
    return _suppress(sample, sample.limits, sample.use.cpu_milli, capacity_milli, facts, pods, threshold)


def _suppress(
    sample: NodeSample,
    current: Limits,
    used_milli: int,
    capacity_milli: int,
    facts: NodeFacts,
    pods: Sequence[Pod],
    threshold: ResourceThreshold,
) -> Decision:
    allowed = be_allowed_cpu(
        capacity_milli=capacity_milli,
        reserved_milli=node_reserved(facts).cpu_milli or 0,
        node_used_cores=used_milli / 1000,
        pods=pod_cpu_uses(sample, pods),
        threshold_pct=threshold.cpu_suppress_threshold_pct,
        min_pct=threshold.cpu_suppress_min_pct,
    )
    step = next_cfs_quota(
        allowed_milli=allowed.allowed_milli, current_us=_normal_us(current), capacity_milli=capacity_milli
    )
    terms = allowed.terms | step.terms
    wanted = Limits(be_cfs_quota_us=step.quota_us)
    since_ms = sample.since_raise_ms
    if looser(wanted, current) and since_ms is not None and since_ms < RAISE_SPACING_MS:
        return _keep(current, "raise_spaced", terms | {"since_raise_ms": since_ms})
    if step.bound == "bypassed":
        return _keep(current, "bypassed", terms)
    return _settle(current, wanted, "minimum" if allowed.bound == "minimum" else step.bound, terms)


def pod_cpu_uses(sample: NodeSample, pods: Sequence[Pod]) -> list[CpuUse]:
    """Each pod's CPU and whether it is best-effort: by the pod list, else by where its cgroup lies."""
    best_effort = {pod.uid: is_best_effort(pod) for pod in pods}
    return [
        CpuUse(
            used_cores=None if use.cpu_milli is None else use.cpu_milli / 1000,
            best_effort=best_effort.get(use.uid, use.best_effort_group),
        )
        for use in sample.pod_use
    ]


def _normal_us(limits: Limits) -> int | None:
    """The quota per standard period, whatever period the kernel holds."""
    if limits.be_cfs_quota_us is None:
        return None
    return limits.be_cfs_quota_us * PERIOD_US // limits.be_cfs_period_us


def _settle(current: Limits, wanted: Limits, bound: str, terms: Terms) -> Decision:
    if _rate(current) == _rate(wanted):
        return _keep(current, bound, terms)
    return Decision(answer="set", limits=wanted, bound=bound, terms=terms)


def _keep(current: Limits, bound: str, terms: Terms) -> Decision:
    return Decision(answer="keep", limits=current, bound=bound, terms=terms)


def _skip(reason: str) -> Decision:
    return Decision(answer="skipped", limits=None, bound="skipped", reason=reason, terms={})
