"""Orders the workloads of a ClusterQueue. Its pending ones are active or inadmissible; events requeue them.

Reading: kueue v0.19.2, pkg/cache/queue/cluster_queue.go, queueOrderingFunc; inadmissible_workloads.go;
pkg/workload/workload.go, GetQueueOrderTimestamp. The sub-priority is Slacktide's own, by Koordinator's label.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable
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
    sub_priority: int = 0
    """Its label koordinator.sh/priority; orders workloads of one priority, the higher first."""


class Place(NamedTuple):
    """A sort key of workloads; the smallest is next."""

    priority_negated: int
    sub_priority_negated: int
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


def place(one: Queued, requeuing: RequeuingTimestamp = "Eviction") -> Place:
    """Return the sort key: priority, sub-priority, queue timestamp, uid."""
    return Place(-(one.priority or 0), -one.sub_priority, queue_time_s(one, requeuing), one.uid)


QueueingStrategy = Literal["BestEffortFIFO", "StrictFIFO"]
PREEMPTS = frozenset({"PendingPreemption", "PendingMigration"})
"""Reasons of a workload that waits for its victims to stop."""
WAITING_FOR_PODS_READY = "WaitingForPodsReady"
"""Not decided, because other workloads wait for ready pods. The reference has no such reason."""
EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
"""It does not fit even without other usage, until quotas or flavors change. The reference has no such reason."""
PREEMPTION_REPEATS = "PreemptionRepeats"
"""It preempted the same workload before. The reference has no such reason."""
AT_ONCE = PREEMPTS | {"FailedAfterNomination", "PreemptionFailed", WAITING_FOR_PODS_READY}
"""Reasons after which BestEffortFIFO retries a workload without an event."""
STOPPED = frozenset({"ClusterQueueStopped", "LocalQueueStopped"})
"""Its ClusterQueue or LocalQueue has a stop policy."""
CHECK = "AdmissionCheck:"
"""Begins a reason, and the name of the admission check follows. The reference reserves quota, and waits then."""
NEVER_AT_ONCE = STOPPED | {"NamespaceMismatch"}


def of_shape(reason: str) -> bool:
    """Return whether a reason applies to all workloads of equal shape."""
    return reason in {"NoFit", "PreemptionNoCandidates"} or reason.startswith(CHECK)


class Pending(NamedTuple):
    """A pending workload."""

    queued: Queued
    generation: int = 0
    namespace_matches: bool = True
    stopped: str = ""
    """Reason of a stopped queue, from STOPPED, or of an admission check."""
    requeued: Condition | None = None
    requeue_at_s: int | None = None
    pod_sets: Hashable = ()
    """A key of all data that flavors and quota depend on."""
    reclaimable: Hashable = ()

    @property
    def uid(self) -> str:
        """Return the workload's uid."""
        return self.queued.uid

    @property
    def shape(self) -> Hashable:
        """Return a key; workloads with equal shape fit alike."""
        return self.queued.priority or 0, self.pod_sets

    @property
    def barred(self) -> str:
        """Return the reason for which its queues do not admit it, whatever its quota."""
        return self.stopped or ("" if self.namespace_matches else "NamespaceMismatch")

    @property
    def matters(self) -> Hashable:
        """Return the data that decides whether a retry is useful."""
        return self.queued.priority, self.pod_sets, self.queued.evicted, self.requeued, self.reclaimable

    def ready(self, now_s: int) -> bool:
        """Return whether no backoff holds it."""
        waits = self.requeued is not None and not self.requeued.status
        return not waits and (self.requeue_at_s is None or self.requeue_at_s <= now_s)


