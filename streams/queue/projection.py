"""The queue's topics as Kubernetes objects: each Workload with its status."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from slacktide.schemas.errors import BadMessageError, CaseError
from slacktide.schemas.queue import QueueState
from slacktide.schemas.queue_objects import (
    AdmissionStatus,
    ObjectCondition,
    PodSetAdmission,
    QueueObject,
    RequeueState,
    WorkloadObject,
    WorkloadStatus,
)
from slacktide.schemas.topics import QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.workload_objects import wanted
from slacktide.streams.queue.cluster import Specs
from slacktide.streams.queue.ledger import last_of_each, ledger_of, workload_of
from slacktide.streams.records import Record


def objects_of(records: Iterable[Record]) -> list[QueueObject]:
    """Return the current objects; skip invalid records, which have dead letters from the decider.

    Records of the spec, workload and state topics must be in order.
    """
    records = list(records)
    ledger = ledger_of([one for one in records if one.topic == QUEUE_STATE.name], ())
    specs = Specs()
    specs.take(one for one in records if one.topic == QUEUE_SPEC.name)
    found = specs.objects
    for record in last_of_each(one for one in records if one.topic == QUEUE_WORKLOAD.name and one.value is not None):
        with suppress(BadMessageError, CaseError):
            one = workload_of(record)
            wanted(one.workload)
            found.append(with_status(one.workload, ledger.states.get(one.uid)))
    return found


def with_status(one: WorkloadObject, state: QueueState | None) -> WorkloadObject:
    """Return a Workload with its status."""
    if state is None:
        return one
    booking, conditions = state.booking, []
    if booking is not None:
        conditions.append(_condition("QuotaReserved", "QuotaReserved", booking.reserved_ms))
    if state.phase == "finished":
        conditions.append(_condition("Finished", "Finished", 0))
    if state.evicted_ms:
        status = "False" if state.phase == "reserved" else "True"
        conditions.append(_condition("Evicted", state.evicted_reason or "Preempted", state.evicted_ms, status))
    if state.ready_reason:
        ready = "True" if state.pods_ready else "False"
        conditions.append(_condition("PodsReady", state.ready_reason, state.ready_ms, ready))
    admission = None
    if booking is not None:
        sets = [
            PodSetAdmission(
                name=each.name,
                flavors=each.flavors,
                resource_usage={name: f"{n}m" if name == "cpu" else str(n) for name, n in each.usage.items()},
                count=each.count,
            )
            for each in booking.pod_sets
        ]
        admission = AdmissionStatus(cluster_queue=booking.cluster_queue, pod_set_assignments=sets)
    reclaimable = one.status.reclaimable_pods
    requeue = None
    if booking is None and (state.retry_ms or state.requeue_count):
        requeue = RequeueState(count=state.requeue_count, requeue_at=_when(state.retry_ms) if state.retry_ms else None)
    status_now = WorkloadStatus(
        admission=admission, conditions=conditions, reclaimable_pods=reclaimable, requeue_state=requeue
    )
    return msgspec.structs.replace(one, status=status_now)


def _condition(kind: str, reason: str, at_ms: int, status: str = "True") -> ObjectCondition:
    return ObjectCondition(type=kind, status=status, reason=reason, last_transition_time=_when(at_ms))


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
