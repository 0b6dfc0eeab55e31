"""Cases of the rules of preemption and of flavor assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, unique, unique_ids
from slacktide.deploy.cli.calc.forms import By, Flat, Form, Given, Nullable, Seconds, Whole
from slacktide.deploy.cli.calc.queue_job import GivenTolerations, Pods
from slacktide.deploy.cli.calc.queue_quota import (
    ClusterInput,
    GivenAdmitted,
    GivenClusterQueue,
    GivenResource,
    GivenWorkload,
    QueueAmount,
    by_resource,
    key_of,
    known,
    resource_of,
    written,
)
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.assign import (
    FIT,
    Assignment,
    Cluster,
    Fungibility,
    Group,
    PodSet,
    PodSetAssignment,
    assign,
)
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds, Taint
from slacktide.streams.decisions.queue.preempt import Holder, Policy, Preemption, Preemptor, candidates, targets
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy, fair_targets
from slacktide.streams.decisions.queue.queue_order import QueueingStrategy
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaTree, plus
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Settings


class GivenBorrowWithinCohort(Given, frozen=True, kw_only=True):
    """Whether workloads may preempt while their ClusterQueue borrows, and up to which priority."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Whole | None = None


class GivenPreemption(Given, frozen=True, kw_only=True):
    """A ClusterQueue's policies."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: Nullable[GivenBorrowWithinCohort] = GivenBorrowWithinCohort()

    def preemption(self, _: str) -> Preemption:
        """Convert to the rule's type."""
        borrow = self.borrow_within_cohort
        return Preemption(
            self.within_cluster_queue,
            self.reclaim_within_cohort,
            borrow_within_cohort=borrow.policy != "Never",
            priority_max=borrow.max_priority_threshold,
        )


class GivenPreemptingQueue(GivenClusterQueue, frozen=True, kw_only=True):
    """A ClusterQueue with its policies."""

    preemption: Nullable[Annotated[Preemption, By(GivenPreemption.preemption, GivenPreemption)]] = Preemption()


class GivenHolder(GivenAdmitted, frozen=True, kw_only=True):
    """A workload that holds quota, and since when."""

    quota_reserved_seconds: Seconds | None = None


class GivenPreemptor(GivenWorkload, frozen=True, kw_only=True):
    """A workload that needs quota."""

    cluster_queue: str


class GivenNeed(Given, frozen=True, kw_only=True):
    """An amount of a flavor's resource, and whether it requires preemption."""

    flavor: str
    resource: GivenResource
    amount: QueueAmount = 0
    mode: Literal["Preempt", "Fit"] = "Preempt"


class HolderInput(ClusterInput, frozen=True, kw_only=True):
    """A cluster with the policies of its ClusterQueues."""

    now_seconds: Seconds = 0
    corrected: bool = False
    """Correct known errors of the reference."""
    cluster_queues: list[GivenPreemptingQueue]  # type: ignore[assignment]
    admitted: Nullable[list[GivenHolder]] = []  # type: ignore[assignment]

    def holders(self, tree: QuotaTree) -> list[tuple[str, Holder]]:
        """Return each workload that holds quota, with its name."""
        unique((one.name for one in self.admitted), "input.admitted[{}].name")
        unique_ids([one.queued().uid for one in self.admitted], "input.admitted")
        return [(one.name, _holder(one, tree, f"input.admitted[{at}]")) for at, one in enumerate(self.admitted)]


class PreemptInput(HolderInput, frozen=True, kw_only=True):
    """A cluster, and a workload that needs quota."""

    workload: GivenPreemptor
    needs: list[GivenNeed]

    def policies(self) -> Preemption:
        """Return the policies of the workload's ClusterQueue; ``preemptor`` checks that it exists."""
        return next(one for one in self.cluster_queues if one.name == self.workload.cluster_queue).preemption

    def preemptor(self, tree: QuotaTree) -> Preemptor:
        """Convert to the rule's type."""
        node = known(tree.queues, self.workload.cluster_queue, "input.workload.cluster_queue")
        request: dict[FlavorResource, int] = {}
        needed = set()
        for one in self.needs:
            of = FlavorResource(one.flavor, one.resource)
            if one.amount:
                request[of] = plus(request.get(of, 0), one.amount)
            if one.mode == "Preempt":
                needed.add(of)
        return Preemptor(
            self.workload.queued(), node, request, frozenset(needed), self.now_seconds, corrected=self.corrected
        )


