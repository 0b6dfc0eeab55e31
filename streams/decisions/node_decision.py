"""Decides the limits, the evictions and the knob settings of a node, independently. Stream and guard both call it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.evict.node_evict import Eviction, evictions
from slacktide.streams.decisions.knobs.node_settings import WantedSetting, settings
from slacktide.streams.decisions.suppress.cpu_suppress import Decision, decide


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
