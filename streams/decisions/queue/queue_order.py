"""Orders the workloads of a ClusterQueue.

Reading: kueue v0.19.2, pkg/cache/queue/cluster_queue.go, queueOrderingFunc; pkg/workload/workload.go,
GetQueueOrderTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

RequeuingTimestamp = Literal["Eviction", "Creation"]


class Condition(NamedTuple):
    """A condition of a workload."""

    reason: str
    at_s: int
    """Last transition, in seconds since the epoch."""
    status: bool = True


class Queued(NamedTuple):
    """The fields of a workload that its order depends on."""

    uid: str
    priority: int | None
    """None counts as 0; higher is more important."""
    created_s: int
    evicted: Condition | None = None


class Place(NamedTuple):
    """A sort key of workloads; the smallest is next."""

    waits: bool
    """False for the sticky workload, which preempts already and is first."""
    priority_negated: int
    queue_time_s: int
    uid: str


def queue_time_s(one: Queued, requeuing: RequeuingTimestamp = "Eviction") -> int:
    """Return the queue timestamp: an eviction by admission check or, if configured, PodsReady; else the creation."""
    evicted = one.evicted
    if evicted is not None and evicted.status:
        counts = evicted.reason == "AdmissionCheck"
        if counts or (evicted.reason == "PodsReadyTimeout" and requeuing == "Eviction"):
            return evicted.at_s
    return one.created_s


def place(one: Queued, requeuing: RequeuingTimestamp = "Eviction", *, sticky: bool = False) -> Place:
    """Return the sort key: sticky, then priority, queue timestamp, uid."""
    return Place(not sticky, -(one.priority or 0), queue_time_s(one, requeuing), one.uid)


def in_order(
    workloads: Iterable[Queued], requeuing: RequeuingTimestamp = "Eviction", *, sticky_uid: str | None = None
) -> list[Queued]:
    """Return the workloads in order; ties keep the given order."""
    return sorted(workloads, key=lambda one: place(one, requeuing, sticky=one.uid == sticky_uid))
