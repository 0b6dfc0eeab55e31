"""Converts Kubernetes objects to the inputs of queue rules: quotas, admitted workloads, pending workloads.

A Workload holds quota, is pending, or is finished. A Job with a queue name but without a Workload has yet to arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from slacktide.schemas.errors import CaseError, QuantityError
from slacktide.schemas.pod_resources import Container, Needs
from slacktide.schemas.policy.selector import matches
from slacktide.schemas.queue_objects import (
    KINDS,
    AdmissionStatus,
    ClusterQueueObject,
    CohortObject,
    ContainerSpec,
    JobObject,
    LabelSelector,
    LocalQueueObject,
    Metadata,
    NamespaceObject,
    ObjectCondition,
    PodSpec,
    PriorityClassObject,
    Quantities,
    Quantity,
    QueueObject,
    ResourceDemand,
    ResourceFlavorObject,
    ResourceGroup,
    ResourceQuota,
    SoldObject,
    SoldSpec,
    WorkloadObject,
    WorkloadPodSet,
    WorkloadPriorityClassObject,
    WorkloadSpec,
)
from slacktide.schemas.units import quantity
from slacktide.streams.decisions.admission import label_selector
from slacktide.streams.decisions.queue.admitted_usage import AdmittedPodSet, admitted_usage, pod_set_usage
from slacktide.streams.decisions.queue.assign import Fungibility, Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds, Taint
from slacktide.streams.decisions.queue.job import (
    PRIORITY_CLASS,
    QUEUE_NAME,
    Defaults,
    PriorityClass,
    Toleration,
    job_priority,
    min_count,
    pod_request,
    workload_name,
)
from slacktide.streams.decisions.queue.pending_queue import Pending
from slacktide.streams.decisions.queue.pods_ready import JobProgress
from slacktide.streams.decisions.queue.preempt import Holder, Preemption
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.quota_tree import (
    UNLIMITED,
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaTree,
    cohort_on_cycle,
    quota_tree,
)
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Workload
from slacktide.streams.decisions.queue.simulation import Arrival
from slacktide.streams.decisions.queue.sold_quota import quota_percent, sold_nominal

RUN_SECONDS = "slacktide.io/run-seconds"
"""Annotation of a Job or Workload: its run time in a simulation."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
T = TypeVar("T", bound=QueueObject)


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


class Wanted(NamedTuple):
    """A Workload without data of other objects."""

    uid: str
    namespace: str
    name: str
    local: str
    active: bool
    finished: bool
    pending: Pending
    pod_sets: tuple[PodSet, ...]
    done: Mapping[str, int]
    admission: AdmissionStatus | None

    def placed(self, queue: str, *, matches: bool) -> Workload:
        """Return the pending workload for a ClusterQueue; ``matches``: its namespace selector matches."""
        return Workload(self.pending._replace(namespace_matches=matches), queue, self.pod_sets)


def wanted(one: WorkloadObject) -> Wanted:
    """Parse the fields that queue decisions use; raise CaseError if an amount or time is invalid."""
    name = f"{_namespace(one)}/{one.metadata.name}"
    requeue, reserved = one.status.requeue_state, _condition(one.status.conditions, "QuotaReserved")
    try:
        shape, pod_sets = _pod_sets(msgspec.json.encode(one.spec.pod_sets))
    except CaseError as exc:
        raise CaseError(f"Workload {name}{exc.field}", exc.why) from exc
    pending = Pending(
        queued=_queued(one, one.spec.priority, name),
        generation=one.metadata.generation,
        requeued=_condition(one.status.conditions, "Requeued"),
        requeue_at_s=_seconds(requeue.requeue_at, name) if requeue and requeue.requeue_at else None,
        pod_sets=shape,
    )
    return Wanted(
        uid=_uid(one),
        namespace=_namespace(one),
        name=one.metadata.name,
        local=one.spec.queue_name,
        active=one.spec.active,
        finished=_is(one.status.conditions, "Finished"),
        pending=pending,
        pod_sets=pod_sets,
        done={each.name: each.count for each in one.status.reclaimable_pods or ()},
        admission=one.status.admission if reserved is not None and reserved.status else None,
    )


