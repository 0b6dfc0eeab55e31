"""Parses Workloads and the values of queue objects, computes the usage of admitted ones, and builds topic records.

Reading: kueue v0.19.2, pkg/workload/workload.go, totalRequestsFromAdmission.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import NamedTuple

import msgspec

from slacktide.schemas.errors import CaseError, QuantityError, TextError
from slacktide.schemas.kubernetes_fields import Container, Needs
from slacktide.schemas.qos import LABEL_SUB_PRIORITY
from slacktide.schemas.queue import QueuePodSet, QueueSpec, QueueWorkload, spec_key, spec_of
from slacktide.schemas.queue_objects import (
    AdmissionStatus,
    ClusterQueueSpec,
    ContainerSpec,
    JobObject,
    KindObject,
    Metadata,
    NamespaceObject,
    ObjectCondition,
    Quantities,
    Quantity,
    QueueObject,
    ResourceDemand,
    WorkloadObject,
    WorkloadPodSet,
)
from slacktide.schemas.queue_objects import (
    Toleration as TolerationSpec,
)
from slacktide.schemas.text import integer_of, shown, time_ms_of
from slacktide.schemas.units import quantity
from slacktide.streams.decisions.queue.assign import Check, PodSet
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeNeeds
from slacktide.streams.decisions.queue.job import Defaults, Toleration, pod_request, workload_name
from slacktide.streams.decisions.queue.queue_order import Condition, Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import UNLIMITED, FlavorResource, plus
from slacktide.streams.decisions.queue.scheduling import Workload

RUN_SECONDS_MAX = 10**10 - 1
RUN_SECONDS = "slacktide.io/run-seconds"
"""Annotation of a Job or Workload: its run time in a simulation."""
KEPT = (RUN_SECONDS, "slacktide.io/quota-")
"""Prefixes of annotations that decisions read."""


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

    def placed(self, queue: str, *, matches: bool, stopped: str = "") -> Workload:
        """Return the pending workload for a ClusterQueue.

        ``matches``: its namespace selector matches; ``stopped``: reason of a stopped queue.
        """
        return Workload(self.pending._replace(namespace_matches=matches, stopped=stopped), queue, self.pod_sets)


def wanted(one: WorkloadObject) -> Wanted:
    """Parse the fields that queue decisions use; raise CaseError if an amount or time is invalid."""
    name = f"{namespace_of(one)}/{one.metadata.name}"
    requeue, reserved = one.status.requeue_state, condition_of(one.status.conditions, "QuotaReserved")
    try:
        shape, pod_sets = _pod_sets(msgspec.json.encode(one.spec.pod_sets))
    except CaseError as exc:
        raise CaseError(f"Workload {name}{exc.field}", exc.why) from exc
    pending = Pending(
        queued=queued_of(one, one.spec.priority, name),
        generation=one.metadata.generation,
        requeued=condition_of(one.status.conditions, "Requeued"),
        requeue_at_s=_seconds(requeue.requeue_at, name) if requeue and requeue.requeue_at else None,
        pod_sets=shape,
    )
    return Wanted(
        uid=uid_of(one),
        namespace=namespace_of(one),
        name=one.metadata.name,
        local=one.spec.queue_name,
        active=one.spec.active,
        finished=is_true(one.status.conditions, "Finished"),
        pending=pending,
        pod_sets=pod_sets,
        done={each.name: each.count for each in one.status.reclaimable_pods or ()},
        admission=one.status.admission if reserved is not None and reserved.status else None,
    )


@lru_cache(maxsize=10_000)
def _pod_sets(encoded: bytes) -> tuple[bytes, tuple[PodSet, ...]]:
    """Decode pod sets, cached by their text: thousands of workloads have equal pod sets."""
    return encoded, tuple(map(pod_set_of, msgspec.json.decode(encoded, type=list[WorkloadPodSet])))


def pod_set_of(given: WorkloadPodSet) -> PodSet:
    """Compute the requests of a pod, and the nodes that it needs."""
    pods, least, spec = given.count, given.min_count, given.template.spec
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    affinity = tuple(
        tuple(Expression(one.key, one.operator, tuple(one.values or ())) for one in term.match_expressions or ())
        for term in (required.node_selector_terms if required else ())
    )
    needs = Needs(
        containers=[_container(one) for one in spec.containers],
        inits=[_container(one) for one in spec.init_containers or ()],
        overhead=_amounts(spec.overhead, ""),
        pod_level=None if spec.resources is None else _asked(spec.resources, ""),
    )
    requests = pod_request(needs, Defaults(), corrected=True).requests
    partly = least if least is not None and 0 < least < pods else None
    nodes = NodeNeeds(spec.node_selector or {}, affinity, tolerations_of(spec.tolerations))
    return PodSet(given.name, pods, partly, requests, nodes)


def _container(one: ContainerSpec) -> Container:
    asked = _asked(one.resources or ResourceDemand(), f": container {one.name}")
    return Container(requests=asked.requests, limits=asked.limits, sidecar=one.restart_policy == "Always")


def _asked(given: ResourceDemand, of: str) -> Container:
    return Container(requests=_amounts(given.requests, of), limits=_amounts(given.limits, of))


def checks_of(spec: ClusterQueueSpec) -> tuple[Check, ...]:
    """Return the admission checks by name, of v1beta2's field or of v1beta1's."""
    strategy = spec.admission_checks_strategy
    rules = [] if strategy is None else strategy.admission_checks
    found = [Check(one.name, frozenset(one.on_flavors or ())) for one in rules]
    return tuple(sorted([*found, *map(Check, spec.admission_checks or ())], key=lambda one: one.name))


def admitted_sets(admission: AdmissionStatus, pods: Mapping[str, int], of: str) -> list[QueuePodSet]:
    """Return the pod sets of an admission of Workload ``of``; ``pods`` are counts for pod sets without one."""
    of = f"{of}: status.admission"
    return [
        QueuePodSet(
            name=each.name,
            count=pods.get(each.name, 0) if each.count is None else each.count,
            flavors=each.flavors or {},
            usage={name: _amount(name, text, of) for name, text in (each.resource_usage or {}).items()},
        )
        for each in admission.pod_set_assignments
    ]


class AdmittedPodSet(NamedTuple):
    """A pod set and its admission."""

    name: str
    spec_count: int
    reclaimable: int
    """Finished pods whose quota is released."""
    admitted_count: int | None
    usage: Mapping[FlavorResource, int]
    """Total of all admitted pods. Flavor "": none was assigned."""


class PodSetUsage(NamedTuple):
    """The current usage of a pod set."""

    name: str
    pods: int
    admitted_pods: int
    usage: Mapping[FlavorResource, int]


def pod_set_usage(one: AdmittedPodSet) -> PodSetUsage:
    """Release the part of each finished pod once fewer pods remain than were admitted."""
    admitted = one.spec_count if one.admitted_count is None else one.admitted_count
    left = one.spec_count - min(one.reclaimable, one.spec_count)
    if left >= admitted:
        return PodSetUsage(one.name, admitted, admitted, one.usage)
    return PodSetUsage(one.name, left, admitted, {of: total // admitted * left for of, total in one.usage.items()})


def admitted_usage(pod_sets: Iterable[PodSetUsage]) -> dict[FlavorResource, int]:
    """Return the sum over the pod sets."""
    usage: dict[FlavorResource, int] = {}
    for one in pod_sets:
        for of, amount in one.usage.items():
            usage[of] = plus(usage.get(of, 0), amount)
    return usage


def booked(
    sets: Iterable[QueuePodSet], pods: Mapping[str, int], done: Mapping[str, int]
) -> tuple[dict[FlavorResource, int], frozenset[FlavorResource]]:
    """Return current usage, and assigned flavors and resources. ``pods`` are requested, ``done`` finished."""
    found, assigned = [], set()
    for each in sets:
        usage = {FlavorResource(each.flavors.get(name, ""), name): amount for name, amount in each.usage.items()}
        assigned |= {*usage, *(FlavorResource(flavor, name) for name, flavor in each.flavors.items())}
        asked = pods.get(each.name, each.count)
        found.append(pod_set_usage(AdmittedPodSet(each.name, asked, done.get(each.name, 0), each.count, usage)))
    return admitted_usage(found), frozenset(assigned)


def queued_of(one: WorkloadObject | JobObject | KindObject, priority: int | None, name: str) -> Queued:
    """Return the fields that the order depends on."""
    created = one.metadata.creation_timestamp
    evicted = condition_of(one.status.conditions, "Evicted")
    return Queued(
        uid_of(one), priority, _seconds(created, name) if created else 0, evicted, sub_priority_of(one, name, [])
    )


def sub_priority_of(one: WorkloadObject | JobObject | KindObject, name: str, notes: list[str]) -> int:
    """Return the label's number; 0 without one, and for one that cannot be read, which is noted: users write it."""
    text = (one.metadata.labels or {}).get(LABEL_SUB_PRIORITY)
    try:
        return 0 if text is None else integer_of(text, where=LABEL_SUB_PRIORITY)
    except TextError:
        where = f"{type(one).__name__.removesuffix('Object')} {name}: metadata.labels[{LABEL_SUB_PRIORITY}]"
        notes.append(f"{where}: {shown(text)}: ignored; accepted: a whole number of 64 bits")
        return 0


