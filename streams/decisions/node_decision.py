"""All that shall happen on a node: the one function that stream and guard both call.

Three parts that do not read each other: the limit of best-effort CPU, the pods that shall go, and the knobs that shall
hold something else than they do.
"""

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
    """The first victim first."""
    settings: tuple[WantedSetting, ...]

    @property
    def nothing_new(self) -> bool:
        """Whether what holds shall go on to hold, and nobody shall go."""
        return self.limits.answer == "keep" and not self.evict and not self.settings


def decide_node(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> NodeDecision:
    """Decide for a node from one sample, its pods, its facts and what of the policy holds there."""
    return NodeDecision(
        limits=decide(sample, facts, pods, policy),
        evict=evictions(sample, facts, pods, policy),
        settings=settings(sample, facts, pods, policy),
    )
