"""``slacktide calc queue_assign``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.queue_case import QueueAmount, key_of, known, resource_of, unique, written
from slacktide.deploy.cli.calc.queue_job import Pods
from slacktide.deploy.cli.calc.queue_job_start import GivenFlavor, GivenToleration, tolerations_of
from slacktide.deploy.cli.calc.queue_preempt_case import (
    GivenNeed,
    GivenPreemptingQueue,
    GivenPreemptor,
    PreemptWorld,
)
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.assign import FIT, Cluster, Fungibility, Group, PodSet, PodSetAssignment, assign
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds, Taint
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy

Tried = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
"""Index of the flavor that was tried last; -1: all of them were."""
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
        """As the core takes it."""
        taints = tuple(Taint(one.key, one.value, one.effect) for one in self.node_taints or ())
        return NodeFlavor(self.node_labels or {}, taints, tolerations_of(self.tolerations))


class GivenExpression(Given, frozen=True, kw_only=True):
    """What one label of a node must be."""

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
        """As the core takes it."""
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
    """A workload that looks for flavors."""

    pod_sets: list[GivenPodSet] = []
    last_tried: list[dict[str, Tried]] | None = None

    def sets(self) -> list[PodSet]:
        """As the core takes them."""
        tried = [*(self.last_tried or ()), *({} for _ in self.pod_sets)]
        return [one.pod_set(dict(tried[at]), f"input.workload.pod_sets[{at}]") for at, one in enumerate(self.pod_sets)]


class GivenFungibility(Given, frozen=True, kw_only=True):
    """Whether the next flavor is tried."""

    when_can_borrow: Next = "MayStopSearch"
    when_can_preempt: Next = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None

    def fungibility(self) -> Fungibility:
        """As the core takes it."""
        return Fungibility(
            self.when_can_borrow == "TryNextFlavor",
            self.when_can_preempt == "TryNextFlavor",
            self.preference == "PreemptionOverBorrowing",
        )


class GivenAssigningQueue(GivenPreemptingQueue, frozen=True, kw_only=True):
    """A ClusterQueue with all that flavors depend on."""

    fungibility: GivenFungibility | None = None


class Input(PreemptWorld, frozen=True, kw_only=True):
    """A cluster, and a workload that looks for flavors."""

    fair_sharing: bool = False
    preemption_strategies: Annotated[list[Strategy], msgspec.Meta(min_length=1, max_length=2)] | None = None
    flavors: list[GivenNodeFlavor] | None = None
    cluster_queues: list[GivenAssigningQueue]  # type: ignore[assignment]
    workload: GivenPendingWorkload
    needs: list[GivenNeed] = []


def calculate(given: Input) -> Calculated:
    """Which flavors a workload gets, and whom it would preempt."""
    tree = given.tree()
    holders = given.holders(tree)
    unique((one.name for one in given.flavors or ()), "input.flavors")
    node = known(tree.queues, given.workload.cluster_queue, "input.workload.cluster_queue")
    queue = next(one for one in given.cluster_queues if one.name == node.name)
    groups = [
        Group(
            frozenset(resource_of(key, f"{field}.resources") for key in group.resources),
            tuple(one.name for one in group.flavors),
        )
        for field, group in queue.groups("input.cluster_queues")
    ]
    cluster = Cluster(
        queue=node,
        groups=tuple(groups),
        flavors={one.name: one.node_flavor() for one in given.flavors or ()},
        fungibility=(queue.fungibility or GivenFungibility()).fungibility(),
        policies=given.policies(),
        holders=[one for _, one in holders],
        usage=given.usage(tree),
        fair_sharing=given.fair_sharing,
        strategies=given.preemption_strategies or STRATEGIES,
        now_s=given.now_seconds,
    )
    done = assign(given.workload.queued(), given.workload.sets(), cluster)
    names = {one.queued.uid: name for name, one in holders}
    output: dict[str, object] = {
        "mode": done.mode,
        "borrowing_height": done.height,
        "pod_sets": [_shown(one) for one in done.pod_sets],
        "usage": {written(of): amount for of, amount in done.usage().items()},
        "pending_flavors": done.pending_flavors,
        "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in done.targets],
    }
    terms: Terms = {"borrowing_height": done.height, "target_count": len(done.targets)}
    return Calculated(output=output, because=[Because(of="mode", bound=done.mode, terms=terms)])


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
