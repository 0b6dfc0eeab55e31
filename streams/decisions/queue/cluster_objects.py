"""Converts Kubernetes objects to the inputs of queue rules: quotas, admitted workloads, pending workloads.

A Workload holds quota, is pending, or is finished. A Job with a queue name but without a Workload has yet to arrive.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from slacktide.schemas.errors import CaseError
from slacktide.schemas.policy.selector import Selector, matches
from slacktide.schemas.queue import OfferedObject, OfferedSpec
from slacktide.schemas.queue_objects import (
    ClusterQueueObject,
    CohortObject,
    JobObject,
    KindObject,
    LocalQueueObject,
    Metadata,
    NamespaceObject,
    PriorityClassObject,
    QueueObject,
    ResourceFlavorObject,
    ResourceQuota,
    WorkloadObject,
    WorkloadPodSet,
    WorkloadPriorityClassObject,
    WorkloadSpec,
)
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.queue.assign import Fungibility, Group
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, Taint, offered_nominal, quota_percent
from slacktide.streams.decisions.queue.job import (
    PRIORITY_CLASS,
    QUEUE_NAME,
    JobProgress,
    PriorityClass,
    job_priority,
    min_count,
)
from slacktide.streams.decisions.queue.preempt import Holder, Preemption
from slacktide.streams.decisions.queue.queue_order import CHECK, Queued
from slacktide.streams.decisions.queue.quota_tree import (
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaTree,
    cohort_on_cycle,
    quota_tree,
)
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Workload
from slacktide.streams.decisions.queue.simulation import Arrival
from slacktide.streams.decisions.queue.workload_objects import (
    Wanted,
    admitted_sets,
    booked,
    checks_of,
    condition_of,
    is_true,
    limit_of,
    namespace_of,
    quantity_of,
    queued_of,
    run_seconds,
    sub_priority_of,
    tolerations_of,
    uid_of,
    wanted,
)

NAMESPACE_NAME = "kubernetes.io/metadata.name"
T = TypeVar("T", bound=QueueObject)


class Stopped(NamedTuple):
    """Whether a queue admits no workload."""

    reason: str = ""
    """From ``STOPPED``, or of an admission check that all its workloads need; "": it may admit."""
    drains: bool = False
    """Workloads with quota are evicted."""


class QueueCluster(NamedTuple):
    """The inputs of queue decisions."""

    queues: list[ClusterQueue]
    flavors: Mapping[str, NodeFlavor]
    holders: list[Holder]
    admitted: list[Workload]
    """Workloads that hold quota, as pending after an eviction."""
    waiting: list[Workload]
    arriving: list[Arrival]
    run_s: Mapping[str, int]
    names: Mapping[str, str]
    latest_s: int
    notes: list[str]
    sizes: Mapping[str, list[tuple[int, int]]] = {}
    """Known node sizes by flavor: CPU in millicores and memory in bytes."""
    drained: Mapping[str, str] = {}
    """Reasons of workloads that hold quota of a queue that drains, by uid."""


def queue_cluster(objects: Sequence[QueueObject]) -> QueueCluster:
    """Convert the objects.

    Raises CaseError with the object's name if an amount or time is invalid, or a Cohort is its own ancestor.
    """
    return QueueObjects(objects).built()


class QueueObjects:
    """Resolves references; raises CaseError if an amount or selector is invalid, or a Cohort is its own ancestor."""

    def __init__(self, objects: Sequence[QueueObject]) -> None:
        self._objects = objects
        self._local = {(namespace_of(one), one.metadata.name): one for one in self._all(LocalQueueObject)}
        self._namespaces = {one.metadata.name: one.metadata.labels or {} for one in self._all(NamespaceObject)}
        self._specs = {one.metadata.name: one for one in self._all(ClusterQueueObject)}
        self._checks = {name: checks_of(one.spec) for name, one in self._specs.items()}
        self._selectors = {name: _namespace_selector(one) for name, one in self._specs.items()}
        offered = {one.metadata.name: one.spec for one in self._all(OfferedObject)}
        cohorts = [_node(one, offered) for one in self._all(CohortObject)]
        if (name := cohort_on_cycle(cohorts)) is not None:
            raise CaseError(f"Cohort {name}", "it is its own ancestor; accepted: a parent that is not below it")
        self._tree = quota_tree([_node(one, offered) for one in self._specs.values()], cohorts)
        self._names: dict[str, str] = {}
        self._run_s: dict[str, int] = {}
        self._times = [0]
        self._notes: list[str] = []

    def built(self) -> QueueCluster:
        """Return the inputs of queue decisions."""
        workloads = [each for each in self._all(WorkloadObject) if not is_true(each.status.conditions, "Finished")]
        owned = {owner.uid for one in self._all(WorkloadObject) for owner in one.metadata.owner_references or ()}
        holders = [held for each in workloads if (held := self._holder(each)) is not None]
        admitted = [each for each in workloads if each.status.admission is not None]
        waits = [each for each in workloads if each.status.admission is None]
        used = offered_flavors(self._objects)
        arriving: list[JobObject | KindObject] = [*self._all(JobObject), *self._all(KindObject)]
        jobs = [one for one in arriving if uid_of(one) not in owned]
        drained = {}
        for each in workloads:
            if (admission := each.status.admission) is not None:
                stopped = self.stopped(admission.cluster_queue, namespace_of(each), each.spec.queue_name)
                if stopped.drains:
                    drained[uid_of(each)] = stopped.reason
        return QueueCluster(
            queues=[_cluster_queue(one, self._tree) for one in self._specs.values()],
            flavors={
                one.metadata.name: NodeFlavor(
                    one.spec.node_labels or {},
                    tuple(Taint(each.key, each.value, each.effect) for each in one.spec.node_taints or ()),
                    tolerations_of(one.spec.tolerations),
                )
                for one in self._all(ResourceFlavorObject)
            },
            holders=holders,
            admitted=[one for each in admitted if (one := self._waiting(each)) is not None],
            waiting=[one for each in waits if (one := self._waiting(each)) is not None],
            arriving=[job for each in jobs if (job := self._arrival(each)) is not None],
            run_s=self._run_s,
            names=self._names,
            latest_s=max(self._times),
            notes=self._notes,
            drained=drained,
            sizes={
                one.metadata.name: [(each.cpu_milli, each.memory_bytes) for each in one.spec.nodes]
                for one in self._all(OfferedObject)
                if one.metadata.name in used and one.spec.nodes
            },
        )

    def _all(self, kind: type[T]) -> Iterator[T]:
        return (one for one in self._objects if isinstance(one, kind))

    def _holder(self, one: WorkloadObject) -> Holder | None:
        admission, name = one.status.admission, self._named(one)
        reserved = condition_of(one.status.conditions, "QuotaReserved")
        if admission is None or reserved is None or not reserved.status:
            return None
        if admission.cluster_queue not in self._tree.queues:
            self._notes.append(f"Workload {name}: left out: ClusterQueue {admission.cluster_queue} is not in the files")
            return None
        pods = {each.name: each.count for each in one.spec.pod_sets}
        done = {each.name: each.count for each in one.status.reclaimable_pods or ()}
        usage, assigned = booked(admitted_sets(admission, pods, f"Workload {name}"), pods, done)
        self._times.append(reserved.at_s)
        queue = self._tree.queues[admission.cluster_queue]
        return Holder(queued_of(one, one.spec.priority, name), queue, assigned, usage, reserved.at_s)

    def _waiting(self, one: WorkloadObject) -> Workload | None:
        name = self._named(one)
        if not one.spec.active:
            self._notes.append(f"Workload {name}: left out: it is not active")
            return None
        found, queue = wanted(one), self._queue_of(f"Workload {name}", namespace_of(one), one.spec.queue_name)
        self._known(one, found.pending.queued)
        return None if queue is None else self._placed(found, queue)

    def _placed(self, one: Wanted, queue: str) -> Workload:
        stopped = self.stopped(queue, one.namespace, one.local)
        return one.placed(queue, matches=self._matches(queue, one.namespace), stopped=stopped.reason)

    def _arrival(self, one: JobObject | KindObject) -> Arrival | None:
        made = self.workload_of(one)
        if made is None:
            return None
        self._known(one, queued_of(one, made.spec.priority, self._named(one)))
        what = f"{one.kind if isinstance(one, KindObject) else 'Job'} {self._named(one)}"
        found, queue = wanted(made), self._queue_of(what, namespace_of(one), made.spec.queue_name)
        if queue is None:
            return None
        return Arrival(found.pending.queued.created_s, self._placed(found, queue))

    def workload_of(self, one: JobObject | KindObject) -> WorkloadObject | None:
        """Return the Workload of an object, with its uid. If it is not queued, return None and note the reason."""
        name = self._named(one)
        if isinstance(one, KindObject):
            if one.left_out:
                self._notes.append(f"{one.kind} {name}: left out: {one.left_out}")
                return None
            metadata = msgspec.structs.replace(one.metadata, uid=uid_of(one))
            return self.workload_with(one.kind, metadata, one.pod_sets, one.own_class)
        count = JobProgress(one.spec.parallelism, one.spec.completions).spec_count
        least = min_count(one.metadata.annotations or {})
        pod_set = WorkloadPodSet(count=count, min_count=least, template=one.spec.template)
        return self.workload_with("Job", msgspec.structs.replace(one.metadata, uid=uid_of(one)), [pod_set])

    def workload_with(
        self, kind: str, metadata: Metadata, pod_sets: list[WorkloadPodSet], own_class: str = ""
    ) -> WorkloadObject | None:
        """Return the Workload of an object of any kind. If it is not queued, return None and note the reason.

        ``own_class``: its priority class, beside those of pod templates.
        """
        labels, name = metadata.labels or {}, f"{metadata.namespace or 'default'}/{metadata.name}"
        if QUEUE_NAME not in labels:
            self._notes.append(f"{kind} {name}: left out: it has no label {QUEUE_NAME}")
            return None
        priority = job_priority(
            labels.get(PRIORITY_CLASS, ""),
            own_class or next((own for one in pod_sets if (own := one.template.spec.priority_class_name)), ""),
            {each.metadata.name: each.value for each in self._all(WorkloadPriorityClassObject)},
            [
                PriorityClass(each.metadata.name, each.value, each.global_default)
                for each in self._all(PriorityClassObject)
            ],
        )
        if priority is None:
            self._notes.append(f"{kind} {name}: left out: its priority class is not in the files")
            return None
        spec = WorkloadSpec(queue_name=labels[QUEUE_NAME], priority=priority.value, pod_sets=pod_sets)
        return WorkloadObject(metadata=metadata, spec=spec)

    @property
    def notes(self) -> list[str]:
        """Return the skipped objects, with the reason."""
        return self._notes

    def _known(self, one: WorkloadObject | JobObject | KindObject, queued: Queued) -> None:
        if isinstance(one, WorkloadObject):
            self._times += [queued.created_s, *((queued.evicted.at_s,) if queued.evicted else ())]
        sub_priority_of(one, self._named(one), self._notes)
        if (run_s := run_seconds(one, self._named(one), self._notes)) is not None:
            self._run_s[uid_of(one)] = run_s

    def _named(self, one: WorkloadObject | JobObject | KindObject) -> str:
        name = f"{namespace_of(one)}/{one.metadata.name}"
        self._names[uid_of(one)] = name
        return name

    def place(self, namespace: str, local: str) -> tuple[str | None, bool, str]:
        """Return the ClusterQueue of a LocalQueue, whether it accepts the namespace, and what is missing."""
        found = self._local.get((namespace, local))
        if found is None:
            return None, False, f"LocalQueue {namespace}/{local}"
        if found.spec.cluster_queue not in self._specs:
            return None, False, f"ClusterQueue {found.spec.cluster_queue}"
        return found.spec.cluster_queue, self._matches(found.spec.cluster_queue, namespace), ""

    def stopped(self, queue: str, namespace: str = "", local: str = "") -> Stopped:
        """Return whether a ClusterQueue or LocalQueue is stopped; one that drains goes first."""
        specs = (
            ("ClusterQueueStopped", self._specs.get(queue)),
            ("LocalQueueStopped", self._local.get((namespace, local))),
        )
        found = [
            Stopped(reason, one.spec.stop_policy == "HoldAndDrain")
            for reason, one in specs
            if one is not None and one.spec.stop_policy not in {None, "None"}
        ]
        found += [Stopped(f"{CHECK}{one.name}") for one in self._checks.get(queue, ()) if not one.flavors]
        return max(found, key=lambda one: one.drains, default=Stopped())

    def _queue_of(self, what: str, namespace: str, local: str) -> str | None:
        queue, _, missing = self.place(namespace, local)
        if queue is None:
            self._notes.append(f"{what}: left out: {missing} is not in the files")
        return queue

    def _matches(self, queue: str, namespace: str) -> bool:
        """Return whether the ClusterQueue accepts the namespace; without a selector it accepts none."""
        selector = self._selectors[queue]
        labels = {NAMESPACE_NAME: namespace} | self._namespaces.get(namespace, {})
        return selector is not None and matches(selector, labels)


def _namespace_selector(one: ClusterQueueObject) -> Selector | None:
    selector = one.spec.namespace_selector
    if selector is None:
        return None
    given = selector.match_expressions or ()
    expressions = [Expression(key=each.key, operator=each.operator, values=tuple(each.values or ())) for each in given]
    read = selector_of(selector.match_labels or {}, expressions)
    if isinstance(read, InvalidSelector):
        raise CaseError(f"ClusterQueue {one.metadata.name}: spec.namespaceSelector", read.why)
    return read


def sharing_queues(objects: Iterable[QueueObject]) -> frozenset[str]:
    """Return ClusterQueues whose quotas are a share of batch allocatable."""
    return frozenset(
        one.metadata.name for one in objects if isinstance(one, ClusterQueueObject) and _share_percent(one) is not None
    )


def offered_flavors(objects: Iterable[QueueObject]) -> set[str]:
    """Return flavors with a quota that is a share of batch allocatable."""
    return {
        flavor.name
        for one in objects
        if isinstance(one, ClusterQueueObject | CohortObject) and _share_percent(one) is not None
        for group in one.spec.resource_groups
        for flavor in group.flavors
    }


def _share_percent(one: ClusterQueueObject | CohortObject) -> int | None:
    return quota_percent(one.metadata.annotations or {}, one.metadata.name)


def _node(one: ClusterQueueObject | CohortObject, offered: Mapping[str, OfferedSpec]) -> NodeSpec:
    if isinstance(one, ClusterQueueObject):
        of, parent = f"ClusterQueue {one.metadata.name}", one.spec.cohort_name or one.spec.cohort
    else:
        of, parent = f"Cohort {one.metadata.name}", one.spec.parent_name or one.spec.parent
    percent = quota_percent(one.metadata.annotations or {}, of)

    def nominal(flavor: str, each: ResourceQuota) -> int:
        own = limit_of(each.name, each.nominal_quota, of) or 0
        share = None if percent is None else offered_nominal(each.name, offered.get(flavor), percent)
        return own if share is None else share

    quotas = {
        FlavorResource(flavor.name, each.name): Quota(
            nominal=nominal(flavor.name, each),
            borrowing_limit=limit_of(each.name, each.borrowing_limit, of),
            lending_limit=limit_of(each.name, each.lending_limit, of),
        )
        for group in one.spec.resource_groups
        for flavor in group.flavors
        for each in flavor.resources
    }
    sharing = one.spec.fair_sharing
    weight = 1.0 if sharing is None else float(quantity_of(sharing.weight, f"{of}: spec.fairSharing.weight"))
    return NodeSpec(one.metadata.name, parent or None, quotas, weight)


def _cluster_queue(one: ClusterQueueObject, tree: QuotaTree) -> ClusterQueue:
    spec = one.spec
    preemption, fungibility = spec.preemption, spec.flavor_fungibility
    borrow = preemption.borrow_within_cohort if preemption else None
    return ClusterQueue(
        node=tree.queues[one.metadata.name],
        groups=tuple(
            Group(frozenset(each.covered_resources), tuple(flavor.name for flavor in each.flavors))
            for each in spec.resource_groups
        ),
        fungibility=Fungibility()
        if fungibility is None
        else Fungibility(
            fungibility.when_can_borrow == "TryNextFlavor",
            fungibility.when_can_preempt == "TryNextFlavor",
            fungibility.preference == "PreemptionOverBorrowing",
        ),
        policies=Preemption()
        if preemption is None
        else Preemption(
            preemption.within_cluster_queue,
            preemption.reclaim_within_cohort,
            borrow is not None and borrow.policy != "Never",
            borrow.max_priority_threshold if borrow else None,
        ),
        strategy=spec.queueing_strategy,
        checks=checks_of(spec),
    )