def read_objects(items: Iterable[tuple[str, Mapping[str, Any]]]) -> list[QueueObject]:
    """Parse queue objects given with their path; skip other kinds. Raises CaseError with the path if one is invalid."""
    found = []
    for path, item in items:
        kind = KINDS.get(str(item.get("kind")))
        if kind is not None:
            try:
                found.append(msgspec.convert(item, kind, strict=False))
            except msgspec.ValidationError as exc:
                what, _, at = str(exc).partition(" - at `")
                raise CaseError(path + at.strip("`").removeprefix("$"), what) from exc
    return found


def queue_cluster(objects: Sequence[QueueObject]) -> QueueCluster:
    """Convert the objects.

    Raises CaseError with the object's name if an amount or time is invalid, or a Cohort is its own ancestor.
    """
    return QueueObjects(objects).built()


class QueueObjects:
    """Resolves references; raises CaseError if an amount is invalid, or a Cohort is its own ancestor."""

    def __init__(self, objects: Sequence[QueueObject]) -> None:
        self._objects = objects
        self._local = {(_namespace(one), one.metadata.name): one for one in self._all(LocalQueueObject)}
        self._namespaces = {one.metadata.name: one.metadata.labels or {} for one in self._all(NamespaceObject)}
        self._specs = {one.metadata.name: one for one in self._all(ClusterQueueObject)}
        self._tree = self._quotas()
        self._names: dict[str, str] = {}
        self._run_s: dict[str, int] = {}
        self._times = [0]
        self._notes: list[str] = []

    def built(self) -> QueueCluster:
        """Return the inputs of queue decisions."""
        workloads = [each for each in self._all(WorkloadObject) if not _is(each.status.conditions, "Finished")]
        owned = {owner.uid for one in self._all(WorkloadObject) for owner in one.metadata.owner_references or ()}
        holders = [held for each in workloads if (held := self._holder(each)) is not None]
        admitted = [each for each in workloads if each.status.admission is not None]
        waits = [each for each in workloads if each.status.admission is None]
        used = sold_flavors(self._objects)
        jobs = [one for one in self._all(JobObject) if _uid(one) not in owned]
        return QueueCluster(
            queues=[_cluster_queue(one, self._tree) for one in self._specs.values()],
            flavors={one.metadata.name: _flavor(one) for one in self._all(ResourceFlavorObject)},
            holders=holders,
            admitted=[one for each in admitted if (one := self._waiting(each)) is not None],
            waiting=[one for each in waits if (one := self._waiting(each)) is not None],
            arriving=[job for each in jobs if (job := self._arrival(each)) is not None],
            run_s=self._run_s,
            names=self._names,
            latest_s=max(self._times),
            notes=self._notes,
            sizes={
                one.metadata.name: [(each.cpu_milli, each.memory_bytes) for each in one.spec.nodes]
                for one in self._all(SoldObject)
                if one.metadata.name in used and one.spec.nodes
            },
        )

    def _all(self, kind: type[T]) -> Iterator[T]:
        return (one for one in self._objects if isinstance(one, kind))

    def _quotas(self) -> QuotaTree:
        sold = {one.metadata.name: one.spec for one in self._all(SoldObject)}
        cohorts = [
            _node(one, one.spec.parent_name or one.spec.parent, one.spec.resource_groups, sold)
            for one in self._all(CohortObject)
        ]
        if (name := cohort_on_cycle(cohorts)) is not None:
            raise CaseError(f"Cohort {name}", "it is its own ancestor; accepted: a parent that is not below it")
        queues = self._specs.values()
        return quota_tree(
            [_node(one, one.spec.cohort_name or one.spec.cohort, one.spec.resource_groups, sold) for one in queues],
            cohorts,
        )

    def _holder(self, one: WorkloadObject) -> Holder | None:
        admission, name = one.status.admission, self._named(one)
        reserved = _condition(one.status.conditions, "QuotaReserved")
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
        return Holder(_queued(one, one.spec.priority, name), queue, assigned, usage, reserved.at_s)

    def _waiting(self, one: WorkloadObject) -> Workload | None:
        name = self._named(one)
        if not one.spec.active:
            self._notes.append(f"Workload {name}: left out: it is not active")
            return None
        found, queue = wanted(one), self._queue_of(f"Workload {name}", _namespace(one), one.spec.queue_name)
        self._known(one, found.pending.queued)
        return None if queue is None else found.placed(queue, matches=self._matches(queue, _namespace(one)))

    def _arrival(self, one: JobObject) -> Arrival | None:
        made = self.workload_of(one)
        if made is None:
            return None
        self._known(one, _queued(one, made.spec.priority, self._named(one)))
        found, queue = wanted(made), self._queue_of(f"Job {self._named(one)}", _namespace(one), made.spec.queue_name)
        if queue is None:
            return None
        return Arrival(
            found.pending.queued.created_s, found.placed(queue, matches=self._matches(queue, _namespace(one)))
        )

    def workload_of(self, one: JobObject) -> WorkloadObject | None:
        """Return the Workload of a Job, with the Job's uid. If it is not queued, return None and note the reason."""
        self._named(one)
        count = JobProgress(one.spec.parallelism, one.spec.completions).spec_count
        least = min_count(one.metadata.annotations or {})
        pod_set = WorkloadPodSet(count=count, min_count=least, template=one.spec.template)
        return self.workload_with("Job", msgspec.structs.replace(one.metadata, uid=_uid(one)), [pod_set])

    def workload_with(self, kind: str, metadata: Metadata, pod_sets: list[WorkloadPodSet]) -> WorkloadObject | None:
        """Return the Workload of an object of any kind. If it is not queued, return None and note the reason."""
        labels, name = metadata.labels or {}, f"{metadata.namespace or 'default'}/{metadata.name}"
        if QUEUE_NAME not in labels:
            self._notes.append(f"{kind} {name}: left out: it has no label {QUEUE_NAME}")
            return None
        priority = job_priority(
            labels.get(PRIORITY_CLASS, ""),
            next((each.template.spec.priority_class_name for each in pod_sets), ""),
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

    def _known(self, one: WorkloadObject | JobObject, queued: Queued) -> None:
        if isinstance(one, WorkloadObject):
            self._times += [queued.created_s, *((queued.evicted.at_s,) if queued.evicted else ())]
        if (run_s := _run_s(one, self._named(one))) is not None:
            self._run_s[_uid(one)] = run_s

    def _named(self, one: WorkloadObject | JobObject) -> str:
        name = f"{_namespace(one)}/{one.metadata.name}"
        self._names[_uid(one)] = name
        return name

    def place(self, namespace: str, local: str) -> tuple[str | None, bool, str]:
        """Return the ClusterQueue of a LocalQueue, whether it accepts the namespace, and what is missing."""
        found = self._local.get((namespace, local))
        if found is None:
            return None, False, f"LocalQueue {namespace}/{local}"
        if found.spec.cluster_queue not in self._specs:
            return None, False, f"ClusterQueue {found.spec.cluster_queue}"
        return found.spec.cluster_queue, self._matches(found.spec.cluster_queue, namespace), ""

    def _queue_of(self, what: str, namespace: str, local: str) -> str | None:
        queue, _, missing = self.place(namespace, local)
        if queue is None:
            self._notes.append(f"{what}: left out: {missing} is not in the files")
        return queue

    def _matches(self, queue: str | None, namespace: str) -> bool:
        """Return whether the ClusterQueue accepts the namespace; without a selector it accepts none."""
        selector = self._specs[queue].spec.namespace_selector if queue is not None else None
        labels = {NAMESPACE_NAME: namespace} | self._namespaces.get(namespace, {})
        return selector is not None and _selects(selector, labels, f"ClusterQueue {queue}")


def _selects(selector: LabelSelector, labels: Mapping[str, str], of: str) -> bool:
    expressions = [
        label_selector.Expression(key=one.key, operator=one.operator, values=tuple(one.values or ()))
        for one in selector.match_expressions or ()
    ]
    read = label_selector.selector_of(selector.match_labels or {}, expressions)
    if isinstance(read, label_selector.InvalidSelector):
        raise CaseError(f"{of}: spec.namespaceSelector", read.why)
    return matches(read, labels)


def sharing_queues(objects: Iterable[QueueObject]) -> frozenset[str]:
    """Return ClusterQueues whose quotas are a share of batch allocatable."""
    return frozenset(
        one.metadata.name
        for one in objects
        if isinstance(one, ClusterQueueObject)
        and quota_percent(one.metadata.annotations or {}, one.metadata.name) is not None
    )


def sold_flavors(objects: Iterable[QueueObject]) -> set[str]:
    """Return flavors with a quota that is a share of batch allocatable."""
    return {
        flavor.name
        for one in objects
        if isinstance(one, ClusterQueueObject | CohortObject)
        and quota_percent(one.metadata.annotations or {}, one.metadata.name) is not None
        for group in one.spec.resource_groups
        for flavor in group.flavors
    }


def _node(
    one: ClusterQueueObject | CohortObject, parent: str, groups: Iterable[ResourceGroup], sold: Mapping[str, SoldSpec]
) -> NodeSpec:
    kind = "ClusterQueue" if isinstance(one, ClusterQueueObject) else "Cohort"
    of = f"{kind} {one.metadata.name}"
    percent = quota_percent(one.metadata.annotations or {}, of)

    def nominal(flavor: str, each: ResourceQuota) -> int:
        own = _limit(each.name, each.nominal_quota, of) or 0
        share = None if percent is None else sold_nominal(each.name, sold.get(flavor), percent)
        return own if share is None else share

    quotas = {
        FlavorResource(flavor.name, each.name): Quota(
            nominal=nominal(flavor.name, each),
            borrowing_limit=_limit(each.name, each.borrowing_limit, of),
            lending_limit=_limit(each.name, each.lending_limit, of),
        )
        for group in groups
        for flavor in group.flavors
        for each in flavor.resources
    }
    sharing = one.spec.fair_sharing
    weight = 1.0 if sharing is None else float(_read(sharing.weight, f"{of}: spec.fairSharing.weight"))
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
    )