class PendingQueue:
    """The pending workloads of one ClusterQueue. Callers pass the time."""

    def __init__(
        self, strategy: QueueingStrategy = "BestEffortFIFO", requeuing: RequeuingTimestamp = "Eviction"
    ) -> None:
        self._best_effort = strategy == "BestEffortFIFO"
        self._requeuing: RequeuingTimestamp = requeuing
        self._active: dict[str, Pending] = {}
        self._order: list[Place] = []
        """Active workloads in order, without regard to the sticky one."""
        self._places: dict[str, Place] = {}
        self._shapes: dict[str, Hashable] = {}
        self._by_shape: dict[Hashable, dict[str, None]] = {}
        self._aside: dict[str, Pending] = {}
        self._looked_at: dict[str, int] = {}
        """Generation at the last try, until the workload is pushed again; 0 or absent: it matches any."""
        self._inflight: str | None = None
        self._sticky: str | None = None
        self._retried = False
        self._bad_shapes: set[Hashable] = set()
        self._too_large: set[str] = set()
        """Inadmissible until quotas or flavors change."""

    def __len__(self) -> int:
        return len(self._active) + len(self._aside)

    @property
    def active(self) -> list[Pending]:
        """Return the active workloads in order."""
        first = [self._sticky] if self._sticky in self._active else []
        return [self._active[uid] for uid in dict.fromkeys([*first, *(one.uid for one in self._order)])]

    @property
    def inadmissible(self) -> list[Pending]:
        """Return the inadmissible workloads, unordered."""
        return list(self._aside.values())

    def is_active(self, uid: str) -> bool:
        """Return whether a workload is active."""
        return uid in self._active

    def push(self, one: Pending, now_s: int) -> None:
        """Add or update a workload."""
        if one.uid == self._inflight:
            return
        aside = self._aside.get(one.uid)
        same = aside is not None and aside.matters == one.matters
        same = same and self._looked_at.get(one.uid, 0) in {0, one.generation}
        self._looked_at.pop(one.uid, None)
        held_back = not one.ready(now_s) or (self._best_effort and one.shape in self._bad_shapes)
        stays_aside = same or (one.uid not in self._active and held_back)
        self._enter(one)
        if stays_aside:
            self._aside[one.uid] = one
            if not same:
                self._too_large.discard(one.uid)
        else:
            self._activate(one)

    def pop(self) -> Pending | None:
        """Take the next workload for a try."""
        self._retried = False
        one = self._active.get(self._sticky) if self._sticky is not None else None
        if one is None and self._order:
            one = self._active[self._order[0].uid]
        self._inflight = None if one is None else one.uid
        if one is not None:
            self._leave(one.uid)
            self._looked_at[one.uid] = one.generation
        return one

    def requeue(self, one: Pending, reason: str, now_s: int, *, pending_flavors: bool = False) -> bool:
        """Requeue a workload; return whether it is pending again. ``pending_flavors``: untried flavors remain."""
        if reason in PREEMPTS:
            self._sticky = one.uid if self._best_effort else None
        if self._inflight == one.uid:
            self._inflight = None
        if reason == EXCEEDS_MAX_QUOTA:
            self._enter(one)
            self._aside[one.uid] = one
            self._too_large.add(one.uid)
            return True
        held = reason in NEVER_AT_ONCE or reason.startswith(CHECK)
        at_once = reason in AT_ONCE if self._best_effort else not held
        back = one.ready(now_s) and (at_once or self._retried or pending_flavors)
        if one.uid in self._active or (one.uid in self._aside and not back):
            return False
        self._enter(one)
        if back:
            self._activate(one)
            return True
        self._aside[one.uid] = one
        if self._best_effort and of_shape(reason):
            self._bad_shapes.add(one.shape)
            out = [uid for uid in self._by_shape.get(one.shape, ()) if uid in self._active]
            if out:
                self._aside |= {uid: self._active.pop(uid) for uid in out}
                self._order = [each for each in self._order if each.uid in self._active]
        return True

    def retry(self, now_s: int, *, changed: bool = False) -> int:
        """Activate inadmissible workloads; return their number. ``changed``: also those above the maximum quota."""
        self._retried = True
        self._bad_shapes.clear()
        if changed:
            self._too_large.clear()
        stays = self._too_large
        back = {
            uid: one for uid, one in self._aside.items() if one.ready(now_s) and not one.barred and uid not in stays
        }
        self._active.update(back)
        self._aside = {uid: one for uid, one in self._aside.items() if uid not in back}
        if back:
            self._order = sorted([*self._order, *(self._places[uid] for uid in back)])
        return len(back)

    def delete(self, uid: str) -> None:
        """Remove a workload that was deleted or admitted."""
        self._leave(uid)
        self._aside.pop(uid, None)
        self._places.pop(uid, None)
        if uid in self._shapes:
            del self._by_shape[self._shapes.pop(uid)][uid]
        self._looked_at.pop(uid, None)
        self._too_large.discard(uid)
        self._inflight = None if self._inflight == uid else self._inflight
        self._sticky = None if self._sticky == uid else self._sticky

    def _activate(self, one: Pending) -> None:
        self._aside.pop(one.uid, None)
        self._too_large.discard(one.uid)
        self._active[one.uid] = one
        insort(self._order, self._places[one.uid])

    def _leave(self, uid: str) -> None:
        if self._active.pop(uid, None) is not None:
            del self._order[bisect_left(self._order, self._places[uid])]

    def _enter(self, one: Pending) -> None:
        uid, shape = one.uid, one.shape
        self._leave(uid)
        self._places[uid] = place(one.queued, self._requeuing)
        if uid in self._shapes:
            del self._by_shape[self._shapes[uid]][uid]
        self._shapes[uid] = shape
        self._by_shape.setdefault(shape, {})[uid] = None
