"""Computes the knobs of a node's groups except the best-effort CPU limit, and the changes to those that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob import BEST_EFFORT_TIER, TIERS, KnobKey, container_of, uid_of
from slacktide.schemas.knob_table import KNOBS
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, cpu_burst_on, resource_qos_on
from slacktide.schemas.sample import Drift, NodeSample
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.burst.cpu_burst_value import cpu_burst
from slacktide.streams.decisions.burst.node_burst import burst_settings
from slacktide.streams.decisions.knobs.be_isolation import isolation
from slacktide.streams.decisions.knobs.qos_class import cpu_qos, memory_qos

RELEASED = "released"
"""The rule that resets a knob to the default of kubelet and kernel if no other rule sets it."""


def wanted(facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> Mapping[KnobKey, WantedSetting]:
    """Return all knobs that a rule sets. If two rules set one knob, the first takes precedence."""
    found: dict[KnobKey, WantedSetting] = {}
    strategy = resource_qos_on(policy, facts)
    for one in (
        *isolation(pods, colocation_on(policy, facts)),
        *cpu_qos(pods, strategy),
        *memory_qos(pods, facts, strategy),
        *cpu_burst(pods, cpu_burst_on(policy, facts)),
    ):
        found.setdefault(KnobKey(one.group, one.knob), one)
    return found


def drift_settings(
    drift: Sequence[Drift], facts: NodeFacts, pods: Sequence[Pod], policy: Policy
) -> tuple[WantedSetting, ...]:
    """Return the changes to knobs that differ, in an order that the kernel accepts.

    Decreases come first, from inner to outer groups, then increases from outer to inner: a container may not exceed its
    pod. For the same reason, bursts decrease before quotas and increase after them.
    """
    if not drift:
        return ()
    by_key, known = wanted(facts, pods, policy), {pod.uid: pod for pod in pods}
    return tuple(sorted_for_kernel(drift, _settings(drift, by_key, known)))


def released(key: KnobKey, known: Mapping[str, Pod]) -> WantedSetting | None:
    """Return the default of a knob that no rule sets. None if it is not ours or its group does not exist."""
    pod = known.get(uid_of(key.group))
    if pod is None:
        there = key.group in TIERS.values()
        best_effort = key.group == BEST_EFFORT_TIER
    else:
        name = container_of(key.group)
        there = not name or any(one.name == name for one in pod.containers)
        best_effort = pod.kube_qos == "BestEffort"
    if not there or (KNOBS[key.knob].from_spec and not best_effort):
        return None
    value = KNOBS[key.knob].default
    return WantedSetting(group=key.group, knob=key.knob, value=value, rule=RELEASED, bound="not_wanted", terms={})


def sorted_for_kernel(drift: Sequence[Drift], settings: Iterator[WantedSetting]) -> list[WantedSetting]:
    """Sort decreases from inner to outer groups, then increases from outer to inner groups."""
    held = {KnobKey(one.group, one.knob): one.held for one in drift}

    def place(one: WantedSetting) -> tuple[bool, int, bool, str, str]:
        raised = _amount(one.value) > _amount(held[KnobKey(one.group, one.knob)])
        depth = one.group.count("/")
        return raised, depth if raised else -depth, (one.knob == "cfs_burst_us") == raised, one.group, one.knob

    return sorted(settings, key=place)


def _settings(
    drift: Sequence[Drift], by_key: Mapping[KnobKey, WantedSetting], known: Mapping[str, Pod]
) -> Iterator[WantedSetting]:
    for key in dict.fromkeys(KnobKey(one.group, one.knob) for one in drift):
        one = by_key.get(key) or released(key, known)
        if one is not None:
            yield one


def _amount(value: int | None) -> float:
    """Return the value; infinity if unlimited."""
    return float("inf") if value is None else value


__all__ = ["WantedSetting", "settings"]


def settings(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> tuple[WantedSetting, ...]:
    """Return the changes by drift, then by bursts. On a knob in both, the burst takes precedence."""
    return (*drift_settings(sample.drift, facts, pods, policy), *burst_settings(sample, facts, pods, policy))