def _flavor(one: ResourceFlavorObject) -> NodeFlavor:
    taints = tuple(Taint(each.key, each.value, each.effect) for each in one.spec.node_taints or ())
    tolerations = tuple(
        Toleration(each.key, each.operator, each.value, each.effect) for each in one.spec.tolerations or ()
    )
    return NodeFlavor(one.spec.node_labels or {}, taints, tolerations)


@lru_cache(maxsize=10_000)
def _pod_sets(encoded: bytes) -> tuple[bytes, tuple[PodSet, ...]]:
    """Decode pod sets, cached by their text: thousands of workloads have equal pod sets."""
    given = msgspec.json.decode(encoded, type=list[WorkloadPodSet])
    return encoded, tuple(_pod_set(each.name, each.count, each.min_count, each.template.spec, "") for each in given)


def _pod_set(name: str, pods: int, least: int | None, spec: PodSpec, of: str) -> PodSet:
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    affinity = tuple(
        tuple(Expression(one.key, one.operator, tuple(one.values or ())) for one in term.match_expressions or ())
        for term in (required.node_selector_terms if required else ())
    )
    tolerations = tuple(Toleration(each.key, each.operator, each.value, each.effect) for each in spec.tolerations or ())
    needs = Needs(
        containers=[_container(one, of) for one in spec.containers],
        inits=[_container(one, of) for one in spec.init_containers or ()],
        overhead=_amounts(spec.overhead, of),
        pod_level=None if spec.resources is None else _asked(spec.resources, of),
    )
    requests = pod_request(needs, Defaults()).requests
    partly = least if least is not None and 0 < least < pods else None
    return PodSet(name, pods, partly, requests, NodeNeeds(spec.node_selector or {}, affinity, tolerations))