def namespace_of(one: QueueObject) -> str:
    """Return the namespace; ``default`` without one."""
    return one.metadata.namespace or "default"


def uid_of(one: WorkloadObject | JobObject | KindObject) -> str:
    """Return the uid; for a Job without one, the name of its workload."""
    if one.metadata.uid:
        return one.metadata.uid
    kind = one.kind.lower() if isinstance(one, KindObject) else "job" if isinstance(one, JobObject) else "workload"
    return f"{kind}/{namespace_of(one)}/{workload_name(one.metadata.name, '')}"


def run_seconds(one: WorkloadObject | JobObject | KindObject, name: str, notes: list[str]) -> int | None:
    """Return the annotated run time, else that of a finished Job; None if unknown.

    Users write the annotation: one that cannot be read is ignored, and noted.
    """
    text = (one.metadata.annotations or {}).get(RUN_SECONDS)
    if text is not None:
        try:
            return integer_of(text, where=RUN_SECONDS, least=0, most=RUN_SECONDS_MAX)
        except TextError:
            where = f"{type(one).__name__.removesuffix('Object')} {name}: metadata.annotations[{RUN_SECONDS}]"
            notes.append(f"{where}: {shown(text)}: ignored; accepted: whole seconds")
    if isinstance(one, JobObject) and one.status.start_time:
        ends = [each.last_transition_time for each in one.status.conditions or () if each.type == "Failed"]
        end = one.status.completion_time or next((each for each in ends if each), None)
        if end:
            return max(0, _seconds(end, name) - _seconds(one.status.start_time, name))
    return None


