"""Which workload of a ClusterQueue is next.

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
    """Of its last transition, in seconds since the epoch."""
    status: bool = True


class Queued(NamedTuple):
    """What of a workload its place depends on."""

    uid: str
    priority: int | None
    """None counts as 0; higher is more important."""
    created_s: int
    evicted: Condition | None = None


class Place(NamedTuple):
    """Workloads compare by it: the smaller is next."""

    waits: bool
    """It is not the one that preempts already and so goes first."""
    priority_negated: int
    queue_time_s: int
    uid: str


def queue_time_s(one: Queued, requeuing: RequeuingTimestamp = "Eviction") -> int:
    """Since when it waits: its eviction for an admission check, or for pods not ready if so set; else its creation."""
    evicted = one.evicted
    if evicted is not None and evicted.status:
        counts = evicted.reason == "AdmissionCheck"
        if counts or (evicted.reason == "PodsReadyTimeout" and requeuing == "Eviction"):
            return evicted.at_s
    return one.created_s


def place(one: Queued, requeuing: RequeuingTimestamp = "Eviction", *, sticky: bool = False) -> Place:
    """Where it stands: a sticky workload first, then priority, queue time, uid."""
    return Place(not sticky, -(one.priority or 0), queue_time_s(one, requeuing), one.uid)


def in_order(
    workloads: Iterable[Queued], requeuing: RequeuingTimestamp = "Eviction", *, sticky_uid: str | None = None
) -> list[Queued]:
    """All of them, the next one first; equal ones stay in the order given."""
    return sorted(workloads, key=lambda one: place(one, requeuing, sticky=one.uid == sticky_uid))