def _container(one: ContainerSpec, of: str) -> Container:
    asked = _asked(one.resources or ResourceDemand(), f"{of}: container {one.name}")
    return Container(requests=asked.requests, limits=asked.limits, sidecar=one.restart_policy == "Always")


def _asked(given: ResourceDemand, of: str) -> Container:
    return Container(requests=_amounts(given.requests, of), limits=_amounts(given.limits, of))


class Admitted(NamedTuple):
    """An admitted pod set."""

    name: str
    pods: int
    flavors: Mapping[str, str]
    usage: Mapping[str, int]


def admitted_sets(admission: AdmissionStatus, pods: Mapping[str, int], of: str) -> list[Admitted]:
    """Return the pod sets of an admission of Workload ``of``; ``pods`` are counts for pod sets without one."""
    of = f"{of}: status.admission"
    return [
        Admitted(
            each.name,
            pods.get(each.name, 0) if each.count is None else each.count,
            each.flavors or {},
            {name: _amount(name, text, of) for name, text in (each.resource_usage or {}).items()},
        )
        for each in admission.pod_set_assignments
    ]


def booked(
    sets: Iterable[Admitted], pods: Mapping[str, int], done: Mapping[str, int]
) -> tuple[dict[FlavorResource, int], frozenset[FlavorResource]]:
    """Return current usage, and assigned flavors and resources. ``pods`` are requested, ``done`` finished."""
    found, assigned = [], set()
    for each in sets:
        usage = {FlavorResource(each.flavors.get(name, ""), name): amount for name, amount in each.usage.items()}
        assigned |= {*usage, *(FlavorResource(flavor, name) for name, flavor in each.flavors.items())}
        asked = pods.get(each.name, each.pods)
        found.append(pod_set_usage(AdmittedPodSet(each.name, asked, done.get(each.name, 0), each.pods, usage)))
    return admitted_usage(found), frozenset(assigned)


