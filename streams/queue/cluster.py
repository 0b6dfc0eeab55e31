"""The queue's objects and workloads, and the scheduling state derived from them and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.queue import REQUEUING_LIMIT, QueueBooking, QueueState
from slacktide.schemas.queue_objects import QueueObject
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, QueueObjects, Stopped, sharing_queues
from slacktide.streams.decisions.queue.flavor_match import PodGroup, pod_groups
from slacktide.streams.decisions.queue.preempt import Holder
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings, Workload
from slacktide.streams.decisions.queue.workload_objects import Wanted, booked
from slacktide.streams.queue.ledger import object_of
from slacktide.streams.records import Record

RULES = (b"ClusterQueue/", b"Cohort/", b"ResourceFlavor/")
"""Keys of objects after whose change workloads may preempt the same ones again."""
Change = tuple[Record, QueueObject | None]
Place = tuple[str | None, bool, str]
UNKNOWN = Queued("", None, 0)
"""A workload that holds quota and cannot be decoded."""


class Specs:
    """Queue objects by key. If one is invalid, its last valid version stays in force."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, QueueObject] = {}
        self._places: dict[tuple[str, str], Place] = {}
        self._objects = QueueObjects([])
        self.built: QueueCluster = self._objects.built()
        self.version = 0
        self.rules_version = 0
        """As ``version``, of those alone that hold quotas and policies."""
        self.shares: frozenset[str] = frozenset()

    @property
    def objects(self) -> list[QueueObject]:
        """Return all objects."""
        return list(self._by_key.values())

    def take(self, records: Iterable[Record]) -> list[tuple[Record, str]]:
        """Read records; return invalid ones with the reason."""
        bad: list[tuple[Record, str]] = []
        changes = [change for record in records if (change := self._change(record, bad)) is not None]
        try:
            self._put(changes)
        except Exception:  # noqa: BLE001 - each by itself: one must not keep the others out
            for change in changes:
                try:
                    self._put([change])
                except Exception as exc:  # noqa: BLE001 - as above
                    bad.append((change[0], failure("put together", exc)))
        return bad

    def place(self, namespace: str, local: str) -> Place:
        """Return ``QueueObjects.place``, cached: thousands of workloads share a LocalQueue."""
        found = self._places.get((namespace, local))
        if found is None:
            found = self._places[namespace, local] = self._objects.place(namespace, local)
        return found

    def stopped(self, queue: str, namespace: str, local: str) -> Stopped:
        """Return ``QueueObjects.stopped``."""
        return self._objects.stopped(queue, namespace, local)

    def _change(self, record: Record, bad: list[tuple[Record, str]]) -> Change | None:
        try:
            one = None if record.value is None else object_of(record)
        except BadMessageError as exc:
            bad.append((record, str(exc)))
            return None
        return None if one == self._by_key.get(record.key or b"") else (record, one)

    def _put(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        by_key = dict(self._by_key)
        for record, one in changes:
            by_key.pop(record.key or b"", None)
            if one is not None:
                by_key[record.key or b""] = one
        objects = QueueObjects([by_key[key] for key in sorted(by_key)])
        built = objects.built()
        self._by_key, self._objects, self.built, self._places = by_key, objects, built, {}
        self.shares = sharing_queues(by_key.values())
        self.version += 1
        self.rules_version += any((record.key or b"").startswith(RULES) for record, _ in changes)


class View:
    """The scheduling state, kept in sync with workloads and ledger; rebuilt when objects change."""

    def __init__(
        self,
        specs: Specs,
        wanted: Mapping[str, Wanted],
        states: Mapping[str, QueueState],
        *,
        fair_sharing: bool,
        block_admission: bool,
    ) -> None:
        self._specs, self._wanted, self._states = specs, wanted, states
        self._fair_sharing, self._block_admission = fair_sharing, block_admission
        self.scheduling = Scheduling(())
        self._rules_version = 0

    def rebuild(self, now_ms: int) -> None:
        """Rebuild from all objects and workloads."""
        built = self._specs.built
        settings = Settings(
            built.flavors, self._fair_sharing, corrected=True, block_admission=self._block_admission, sizes=built.sizes
        )
        preempted = self.scheduling.preempted if self._rules_version == self._specs.rules_version else {}
        self._rules_version = self._specs.rules_version
        self.scheduling = Scheduling(built.queues, settings=settings)
        self.scheduling.preempted = preempted
        for uid in sorted({*self._wanted, *self._states}):
            self.sync(uid, now_ms)
        for uid, state in sorted(self._states.items()):
            one = self.scheduling.known.get(uid)
            if state.phase == "pending" and state.reason == "PendingPreemption" and one is not None:
                self.scheduling.waiting[one.queue].requeue(one.pending, state.reason, now_ms // 1_000)

    def sync(self, uid: str, now_ms: int) -> None:
        """Update one workload from the ledger."""
        scheduling, now_s = self.scheduling, now_ms // 1_000
        state, workload = self._states.get(uid), self._workload(uid, now_ms)
        if state is not None and state.booking is not None:
            holder = self._holder(state)
            if workload is not None:
                scheduling.waiting[workload.queue].delete(uid)
                scheduling.known[uid] = workload
            if holder is not None and holder != scheduling.holders.get(uid):
                scheduling.hold(holder, now_s)
            if state.phase == "evicting" and state.preemptor:
                scheduling.stops_for(uid, state.preemptor)
            scheduling.pods_ready(uid, ready=state.pods_ready)
            return
        known = scheduling.known.get(uid)
        if workload is None or (known is not None and known.queue != workload.queue):
            scheduling.delete(uid, now_s)
        scheduling.release(uid, now_s)
        if workload is not None:
            scheduling.push(workload, now_s)

    def _workload(self, uid: str, now_ms: int) -> Workload | None:
        """Return the pending workload; None: it is not queued."""
        one, state = self._wanted.get(uid), self._states.get(uid)
        if one is None or not one.active or one.finished or (state is not None and state.phase == "finished"):
            return None
        queue, matches, _ = self._specs.place(one.namespace, one.local)
        if queue is None or (state is not None and state.reason == REQUEUING_LIMIT):
            return None
        stopped = self._specs.stopped(queue, one.namespace, one.local)
        found = one.placed(queue, matches=matches, stopped=stopped.reason)
        if state is None or not (state.evicted_ms or state.retry_ms):
            return found
        pending = found.pending
        if state.evicted_ms:
            evicted = Condition(state.evicted_reason or "Preempted", state.evicted_ms // 1_000)
            pending = pending._replace(queued=pending.queued._replace(evicted=evicted))
        if state.retry_ms > now_ms:
            pending = pending._replace(requeue_at_s=state.retry_ms // 1_000 + 1)
        elif state.retry_ms:
            pending = pending._replace(requeued=Condition("BackoffFinished", state.retry_ms // 1_000))
        return found._replace(pending=pending)

    def _holder(self, state: QueueState) -> Holder | None:
        """Return None if its ClusterQueue does not exist; the quota counts again once it does."""
        booking, one = state.booking, self._wanted.get(state.uid)
        queue = self.scheduling.queues.get(booking.cluster_queue) if booking is not None else None
        if queue is None or booking is None:
            return None
        pods = {each.name: each.pods for each in one.pod_sets} if one is not None else {}
        usage, assigned = booked(booking.pod_sets, pods, one.done if one is not None else {})
        evicted = Condition(
            state.evicted_reason or "Preempted", state.evicted_ms // 1_000, status=state.phase == "evicting"
        )
        queued = one.pending.queued if one is not None else UNKNOWN._replace(uid=state.uid)
        return Holder(
            queued._replace(evicted=evicted if state.evicted_ms else None),
            queue.node,
            assigned,
            usage,
            booking.reserved_ms // 1_000,
            self._groups(booking) if self._specs.built.sizes else (),
        )

    def _groups(self, booking: QueueBooking) -> tuple[PodGroup, ...]:
        return tuple(group for each in booking.pod_sets for group in pod_groups(each.count, each.flavors, each.usage))
