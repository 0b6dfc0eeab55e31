"""Computes the status of ClusterQueues and LocalQueues, with Kueue's fields. Pure.

There are no admission checks, so a workload with quota reservation is admitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slacktide.agents.cluster.queue.work import ACTIVE, Work
from slacktide.schemas.queue import QueueBooking, QueueState
from slacktide.schemas.queue_objects import ClusterQueueObject, LocalQueueObject, QueueObject
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.cluster_objects import QueueObjects, Stopped
from slacktide.streams.decisions.queue.job import QUEUE_NAME
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode
from slacktide.streams.decisions.queue.workload_objects import booked, namespace_of

Json = dict[str, Any]


class Queue(NamedTuple):
    """A ClusterQueue or LocalQueue."""

    kind: str
    namespace: str
    name: str


class _Count:
    def __init__(self) -> None:
        self.pending = self.reserving = 0
        self.usage: Counter[FlavorResource] = Counter()


def statuses(
    given: Sequence[QueueObject],
    works: Mapping[str, Work],
    states: Mapping[str, QueueState],
    stands: Mapping[Queue, Json],
    now_ms: int,
) -> dict[Queue, Json]:
    """Compute the status of each queue, without fields of other writers.

    ``works`` and ``states`` are by uid. ``stands`` is the status in the API server, with the times of conditions.
    Raises CaseError if the objects are inconsistent.
    """
    objects = QueueObjects(given)
    built = objects.built()
    counts = _counted(objects, works, states)
    nodes = {one.node.name: one.node for one in built.queues}
    lacking = {
        one.node.name: sorted({of.flavor for of in one.node.quotas} - built.flavors.keys()) for one in built.queues
    }
    found: dict[Queue, Json] = {}
    for one in given:
        if isinstance(one, ClusterQueueObject):
            queue, node = Queue("ClusterQueue", "", one.metadata.name), nodes.get(one.metadata.name)
            active = _of_cluster_queue(lacking[one.metadata.name], objects.stopped(one.metadata.name))
        elif isinstance(one, LocalQueueObject):
            queue = Queue("LocalQueue", one.metadata.namespace, one.metadata.name)
            node = nodes.get(one.spec.cluster_queue)
            own = objects.stopped("", namespace_of(one), one.metadata.name)
            stopped = own if own.reason else objects.stopped(one.spec.cluster_queue)
            active = _of_local_queue(lacking.get(one.spec.cluster_queue), stopped)
        else:
            continue
        count, condition = counts.get(queue) or _Count(), _timed(active, stands.get(queue, {}), now_ms)
        usage = [] if node is None else _flavors(node, count.usage, borrows=queue.kind == "ClusterQueue")
        found[queue] = {
            "pendingWorkloads": count.pending,
            "reservingWorkloads": count.reserving,
            "admittedWorkloads": count.reserving,
            "flavorsReservation": usage,
            "flavorsUsage": usage,
            "conditions": [condition],
        }
    return found


def _counted(objects: QueueObjects, works: Mapping[str, Work], states: Mapping[str, QueueState]) -> dict[Queue, _Count]:
    counts: dict[Queue, _Count] = {}
    for uid, state in states.items():
        if state.booking is not None:
            work = works.get(uid)
            usage = _usage(state.booking, work)
            for queue in _queues(state.booking.cluster_queue, work):
                count = counts.setdefault(queue, _Count())
                count.reserving += 1
                count.usage.update(usage)
    for uid, work in works.items():
        one = states.get(uid)
        if work.finished or (one is not None and one.phase != "pending"):
            continue
        name = objects.place(work.metadata.namespace, (work.metadata.labels or {}).get(QUEUE_NAME, ""))[0]
        if name is not None and (work.metadata.annotations or {}).get(ACTIVE) != "false":
            for queue in _queues(name, work):
                counts.setdefault(queue, _Count()).pending += 1
    return counts


def _queues(cluster_queue: str, work: Work | None) -> Iterable[Queue]:
    yield Queue("ClusterQueue", "", cluster_queue)
    if work is not None:
        yield Queue("LocalQueue", work.metadata.namespace, (work.metadata.labels or {}).get(QUEUE_NAME, ""))


def _usage(booking: QueueBooking, work: Work | None) -> Mapping[FlavorResource, int]:
    done = {} if work is None else work.done
    pods = {one.name: one.count for one in work.pod_sets} if work is not None and done else {}
    return booked(booking.pod_sets, pods, done)[0]


def _flavors(node: QuotaNode, usage: Mapping[FlavorResource, int], *, borrows: bool) -> list[Json]:
    """Return each resource of each flavor of the ClusterQueue, used or not."""
    flavors: dict[str, list[Json]] = {}
    for of, quota in node.quotas.items():
        used = usage.get(of, 0)
        one = {"name": of.resource, "total": _text(of.resource, used)}
        if borrows:
            one["borrowed"] = _text(of.resource, max(0, used - quota.nominal))
        flavors.setdefault(of.flavor, []).append(one)
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]


def _text(resource: str, amount: int) -> str:
    return cpu_text(amount) if resource == "cpu" else mem_text(amount) if resource == "memory" else str(amount)


def _of_cluster_queue(lacking: Sequence[str], stopped: Stopped) -> Json:
    why = {"Stopped": "is stopped"} if stopped.reason else {}
    if lacking:
        why["FlavorNotFound"] = f"references missing ResourceFlavor(s): {','.join(lacking)}"
    if why:
        message = f"Can't admit new workloads: {', '.join(why.values())}."
        return {"status": "False", "reason": next(iter(why)), "message": message}
    return {"status": "True", "reason": "Ready", "message": "Can admit new workloads"}


def _of_local_queue(lacking: Sequence[str] | None, stopped: Stopped) -> Json:
    """Return the condition ``Active``; None: its ClusterQueue does not exist."""
    if stopped.reason == "LocalQueueStopped":
        return {"status": "False", "reason": "Stopped", "message": "LocalQueue is stopped"}
    if lacking is None or lacking or stopped.reason:
        reason = "ClusterQueueDoesNotExist" if lacking is None else "ClusterQueueIsInactive"
        return {"status": "False", "reason": reason, "message": "Can't submit new workloads to clusterQueue"}
    return {"status": "True", "reason": "Ready", "message": "Can submit new workloads to localQueue"}


def _timed(active: Json, stands: Json, now_ms: int) -> Json:
    before: Json = next((one for one in stands.get("conditions") or () if one.get("type") == "Active"), {})
    now = datetime.fromtimestamp(now_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = before.get("lastTransitionTime") if before.get("status") == active["status"] else None
    return {"type": "Active", **active, "lastTransitionTime": since or now}
