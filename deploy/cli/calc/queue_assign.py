"""Cases of the rules of preemption and of flavor assignment."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, unique, unique_ids
from slacktide.deploy.cli.calc.forms import By, Flat, Form, Given, Nullable, Seconds, Whole
from slacktide.deploy.cli.calc.jobs import GivenTolerations, Pods
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
from slacktide.streams.decisions.queue.assign import FIT, Assignment, Cluster, Fungibility, Group, PodSet, assign
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds, Taint
from slacktide.streams.decisions.queue.preempt import Holder, Policy, Preemption, Preemptor, candidates, targets
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy, fair_targets
from slacktide.streams.decisions.queue.queue_order import QueueingStrategy
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaTree, plus
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Settings


class _BorrowWithinCohort(Given, frozen=True, kw_only=True):
    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Whole | None = None


class _Preemption(Given, frozen=True, kw_only=True):
    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: Nullable[_BorrowWithinCohort] = _BorrowWithinCohort()

    def preemption(self, _: str) -> Preemption:
        borrow = self.borrow_within_cohort
        return Preemption(
            self.within_cluster_queue,
            self.reclaim_within_cohort,
            borrow_within_cohort=borrow.policy != "Never",
            priority_max=borrow.max_priority_threshold,
        )


class _PreemptingQueue(GivenClusterQueue, frozen=True, kw_only=True):
    preemption: Nullable[Annotated[Preemption, By(_Preemption.preemption, _Preemption)]] = Preemption()


class GivenHolder(GivenAdmitted, frozen=True, kw_only=True):
    """A workload that holds quota, and since when."""

    quota_reserved_seconds: Seconds | None = None


class _Preemptor(GivenWorkload, frozen=True, kw_only=True):
    cluster_queue: str


class _Need(Given, frozen=True, kw_only=True):
    flavor: str
    resource: GivenResource
    amount: QueueAmount = 0
    mode: Literal["Preempt", "Fit"] = "Preempt"


class _HolderInput(ClusterInput, frozen=True, kw_only=True):
    now_seconds: Seconds = 0
    corrected: bool = False
    """Correct known errors of the reference."""
    cluster_queues: list[_PreemptingQueue]  # type: ignore[assignment]
    admitted: Nullable[list[GivenHolder]] = []  # type: ignore[assignment]

    def holders(self, tree: QuotaTree) -> list[tuple[str, Holder]]:
        """Return each workload that holds quota, with its name."""
        unique((one.name for one in self.admitted), "input.admitted[{}].name")
        unique_ids([one.queued().uid for one in self.admitted], "input.admitted")
        found = []
        for at, one in enumerate(self.admitted):
            usage: dict[FlavorResource, int] = {}
            pod_sets = one.used(f"input.admitted[{at}]")
            for of, amount in (each for pod_set in pod_sets for each in pod_set.amounts.items()):
                usage[of] = plus(usage.get(of, 0), amount)
            assigned = frozenset(of for pod_set in pod_sets for of in pod_set.flavors)
            queue = known(tree.queues, one.cluster_queue, f"input.admitted[{at}].cluster_queue")
            found.append((one.name, Holder(one.queued(), queue, assigned, usage, one.quota_reserved_seconds)))
        return found


class _PreemptInput(_HolderInput, frozen=True, kw_only=True):
    workload: _Preemptor
    needs: list[_Need]

    def preemptor(self, tree: QuotaTree) -> tuple[Preemptor, Preemption]:
        """Return the workload, and the policies of its ClusterQueue."""
        node = known(tree.queues, self.workload.cluster_queue, "input.workload.cluster_queue")
        request: dict[FlavorResource, int] = {}
        needed = set()
        for one in self.needs:
            of = FlavorResource(one.flavor, one.resource)
            if one.amount:
                request[of] = plus(request.get(of, 0), one.amount)
            if one.mode == "Preempt":
                needed.add(of)
        policies = next(one for one in self.cluster_queues if one.name == self.workload.cluster_queue).preemption
        return Preemptor(
            self.workload.queued(), node, request, frozenset(needed), self.now_seconds, corrected=self.corrected
        ), policies


def calc_queue_preempt(given: _PreemptInput) -> Calculated:
    """Select the workloads to preempt, without fair sharing."""
    tree = given.tree()
    usage, (preemptor, policies) = given.usage(tree), given.preemptor(tree)
    holders = given.holders(tree)
    names = {one.queued.uid: name for name, one in holders}
    tried = candidates(preemptor, policies, [one for _, one in holders], usage)
    chosen = targets(preemptor, policies, tried, usage)
    terms: Terms = {"candidate_count": len(tried), "target_count": len(chosen)}
    return Calculated(
        output={
            "candidates_in_order": [{"name": names[one.holder.queued.uid], "kind": one.kind} for one in tried],
            "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in chosen],
        },
        because=[Because(of="targets", bound="found" if chosen else "none", terms=terms)],
    )


Strategies = Nullable[Annotated[Sequence[Strategy], msgspec.Meta(min_length=1, max_length=2)]]


class _QueuePreemptFairInput(_PreemptInput, frozen=True, kw_only=True):
    preemption_strategies: Strategies = STRATEGIES


def calc_queue_preempt_fair(given: _QueuePreemptFairInput) -> Calculated:
    """Select the workloads to preempt, with fair sharing."""
    tree = given.tree()
    usage, (preemptor, policies) = given.usage(tree), given.preemptor(tree)
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


class _NodeFlavor(Given, frozen=True, kw_only=True):
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


class GivenPendingWorkload(_Preemptor, frozen=True, kw_only=True):
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


class _AssigningQueue(_PreemptingQueue, frozen=True, kw_only=True):
    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    fungibility: Nullable[GivenFungibility] = Fungibility()

    def queue(self, tree: QuotaTree, field: str) -> ClusterQueue:
        groups = tuple(
            Group(
                frozenset(resource_of(key, f"{field}[{at}].resources") for key in one.resources),
                tuple(flavor.name for flavor in one.flavors),
            )
            for at, one in enumerate(self.resource_groups)
        )
        return ClusterQueue(tree.queues[self.name], groups, self.fungibility, self.preemption, self.queueing_strategy)


class AssignInput(_HolderInput, frozen=True, kw_only=True):
    """A cluster with all inputs of the flavor assignment."""

    fair_sharing: bool = False
    preemption_strategies: Strategies = STRATEGIES
    flavors: Nullable[list[_NodeFlavor]] = []
    cluster_queues: list[_AssigningQueue]  # type: ignore[assignment]

    def settings(self) -> Settings:
        """Convert to the rule's type."""
        unique((one.name for one in self.flavors), "input.flavors[{}].name")
        flavors = {one.name: one.flavor for one in self.flavors}
        return Settings(flavors, self.fair_sharing, self.preemption_strategies, corrected=self.corrected)

    def queues(self, tree: QuotaTree) -> list[ClusterQueue]:
        """Convert to the rule's type."""
        return [
            one.queue(tree, f"input.cluster_queues[{at}].resource_groups") for at, one in enumerate(self.cluster_queues)
        ]


