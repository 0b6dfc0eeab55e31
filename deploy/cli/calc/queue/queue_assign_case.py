"""Defines types shared by the cases of flavors."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Given
from slacktide.deploy.cli.calc.queue.queue_case import QueueAmount, resource_of, unique
from slacktide.deploy.cli.calc.queue.queue_job import Pods
from slacktide.deploy.cli.calc.queue.queue_job_start import GivenFlavor, GivenToleration, tolerations_of
from slacktide.deploy.cli.calc.queue.queue_preempt_case import (
    GivenPreemptingQueue,
    GivenPreemption,
    GivenPreemptor,
    HolderInput,
)
from slacktide.streams.decisions.queue.assign import Fungibility, Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds, Taint
from slacktide.streams.decisions.queue.pending_queue import QueueingStrategy
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy
from slacktide.streams.decisions.queue.quota_tree import QuotaTree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Settings

Tried = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
"""Index of the flavor that was tried last; -1: all were tried."""
Next = Literal["MayStopSearch", "TryNextFlavor"]


class GivenTaint(Given, frozen=True, kw_only=True):
    """A taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class GivenNodeFlavor(GivenFlavor, frozen=True, kw_only=True):
    """A ResourceFlavor with its taints."""

    node_taints: list[GivenTaint] | None = None

    def node_flavor(self) -> NodeFlavor:
        """Convert to the rule's type."""
        taints = tuple(Taint(one.key, one.value, one.effect) for one in self.node_taints or ())
        return NodeFlavor(self.node_labels or {}, taints, tolerations_of(self.tolerations))


class GivenExpression(Given, frozen=True, kw_only=True):
    """A requirement on one node label."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class GivenPodSet(Given, frozen=True, kw_only=True):
    """A pod set; requests are of one pod."""

    name: str
    count: Pods = 1
    min_count: Pods | None = None
    requests: dict[str, QueueAmount] | None = None
    node_selector: dict[str, str] | None = None
    node_affinity_terms: list[list[GivenExpression]] | None = None
    tolerations: list[GivenToleration] | None = None

    def pod_set(self, last_tried: dict[str, int], field: str) -> PodSet:
        """Convert to the rule's type."""
        affinity = tuple(
            tuple(Expression(one.key, one.operator, tuple(one.values or ())) for one in term)
            for term in self.node_affinity_terms or ()
        )
        return PodSet(
            name=self.name,
            pods=self.count,
            min_pods=None if self.min_count is None else min(self.min_count, self.count),
            requests={resource_of(key, f"{field}.requests"): each for key, each in (self.requests or {}).items()},
            nodes=NodeNeeds(self.node_selector or {}, affinity, tolerations_of(self.tolerations)),
            last_tried={resource_of(key, f"{field}.last_tried"): each for key, each in last_tried.items()},
        )


class GivenPendingWorkload(GivenPreemptor, frozen=True, kw_only=True):
    """A workload without flavors."""

    pod_sets: list[GivenPodSet] = []
    last_tried: list[dict[str, Tried]] | None = None

    def sets(self, field: str) -> list[PodSet]:
        """Convert to the rule's type."""
        tried = [*(self.last_tried or ()), *({} for _ in self.pod_sets)]
        return [one.pod_set(dict(tried[at]), f"{field}.pod_sets[{at}]") for at, one in enumerate(self.pod_sets)]


class GivenFungibility(Given, frozen=True, kw_only=True):
    """Whether the next flavor is tried."""

    when_can_borrow: Next = "MayStopSearch"
    when_can_preempt: Next = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None

    def fungibility(self) -> Fungibility:
        """Convert to the rule's type."""
        return Fungibility(
            self.when_can_borrow == "TryNextFlavor",
            self.when_can_preempt == "TryNextFlavor",
            self.preference == "PreemptionOverBorrowing",
        )


class GivenAssigningQueue(GivenPreemptingQueue, frozen=True, kw_only=True):
    """A ClusterQueue with all inputs of the flavor assignment."""

    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    fungibility: GivenFungibility | None = None

    def queue(self, tree: QuotaTree, field: str) -> ClusterQueue:
        """Convert to the rule's type."""
        groups = tuple(
            Group(
                frozenset(resource_of(key, f"{at}.resources") for key in group.resources),
                tuple(one.name for one in group.flavors),
            )
            for at, group in self.groups(field)
        )
        return ClusterQueue(
            node=tree.queues[self.name],
            groups=groups,
            fungibility=(self.fungibility or GivenFungibility()).fungibility(),
            policies=(self.preemption or GivenPreemption()).preemption(),
            strategy=self.queueing_strategy,
        )


class AssignInput(HolderInput, frozen=True, kw_only=True):
    """A cluster with all inputs of the flavor assignment."""

    fair_sharing: bool = False
    preemption_strategies: Annotated[list[Strategy], msgspec.Meta(min_length=1, max_length=2)] | None = None
    flavors: list[GivenNodeFlavor] | None = None
    cluster_queues: list[GivenAssigningQueue]  # type: ignore[assignment]

    def settings(self) -> Settings:
        """Convert to the rule's type."""
        unique((one.name for one in self.flavors or ()), "input.flavors")
        flavors = {one.name: one.node_flavor() for one in self.flavors or ()}
        return Settings(flavors, self.fair_sharing, self.preemption_strategies or STRATEGIES, corrected=self.corrected)

    def queues(self, tree: QuotaTree) -> list[ClusterQueue]:
        """Convert to the rule's type."""
        return [one.queue(tree, f"input.cluster_queues[{at}]") for at, one in enumerate(self.cluster_queues)]