def _holder(one: GivenHolder, tree: QuotaTree, field: str) -> Holder:
    usage: dict[FlavorResource, int] = {}
    assigned: set[FlavorResource] = set()
    for index, pod_set in enumerate(one.pod_sets):
        of = pod_set.flavor_resources(f"{field}.pod_sets[{index}].usage")
        assigned.update(of.values())
        for key, amount in pod_set.usage.items():
            usage[of[key]] = plus(usage.get(of[key], 0), amount)
    queue = known(tree.queues, one.cluster_queue, f"{field}.cluster_queue")
    return Holder(one.queued(), queue, frozenset(assigned), usage, one.quota_reserved_seconds)


def calc_queue_preempt(given: PreemptInput) -> Calculated:
    """Select the workloads to preempt, without fair sharing."""
    tree = given.tree()
    usage, preemptor, policies = given.usage(tree), given.preemptor(tree), given.policies()
    holders = given.holders(tree)
    names = {one.queued.uid: name for name, one in holders}
    tried = candidates(preemptor, policies, [one for _, one in holders], usage)
    chosen = targets(preemptor, policies, tried, usage)
    because = Because(
        of="targets",
        bound="found" if chosen else "none",
        terms={"candidate_count": len(tried), "target_count": len(chosen)},
    )
    return Calculated(
        output={
            "candidates_in_order": [{"name": names[one.holder.queued.uid], "kind": one.kind} for one in tried],
            "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in chosen],
        },
        because=[because],
    )


Strategies = Nullable[Annotated[Sequence[Strategy], msgspec.Meta(min_length=1, max_length=2)]]


class QueuePreemptFairInput(PreemptInput, frozen=True, kw_only=True):
    """A cluster with fair sharing, and a workload that needs quota."""

    preemption_strategies: Strategies = STRATEGIES


def calc_queue_preempt_fair(given: QueuePreemptFairInput) -> Calculated:
    """Select the workloads to preempt, with fair sharing."""
    tree = given.tree()
    usage, preemptor, policies = given.usage(tree), given.preemptor(tree), given.policies()
    holders = given.holders(tree)
    names = {one.queued.uid: name for name, one in holders}
    chosen = fair_targets(preemptor, policies, [one for _, one in holders], usage, given.preemption_strategies)
    because = Because(of="targets", bound="found" if chosen else "none", terms={"target_count": len(chosen)})
    targets = [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in chosen]
    return Calculated(output={"targets": targets}, because=[because])


Tried = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
"""Index of the flavor that was tried last; -1: all were tried."""


_TAINTS = tuple[Annotated[Taint, Form(strict=True, key="")], ...]
_NODE_FLAVOR = Form(taints=Nullable[_TAINTS], tolerations=GivenTolerations)


class GivenNodeFlavor(Given, frozen=True, kw_only=True):
    """A ResourceFlavor with its taints."""

    name: str
    flavor: Flat[Annotated[NodeFlavor, _NODE_FLAVOR]]


Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
_AFFINITY = tuple[tuple[Annotated[Expression, Form(operator=Operator)], ...], ...]
_NEEDS = Form(affinity=Nullable[_AFFINITY], tolerations=GivenTolerations)


class GivenPodSet(Given, frozen=True, kw_only=True):
    """A pod set; requests are of one pod."""

    name: str
    count: Pods = 1
    min_count: Pods | None = None
    requests: Nullable[Annotated[dict[str, int], By(by_resource, dict[str, QueueAmount])]] = {}
    nodes: Flat[Annotated[NodeNeeds, _NEEDS]]

    def pod_set(self, last_tried: dict[str, int], field: str) -> PodSet:
        """Convert to the rule's type."""
        min_pods = None if self.min_count is None else min(self.min_count, self.count)
        tried = by_resource(last_tried, f"{field}.last_tried")
        return PodSet(self.name, self.count, min_pods, self.requests, self.nodes, tried)


class GivenPendingWorkload(GivenPreemptor, frozen=True, kw_only=True):
    """A workload without flavors."""

    pod_sets: list[GivenPodSet] = []
    last_tried: Nullable[list[dict[str, Tried]]] = []

    def sets(self, field: str) -> list[PodSet]:
        """Convert to the rule's type."""
        tried = [*self.last_tried, *({} for _ in self.pod_sets)]
        return [one.pod_set(dict(tried[at]), f"{field}.pod_sets[{at}]") for at, one in enumerate(self.pod_sets)]


