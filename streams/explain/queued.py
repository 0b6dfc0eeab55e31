"""Where a Job stands in its queue: position, reason, wait, what it lacks, and who preempted it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slacktide.schemas.queue import REQUEUING_LIMIT, QueueDecision, QueueEviction, QueueState
from slacktide.schemas.queue_objects import LocalQueueObject, QueueObject, WorkloadObject
from slacktide.schemas.topics import QUEUE_STATE
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster
from slacktide.streams.decisions.queue.missing import missing
from slacktide.streams.decisions.queue.pending_queue import AT_ONCE, BAD_SHAPE
from slacktide.streams.decisions.queue.queue_order import place
from slacktide.streams.decisions.queue.room import NO_ROOM
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings, Workload
from slacktide.streams.decisions.queue.wait import WINDOW_S, Wait, wait
from slacktide.streams.queue.ledger import decision_of, ledger_of
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record

NEW = QueueState(uid="-", phase="pending", epoch=0, turn=0)
"""Of a workload that was not tried yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacks:
    """How much more a Job asks for than is available; CPU in millicores, memory in bytes, others in whole units."""

    flavor: str
    resource: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """Its last preemption."""

    by: str
    """NAMESPACE/NAME, or the uid of a workload that is gone."""
    at_ms: int
    eviction: QueueEviction


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """Of the workload of one Job."""

    workload: str
    local_queue: str
    cluster_queue: str
    """"": its LocalQueue leads to none."""
    state: QueueState
    reason: str
    """Its own; of one that was not tried, that of the first of its shape: they fit alike."""
    position: int = 0
    """1: it is next. 0: it does not wait."""
    pending_count: int = 0
    """Workloads that wait in its ClusterQueue."""
    wait: Wait | None = None
    lacks: list[Lacks]
    """Without preemption, on the flavor that lacks least."""
    never: list[str]
    """Resources without quota, and pod sets that no flavor fits."""
    preempted: Preempted | None = None


class Queue:
    """The queue by its topics, for questions about single Jobs.

    Args:
        records: of the topics of specs, workloads and states.

    """

    def __init__(self, records: Iterable[Record]) -> None:
        records = list(records)
        self._states = ledger_of([one for one in records if one.topic == QUEUE_STATE.name], ()).states
        self._objects: Sequence[QueueObject] = objects_of(records)

    def workload(self, namespace: str, name: str, uid: str = "") -> WorkloadObject | None:
        """The newest workload of a Job; ``uid``: the Job's, where it is known."""
        made = re.compile(rf"job-{re.escape(name)}-[0-9a-f]{{5}}")
        found = [
            one
            for one in self._objects
            if isinstance(one, WorkloadObject)
            and (one.metadata.namespace or "default") == namespace
            and (one.metadata.name == name or one.metadata.uid == uid or made.fullmatch(one.metadata.name))
        ]
        return max(
            found, key=lambda one: (one.metadata.uid == uid, one.metadata.creation_timestamp or ""), default=None
        )

    def state(self, one: WorkloadObject) -> QueueState:
        """Where a workload stands."""
        return self._states.get(one.metadata.uid, NEW)

    def explained(self, one: WorkloadObject, decisions: Iterable[Record], now_ms: int) -> QueuePlace:
        """A workload's place.

        Args:
            one: of this queue.
            decisions: at least of the last hour, and from its last eviction on.
            now_ms: UTC epoch.

        """
        uid, state = one.metadata.uid, self.state(one)
        given = queue_cluster(self._concerning(one))
        mine = next((each for each in (*given.waiting, *given.admitted) if each.uid == uid), None)
        done = [found for record in decisions if (found := decision_of(record)) is not None]
        named = {each.metadata.uid: f"{each.metadata.namespace or 'default'}/{each.metadata.name}"
                 for each in self._objects if isinstance(each, WorkloadObject)}  # fmt: skip
        plain = QueuePlace(
            workload=named[uid],
            local_queue=one.spec.queue_name,
            cluster_queue=mine.queue if mine is not None else "",
            state=state,
            reason=state.reason,
            lacks=[],
            never=[],
            preempted=_preempted(uid, done, named),
        )
        if mine is None or state.phase != "pending":
            return plain
        return _waiting(plain, mine, given, done, now_ms, self._states)

    def _concerning(self, one: WorkloadObject) -> list[QueueObject]:
        """What its place depends on: of workloads those that have quota, and those of its ClusterQueue."""
        local = {
            (each.metadata.namespace or "default", each.metadata.name): each.spec.cluster_queue
            for each in self._objects
            if isinstance(each, LocalQueueObject)
        }

        def queue(each: WorkloadObject) -> str | None:
            return local.get((each.metadata.namespace or "default", each.spec.queue_name))

        mine = queue(one)
        return [
            each
            for each in self._objects
            if not isinstance(each, WorkloadObject)
            or each is one
            or each.status.admission is not None
            or queue(each) == mine
        ]


