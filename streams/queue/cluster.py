"""The queue's objects and workloads, and the scheduling state derived from them and the ledger.

Converts results of rules to fields of records: timeouts for ready pods, pod sets, evictions.
"""

from collections.abc import Iterable, Mapping, Sequence

from slacktide.schemas.bounds import AMOUNT_MAX, INT64_MAX
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.queue import (
    REQUEUING_LIMIT,
    PodsReadySettings,
    QueueEviction,
    QueueParty,
    QueuePodSet,
    QueueState,
    Result,
)
from slacktide.schemas.queue_objects import QueueObject
from slacktide.streams.decisions.queue.assign import Assignment
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, QueueObjects, Stopped, sharing_queues
from slacktide.streams.decisions.queue.cycle import Eviction, Party
from slacktide.streams.decisions.queue.flavor_match import pod_groups
from slacktide.streams.decisions.queue.job import (
    PodsReadyAction,
    PodsReadyConfig,
    Waiting,
    pods_ready_action,
    pods_ready_condition,
)
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
        self._put_some([change for record in records if (change := self._change(record, bad)) is not None], bad)
        return bad

    def _put_some(self, changes: Sequence[Change], bad: list[tuple[Record, str]]) -> None:
        """Put as many together as possible: an invalid one must not keep the others out."""
        try:
            self._put(changes)
        except Exception as exc:  # noqa: BLE001 - of whatever is in one
            if len(changes) == 1:
                bad.append((changes[0][0], failure("put together", exc)))
                return
            half = len(changes) // 2
            self._put_some(changes[:half], bad)
            self._put_some(changes[half:], bad)

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
                scheduling.hold(holder)
            if state.phase == "evicting" and state.preemptor:
                scheduling.stops_for(uid, state.preemptor)
            scheduling.pods_ready(uid, ready=state.pods_ready)
            return
        known = scheduling.known.get(uid)
        if workload is None or (known is not None and known.queue != workload.queue):
            scheduling.delete(uid)
        scheduling.release(uid)
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
        sized = booking.pod_sets if self._specs.built.sizes else ()
        groups = tuple(group for each in sized for group in pod_groups(each.count, each.flavors, each.usage))
        return Holder(
            queued._replace(evicted=evicted if state.evicted_ms else None),
            queue.node,
            assigned,
            usage,
            booking.reserved_ms // 1_000,
            groups,
        )


TIMEOUT = "PodsReadyTimeout"
NOTHING_DUE = PodsReadyAction("none")


def ready_reason(state: QueueState, result: Result) -> str:
    """Return the reason of the condition PodsReady after an outcome; "": its pods were never ready."""
    old = _condition(state)
    _, reason = pods_ready_condition(old, admitted=True, ready=result == "ready")
    return "" if reason == "WaitForStart" else reason


def action(state: QueueState, settings: PodsReadySettings | None, now_ms: int) -> PodsReadyAction:
    """Return the action for an admitted workload."""
    if settings is None or state.booking is None or state.phase != "reserved" or state.pods_ready:
        return NOTHING_DUE
    waiting = Waiting(
        state.booking.reserved_ms // 1_000, pods_ready=_condition(state), requeue_count=state.requeue_count
    )
    config = PodsReadyConfig(
        settings.timeout_s,
        settings.recovery_timeout_s,
        settings.backoff_base_s,
        settings.backoff_max_s,
        corrected=True,
        backoff_limit_count=settings.backoff_limit,
    )
    return pods_ready_action(waiting, config, now_ms // 1_000)


def evicted(done: PodsReadyAction, now_ms: int) -> tuple[str, Mapping[str, object]]:
    """Return the reason of an eviction, and the fields that it changes."""
    if done.action == "deactivate":
        return REQUEUING_LIMIT, {"evicted_ms": now_ms, "evicted_reason": "Deactivated"}
    return TIMEOUT, {
        "evicted_ms": now_ms,
        "evicted_reason": TIMEOUT,
        "requeue_count": done.requeue_count,
        "retry_ms": done.requeue_at_s * 1_000,
    }


def _condition(state: QueueState) -> Condition | None:
    if not state.ready_reason:
        return None
    return Condition(state.ready_reason, state.ready_ms // 1_000, state.pods_ready)


def pod_sets_of(done: Assignment) -> list[QueuePodSet]:
    """Return the pod sets of an assignment."""
    return [
        QueuePodSet(
            name=one.name,
            count=one.pods,
            flavors={resource: one.flavors[resource].flavor for resource in sorted(one.flavors)},
            usage={resource: min(one.requests[resource], INT64_MAX) for resource in sorted(one.flavors)},
        )
        for one in done.pod_sets
    ]


def eviction_record(one: Eviction) -> QueueEviction:
    """Return the record of an eviction."""
    return QueueEviction(cycle=one.cycle, preemptor=_party(one.preemptor), victim=_party(one.victim), reason=one.reason)


def _party(one: Party) -> QueueParty:
    return QueueParty(
        uid=one.uid,
        cluster_queue=one.queue,
        priority=one.priority,
        share_before=min(one.share_before, float(AMOUNT_MAX)),
        share_after=min(one.share_after, float(AMOUNT_MAX)),
    )