def is_true(conditions: Iterable[ObjectCondition] | None, kind: str) -> bool:
    """Return whether a condition is true."""
    return any(one.type == kind and one.status == "True" for one in conditions or ())


def condition_of(conditions: Iterable[ObjectCondition] | None, kind: str) -> Condition | None:
    """Return a condition with its time; None: there is none."""
    for one in conditions or ():
        if one.type == kind:
            at = one.last_transition_time
            return Condition(one.reason, _seconds(at, kind) if at else 0, one.status == "True")
    return None


def _amounts(given: Quantities | None, of: str) -> dict[str, Decimal]:
    return {resource: Decimal(_amount(resource, text, of)) for resource, text in (given or {}).items()}


def limit_of(resource: str, given: Quantity | None, of: str) -> int | None:
    """Return an amount; None: no limit."""
    return None if given is None else _amount(resource, given, of)


def _amount(resource: str, given: Quantity, of: str) -> int:
    """Return millicores of CPU, or whole units of other resources, rounded up."""
    exact = quantity_of(given, f"{of}: {resource}") * (1000 if resource == "cpu" else 1)
    return min(int(exact.to_integral_value(ROUND_CEILING)), UNLIMITED)


def quantity_of(given: Quantity, field: str) -> Decimal:
    """Parse a quantity; raise CaseError with the field if it is invalid or negative."""
    try:
        found = quantity(given)
    except QuantityError as exc:
        raise CaseError(field, str(exc)) from exc
    if found < 0:
        raise CaseError(field, f"{given} is negative; accepted: 0 or more")
    return found


def _seconds(text: str, of: str) -> int:
    """Return seconds since the epoch; without an offset the time is UTC."""
    try:
        return round(time_ms_of(text, where=of) / 1_000)
    except TextError as exc:
        raise CaseError(of, f"{shown(text)} is not a time such as 2026-03-01T12:00:00Z") from exc


def tolerations_of(given: Iterable[TolerationSpec] | None) -> tuple[Toleration, ...]:
    """Convert tolerations."""
    return tuple(Toleration(each.key, each.operator, each.value, each.effect) for each in given or ())


class Published(NamedTuple):
    """A record to publish."""

    key: str
    message: QueueSpec | QueueWorkload


def published(one: QueueObject, now: str) -> Published | None:
    """Return the record of an object; None if the queue does not read its kind.

    A Job must be converted before. ``now``: creation time of a Workload without one.
    """
    if isinstance(one, WorkloadObject):
        uid = one.metadata.uid or f"workload/{one.metadata.namespace or 'default'}/{one.metadata.name}"
        made = msgspec.structs.replace(one, metadata=_kept(one, uid, now))
        return Published(uid, QueueWorkload(uid=uid, workload=made))
    spec = spec_of(msgspec.structs.replace(one, metadata=_kept(one, one.metadata.uid, None)))
    return None if spec is None else Published(spec_key(one), spec)


def _kept(one: QueueObject, uid: str, now: str | None) -> Metadata:
    """Keep only metadata that decisions read, without an operator's other labels and annotations."""
    given = one.metadata
    annotations = {key: value for key, value in (given.annotations or {}).items() if key.startswith(KEPT)}
    labels = given.labels or {}
    if isinstance(one, WorkloadObject):
        labels = {key: value for key, value in labels.items() if key == LABEL_SUB_PRIORITY}
    return Metadata(
        name=given.name,
        namespace=given.namespace,
        uid=uid,
        generation=given.generation,
        labels=(labels or None) if isinstance(one, NamespaceObject | WorkloadObject) else None,
        annotations=annotations or None,
        creation_timestamp=given.creation_timestamp or now,
    )