def _queued(one: WorkloadObject | JobObject, priority: int | None, name: str) -> Queued:
    created = one.metadata.creation_timestamp
    evicted = _condition(one.status.conditions, "Evicted")
    return Queued(_uid(one), priority, _seconds(created, name) if created else 0, evicted)


def _namespace(one: QueueObject) -> str:
    return one.metadata.namespace or "default"


def _uid(one: WorkloadObject | JobObject) -> str:
    """Return the uid; for a Job without one, the name of its workload."""
    if one.metadata.uid:
        return one.metadata.uid
    kind = "job" if isinstance(one, JobObject) else "workload"
    return f"{kind}/{_namespace(one)}/{workload_name(one.metadata.name, '')}"


def _run_s(one: WorkloadObject | JobObject, name: str) -> int | None:
    """Return the annotated run time, else that of a finished Job; None if unknown."""
    text = (one.metadata.annotations or {}).get(RUN_SECONDS)
    if text is not None:
        if not text.isdecimal() or len(text) > 10:
            raise CaseError(f"{name}: metadata.annotations[{RUN_SECONDS}]", f"{text!r}; accepted: whole seconds")
        return int(text)
    if isinstance(one, JobObject) and one.status.start_time:
        ends = [each.last_transition_time for each in one.status.conditions or () if each.type == "Failed"]
        end = one.status.completion_time or next((each for each in ends if each), None)
        if end:
            return max(0, _seconds(end, name) - _seconds(one.status.start_time, name))
    return None


def _is(conditions: Iterable[ObjectCondition] | None, kind: str) -> bool:
    return any(one.type == kind and one.status == "True" for one in conditions or ())


def _condition(conditions: Iterable[ObjectCondition] | None, kind: str) -> Condition | None:
    for one in conditions or ():
        if one.type == kind:
            at = one.last_transition_time
            return Condition(one.reason, _seconds(at, kind) if at else 0, one.status == "True")
    return None


def _amounts(given: Quantities | None, of: str) -> dict[str, Decimal]:
    return {resource: Decimal(_amount(resource, text, of)) for resource, text in (given or {}).items()}


def _limit(resource: str, given: Quantity | None, of: str) -> int | None:
    return None if given is None else _amount(resource, given, of)


def _amount(resource: str, given: Quantity, of: str) -> int:
    """Return millicores of CPU, or whole units of other resources, rounded up."""
    exact = _read(given, f"{of}: {resource}") * (1000 if resource == "cpu" else 1)
    return min(int(exact.to_integral_value(ROUND_CEILING)), UNLIMITED)


def _read(given: Quantity, field: str) -> Decimal:
    try:
        return quantity(given)
    except QuantityError as exc:
        raise CaseError(field, str(exc)) from exc


def _seconds(text: str, of: str) -> int:
    """Return seconds since the epoch; without an offset the time is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as exc:
        raise CaseError(of, f"{text!r} is not a time such as 2026-03-01T12:00:00Z") from exc
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