class _QueueAssignInput(AssignInput, frozen=True, kw_only=True):
    workload: GivenPendingWorkload


def calc_queue_assign(given: _QueueAssignInput) -> Calculated:
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
        fair_sharing=given.fair_sharing,
        strategies=given.preemption_strategies,
        now_s=given.now_seconds,
        corrected=given.corrected,
    )
    done = assign(given.workload.queued(), given.workload.sets("input.workload"), cluster)
    counts: Terms = {"target_count": len(done.targets), "targets_saved_count": done.targets_saved_count}
    return Calculated(
        output=shown(done, {one.queued.uid: name for name, one in holders}),
        because=[Because(of="mode", bound=done.mode, terms={"borrowing_height": done.height, **counts})],
    )


def shown(done: Assignment, names: Mapping[str, str]) -> dict[str, object]:
    """Return an assignment in the cases' format. ``names``: the workloads with quota, by uid."""
    return {
        "mode": done.mode,
        "borrowing_height": done.height,
        "pod_sets": [
            {
                "name": one.name,
                "count": one.pods,
                "flavors": {
                    key_of(resource): {
                        "flavor": each.flavor,
                        "mode": "Fit" if each.rated.mode == FIT else "Preempt",
                        "tried_index": each.tried_index,
                    }
                    for resource, each in one.flavors.items()
                },
            }
            for one in done.pod_sets
        ],
        "usage": {written(of): amount for of, amount in done.usage().items()},
        "pending_flavors": done.pending_flavors,
        "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in done.targets],
    }
