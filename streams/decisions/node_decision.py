"""Decides the limits, the evictions and the knob settings of a node, and converts them to the parts of a command.

The three are independent. Stream and guard both call it.
"""

from collections.abc import Sequence

import msgspec

from slacktide.schemas.command import Answer, Evict, Hold, Setting, command_id
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob import KnobKey, pod_group
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.evict.node_evict import Eviction, evictions
from slacktide.streams.decisions.knobs import WantedSetting, settings
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET, Decision, decide


class NodeDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result for one sample."""

    limits: Decision
    evict: tuple[Eviction, ...]
    """In order of eviction."""
    settings: tuple[WantedSetting, ...]

    @property
    def nothing_new(self) -> bool:
        """Whether the limits are kept, no pod is evicted and no knob is set."""
        return self.limits.answer == "keep" and not self.evict and not self.settings


def decide_node(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> NodeDecision:
    """Decide for a node from one sample, its pods, its facts and its policy."""
    return NodeDecision(
        limits=decide(sample, facts, pods, policy),
        evict=evictions(sample, facts, pods, policy),
        settings=settings(sample, facts, pods, policy),
    )


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