_TRIES_NEXT = Annotated[bool, By(lambda what, _: what == "TryNextFlavor", Literal["MayStopSearch", "TryNextFlavor"])]
_BORROWS_LEAST = Annotated[
    bool,
    By(
        lambda preference, _: preference == "PreemptionOverBorrowing",
        Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"],
    ),
]
GivenFungibility = Annotated[
    Fungibility,
    Form(next_when_borrowing=_TRIES_NEXT, next_when_preempting=_TRIES_NEXT, borrow_least=Nullable[_BORROWS_LEAST]),
]


class GivenAssigningQueue(GivenPreemptingQueue, frozen=True, kw_only=True):
    """A ClusterQueue with all inputs of the flavor assignment."""

    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    fungibility: Nullable[GivenFungibility] = Fungibility()

    def queue(self, tree: QuotaTree, field: str) -> ClusterQueue:
        """Convert to the rule's type."""
        groups = tuple(
            Group(
                frozenset(resource_of(key, f"{field}.resource_groups[{at}].resources") for key in group.resources),
                tuple(one.name for one in group.flavors),
            )
            for at, group in enumerate(self.resource_groups)
        )
        return ClusterQueue(tree.queues[self.name], groups, self.fungibility, self.preemption, self.queueing_strategy)


class AssignInput(HolderInput, frozen=True, kw_only=True):
    """A cluster with all inputs of the flavor assignment."""

    fair_sharing: bool = False
    preemption_strategies: Strategies = STRATEGIES
    flavors: Nullable[list[GivenNodeFlavor]] = []
    cluster_queues: list[GivenAssigningQueue]  # type: ignore[assignment]

    def settings(self) -> Settings:
        """Convert to the rule's type."""
        unique((one.name for one in self.flavors), "input.flavors[{}].name")
        flavors = {one.name: one.flavor for one in self.flavors}
        return Settings(flavors, self.fair_sharing, self.preemption_strategies, corrected=self.corrected)

    def queues(self, tree: QuotaTree) -> list[ClusterQueue]:
        """Convert to the rule's type."""
        return [one.queue(tree, f"input.cluster_queues[{at}]") for at, one in enumerate(self.cluster_queues)]


class QueueAssignInput(AssignInput, frozen=True, kw_only=True):
    """A cluster, and a workload without flavors."""

    workload: GivenPendingWorkload


def calc_queue_assign(given: QueueAssignInput) -> Calculated:
    """Assign flavors to a workload, and select the workloads that it would preempt."""
    tree, settings = given.tree(), given.settings()
    holders = given.holders(tree)
    node = known(tree.queues, given.workload.cluster_queue, "input.workload.cluster_queue")
    queue = next(one for one in given.queues(tree) if one.node is node)
    cluster = Cluster(
        queue=node,
        groups=queue.groups,
        flavors=settings.flavors,
        fungibility=queue.fungibility,
        policies=queue.policies,
        holders=[one for _, one in holders],
        usage=given.usage(tree),
        fair_sharing=settings.fair_sharing,
        strategies=settings.strategies,
        now_s=given.now_seconds,
        corrected=settings.corrected,
    )
    done = assign(given.workload.queued(), given.workload.sets("input.workload"), cluster)
    terms: Terms = {"borrowing_height": done.height, "target_count": len(done.targets)}
    terms["targets_saved_count"] = done.targets_saved_count
    return Calculated(
        output=shown(done, {one.queued.uid: name for name, one in holders}),
        because=[Because(of="mode", bound=done.mode, terms=terms)],
    )


def shown(done: Assignment, names: Mapping[str, str]) -> dict[str, object]:
    """Return an assignment in the cases' format. ``names``: the workloads with quota, by uid."""
    return {
        "mode": done.mode,
        "borrowing_height": done.height,
        "pod_sets": [_shown(one) for one in done.pod_sets],
        "usage": {written(of): amount for of, amount in done.usage().items()},
        "pending_flavors": done.pending_flavors,
        "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in done.targets],
    }


def _shown(one: PodSetAssignment) -> dict[str, object]:
    flavors = {
        key_of(resource): {
            "flavor": each.flavor,
            "mode": "Fit" if each.rated.mode == FIT else "Preempt",
            "tried_index": each.tried_index,
        }
        for resource, each in one.flavors.items()
    }
    return {"name": one.name, "count": one.pods, "flavors": flavors}
