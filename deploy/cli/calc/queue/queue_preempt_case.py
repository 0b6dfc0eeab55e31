"""Defines types shared by the cases of preemption."""

from __future__ import annotations

from typing import Literal

from slacktide.deploy.cli.calc.case import Given, Seconds, Whole
from slacktide.deploy.cli.calc.queue.queue_case import (
    ClusterInput,
    GivenAdmitted,
    GivenClusterQueue,
    GivenWorkload,
    QueueAmount,
    known,
    resource_of,
    unique,
)
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.queue.preempt import Holder, Policy, Preemption, Preemptor
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaTree, plus


class GivenBorrowWithinCohort(Given, frozen=True, kw_only=True):
    """Whether workloads may preempt while their ClusterQueue borrows, and up to which priority."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Whole | None = None


class GivenPreemption(Given, frozen=True, kw_only=True):
    """A ClusterQueue's policies."""

    within_cluster_queue: Policy = "Never"
    reclaim_within_cohort: Policy = "Never"
    borrow_within_cohort: GivenBorrowWithinCohort | None = None

    def preemption(self) -> Preemption:
        """Convert to the rule's type."""
        borrow = self.borrow_within_cohort or GivenBorrowWithinCohort()
        return Preemption(
            within_cluster_queue=self.within_cluster_queue,
            reclaim_within_cohort=self.reclaim_within_cohort,
            borrow_within_cohort=borrow.policy != "Never",
            priority_max=borrow.max_priority_threshold,
        )


class GivenPreemptingQueue(GivenClusterQueue, frozen=True, kw_only=True):
    """A ClusterQueue with its policies."""

    preemption: GivenPreemption | None = None


class GivenHolder(GivenAdmitted, frozen=True, kw_only=True):
    """A workload that holds quota, and since when."""

    quota_reserved_seconds: Seconds | None = None


class GivenPreemptor(GivenWorkload, frozen=True, kw_only=True):
    """A workload that needs quota."""

    cluster_queue: str


class GivenNeed(Given, frozen=True, kw_only=True):
    """An amount of a flavor's resource, and whether it requires preemption."""

    flavor: str
    resource: str
    amount: QueueAmount = 0
    mode: Literal["Preempt", "Fit"] = "Preempt"


class HolderInput(ClusterInput, frozen=True, kw_only=True):
    """A cluster with the policies of its ClusterQueues."""

    now_seconds: Seconds = 0
    corrected: bool = False
    """Correct known errors of the reference."""
    cluster_queues: list[GivenPreemptingQueue]  # type: ignore[assignment]
    admitted: list[GivenHolder] | None = None  # type: ignore[assignment]

    def holders(self, tree: QuotaTree) -> list[tuple[str, Holder]]:
        """Return each workload that holds quota, with its name."""
        unique((one.name for one in self.admitted or ()), "input.admitted")
        if len({one.queued().uid for one in self.admitted or ()}) < len(self.admitted or ()):
            raise CaseError("input.admitted", "uids are not unique; accepted: each uid once")
        return [(one.name, _holder(one, tree, f"input.admitted[{at}]")) for at, one in enumerate(self.admitted or ())]


class PreemptInput(HolderInput, frozen=True, kw_only=True):
    """A cluster, and a workload that needs quota."""

    workload: GivenPreemptor
    needs: list[GivenNeed]

    def policies(self) -> Preemption:
        """Return the policies of the workload's ClusterQueue; ``preemptor`` checks that it exists."""
        queue = next(one for one in self.cluster_queues if one.name == self.workload.cluster_queue)
        return (queue.preemption or GivenPreemption()).preemption()

    def preemptor(self, tree: QuotaTree) -> Preemptor:
        """Convert to the rule's type."""
        node = known(tree.queues, self.workload.cluster_queue, "input.workload.cluster_queue")
        request: dict[FlavorResource, int] = {}
        needed = set()
        for at, one in enumerate(self.needs):
            of = FlavorResource(one.flavor, resource_of(one.resource, f"input.needs[{at}].resource"))
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