def _waiting(
    plain: QueuePlace,
    mine: Workload,
    given: QueueCluster,
    decisions: Iterable[QueueDecision],
    now_ms: int,
    states: Mapping[str, QueueState],
) -> QueuePlace:
    same = sorted((one for one in given.waiting if one.queue == mine.queue), key=lambda one: place(one.pending.queued))
    position = next((at for at, one in enumerate(same, 1) if one.uid == mine.uid), 0)
    alike = (states.get(one.uid, NEW).reason for one in same if one.pending.shape == mine.pending.shape)
    reason = plain.reason or next((each for each in alike if each in BAD_SHAPE), "")
    blocked = "" if reason in AT_ONCE else reason
    admitted = _admissions(decisions, mine.queue, now_ms)
    scheduling = Scheduling(given.queues, given.holders, Settings(given.flavors, corrected=True))
    lacking = missing(mine.pod_sets, scheduling.cluster(mine.queue, now_ms // 1_000))
    return replace(
        plain,
        reason=reason,
        position=position,
        pending_count=len(same),
        wait=wait(position, admitted, blocked_by=blocked),
        lacks=[
            Lacks(flavor=of.flavor, resource=of.resource, amount=amount)
            for of, amount in sorted(lacking.amounts.items())
        ],
        never=[*lacking.uncovered, *(f"pod set {name}" for name in lacking.unmatched)],
    )


def _admissions(decisions: Iterable[QueueDecision], queue: str, now_ms: int) -> int:
    """Of a ClusterQueue in the last hour."""
    return sum(
        each.booking is not None
        and each.booking.cluster_queue == queue
        and (each.booking.epoch, each.booking.turn) == (one.epoch, one.turn)
        for one in decisions
        if one.decided_ms > now_ms - WINDOW_S * 1_000
        for each in one.changes
    )


def _preempted(uid: str, decisions: Iterable[QueueDecision], names: dict[str, str]) -> Preempted | None:
    found = None
    for one in decisions:
        for each in one.evictions:
            if each.victim.uid == uid:
                by = names.get(each.preemptor.uid, each.preemptor.uid)
                found = Preempted(by=by, at_ms=one.decided_ms, eviction=each)
    return found


REMEDIES = {
    "ExceedsMaxQuota": "a larger quota, or a smaller Job: it asks for more than its ClusterQueue could ever use",
    REQUEUING_LIMIT: "spec.active false and then true again: its pods were not ready in time too often",
    "NamespaceMismatch": "a namespaceSelector of its ClusterQueue that selects its namespace",
    "WaitingForPodsReady": "the pods of admitted workloads, when they are ready",
    NO_ROOM: "nodes with room for all of its pods at once",
}


def remedy(one: QueuePlace) -> str:
    """What would admit a workload that waits; "": it is next."""
    if not one.cluster_queue:
        return "a LocalQueue of this name in its namespace, and its ClusterQueue"
    if one.never:
        return f"quota and a flavor for: {', '.join(one.never)}"
    return REMEDIES.get(one.reason, "")
