"""``slacktide calc memory_evict``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Percent, Whole
from slacktide.deploy.cli.calc.evict.evict_case import GivenEvictNode, GivenEvictStrategy, shown
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.streams.decisions.evict.evict_tasks import EvictNode
from slacktide.streams.decisions.evict.memory_evict import memory_evict


class Strategy(GivenEvictStrategy, frozen=True, kw_only=True):
    """An absent threshold is not set."""

    memory_evict_threshold_percent: Percent | None = None
    memory_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: Percent | None = None
    memory_allocatable_evict_lower_percent: Percent | None = None

    def policy(self) -> ResourceThreshold:
        """Convert to the rule's type."""
        return ResourceThreshold(
            mem_evict_threshold_pct=self.memory_evict_threshold_percent,
            mem_evict_lower_pct=self.memory_evict_lower_percent,
            mem_allocatable_evict_threshold_pct=self.memory_allocatable_evict_threshold_percent,
            mem_allocatable_evict_lower_pct=self.memory_allocatable_evict_lower_percent,
            evict_enabled_priority_threshold=self.evict_enabled_priority_threshold,
            allocatable_evict_priority_threshold=self.allocatable_evict_priority_threshold,
            sub_priority_enable=bool(self.sub_priority_enable),
        )


class Input(GivenEvictNode, frozen=True, kw_only=True):
    """A node's memory, its pods and the thresholds."""

    node_capacity_memory_bytes: Whole
    node_memory_used_bytes: Amount | None = None
    strategy: Strategy | None = None


def calculate(given: Input) -> Calculated:
    """Compute the victims when memory is short, in order."""
    strategy = given.strategy or Strategy()
    node = EvictNode(
        capacity=given.node_capacity_memory_bytes,
        used=given.node_memory_used_bytes,
        allocatable=given.node_allocatable or Resources(),
        pods=[pod.evictable(used=pod.memory_used_bytes) for pod in given.pods or ()],
    )
    features, policy, order = given.enabled_features or (), strategy.policy(), strategy.order()
    return shown(memory_evict(node, features=features, policy=policy, order=order))
