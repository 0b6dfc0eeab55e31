"""Converts a decision to the parts of a command, each with its id."""

from __future__ import annotations

from slacktide.schemas.command import Answer, Evict, Hold, Setting, command_id
from slacktide.schemas.knob import KnobKey, pod_group
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.knobs.node_settings import WantedSetting
from slacktide.streams.decisions.node_decision import NodeDecision
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET, Decision


def answer_of(decision: NodeDecision) -> Answer:
    """Return the answer of the command. "skipped" leaves all decisions to the node."""
    if decision.limits.answer == "skipped":
        return "skipped"
    return "keep" if decision.nothing_new else "set"


def holds(decision: Decision, sample: NodeSample, policy_version: str) -> list[Hold]:
    """Return the limits to set; none if they do not change."""
    if decision.answer != "set" or decision.limits is None:
        return []
    id_ = command_id(sample.node, sample.boot_id, sample.seq, RULE, TARGET, policy_version)
    return [Hold(id=id_, rule=RULE, target=TARGET, limits=decision.limits, bound=decision.bound, terms=decision.terms)]


def evict_of(one: Eviction, sample: NodeSample, policy_version: str) -> Evict:
    """Convert one eviction."""
    return Evict(
        id=command_id(sample.node, sample.boot_id, sample.seq, one.rule, pod_group(one.pod.uid), policy_version),
        rule=one.rule,
        uid=one.pod.uid,
        namespace=one.pod.namespace,
        name=one.pod.name,
        bound=one.bound,
        terms=one.terms,
    )


def setting_of(one: WantedSetting, sample: NodeSample, policy_version: str) -> Setting:
    """Convert one knob setting."""
    target = KnobKey(one.group, one.knob).target
    return Setting(
        id=command_id(sample.node, sample.boot_id, sample.seq, one.rule, target, policy_version),
        rule=one.rule,
        group=one.group,
        knob=one.knob,
        value=one.value,
        bound=one.bound,
        terms=one.terms,
    )
