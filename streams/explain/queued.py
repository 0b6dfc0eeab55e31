"""Explains a Job's place in its queue: position, reason, waiting time, missing quota, preemption. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from slacktide.schemas.queue import QueueDecision, QueueEviction, QueueState
from slacktide.schemas.queue_objects import LocalQueueObject, WorkloadObject
from slacktide.schemas.topics import QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster
from slacktide.streams.decisions.queue.missing import WINDOW_S, Wait, meaning, missing, wait
from slacktide.streams.decisions.queue.queue_order import AT_ONCE, BAD_SHAPE, place
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings, Workload
from slacktide.streams.queue.ledger import decision_of, last_of_each, ledger_of
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record

Key = bytes | None
NEW = QueueState(uid="-", phase="pending", epoch=0, turn=0)
"""A workload that was not tried yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacks:
    """Missing quota; CPU in millicores, memory in bytes, others in whole units."""

    flavor: str
    resource: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """The workload's last preemption."""

    by: str
    """NAMESPACE/NAME, or the uid of a deleted workload."""
    at_ms: int
    eviction: QueueEviction


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The workload of one Job."""

    workload: str
    local_queue: str
    cluster_queue: str
    """"": its LocalQueue has none."""
    state: QueueState
    reason: str
    """The workload's own reason; before its first attempt that of the first workload of its shape."""
    position: int = 0
    """1: next. 0: it is not pending."""
    pending_count: int = 0
    """Pending workloads in its ClusterQueue."""
    wait: Wait | None = None
    lacks: list[Lacks]
    """The missing quota without preemption, on the closest flavor."""
    never: list[str]
    """Resources without quota, and pod sets that no flavor fits."""
    preempted: Preempted | None = None


class Queue:
    """The queue's state, for single Jobs.

    Args:
        records: of the spec, workload and state topics.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        of: defaultdict[str, list[Record]] = defaultdict(list)
        for record in records:
            of[record.topic].append(record)
        self._specs = objects_of(of[QUEUE_SPEC.name])
        self._workloads = {record.key: record for record in last_of_each(of[QUEUE_WORKLOAD.name])}
        self._states = of[QUEUE_STATE.name]

    def workload(self, namespace: str, name: str, uid: str = "") -> WorkloadObject | None:
        """Return the newest workload of a Job; ``uid``: the Job's, if known."""
        made = re.compile(rf"job-{re.escape(name)}-[0-9a-f]{{5}}")
        found = [
            one
            for one in self._read(self._naming([_quoted(name), f'"job-{name}-'.encode()]) | {uid.encode()})
            if (one.metadata.namespace or "default") == namespace
            and (one.metadata.name == name or one.metadata.uid == uid or made.fullmatch(one.metadata.name))
        ]
        return max(
            found, key=lambda one: (one.metadata.uid == uid, one.metadata.creation_timestamp or ""), default=None
        )

    def state(self, one: WorkloadObject) -> QueueState:
        """Return a workload's state."""
        return self._states_of({one.metadata.uid.encode()}).get(one.metadata.uid, NEW)

    def explained(self, one: WorkloadObject, decisions: Iterable[Record], now_ms: int) -> QueuePlace:
        """Return a workload's place.

        Args:
            one: a workload of this queue.
            decisions: of the last hour, and from its last eviction on.
            now_ms: UTC epoch.
        """
        uid = one.metadata.uid
        keys = self._concerning(one)
        states = self._states_of(keys)
        given = queue_cluster([*self._specs, *self._read(keys)])
        mine = next((each for each in (*given.waiting, *given.admitted) if each.uid == uid), None)
        done = [found for record in decisions if (found := decision_of(record)) is not None]
        plain = QueuePlace(
            workload=_named(one),
            local_queue=one.spec.queue_name,
            cluster_queue=mine.queue if mine is not None else "",
            state=states.get(uid, NEW),
            reason=states.get(uid, NEW).reason,
            lacks=[],
            never=[],
            preempted=self._preempted(uid, done),
        )
        if mine is None or plain.state.phase != "pending":
            return plain
        return _waiting(plain, mine, given, done, now_ms, states)

    def _concerning(self, one: WorkloadObject) -> set[Key]:
        """Return the workloads that affect its place: those with quota, and those in its ClusterQueue."""
        local = {
            (each.metadata.namespace or "default", each.metadata.name): each.spec.cluster_queue
            for each in self._specs
            if isinstance(each, LocalQueueObject)
        }
        mine = local.get((one.metadata.namespace or "default", one.spec.queue_name))
        names = {name for (_, name), queue in local.items() if queue == mine} | {one.spec.queue_name}
        holding = {record.key for record in self._states if b'"booking"' in (record.value or b"")}
        return holding | self._naming(map(_quoted, names)) | {one.metadata.uid.encode()}

    def _naming(self, texts: Iterable[bytes]) -> set[Key]:
        """Return the keys of workloads that contain one of these texts: decoding all would take a second."""
        texts = list(texts)
        return {key for key, record in self._workloads.items() if any(text in (record.value or b"") for text in texts)}

    def _read(self, keys: Collection[Key]) -> list[WorkloadObject]:
        chosen = [record for record in self._workloads.values() if record.key in keys]
        found = objects_of([*chosen, *(record for record in self._states if record.key in keys)])
        return [one for one in found if isinstance(one, WorkloadObject)]

    def _states_of(self, keys: Collection[Key]) -> Mapping[str, QueueState]:
        return ledger_of([record for record in self._states if record.key in keys], ()).states

    def _preempted(self, uid: str, decisions: Iterable[QueueDecision]) -> Preempted | None:
        found = [(one, each) for one in decisions for each in one.evictions if each.victim.uid == uid]
        if not found:
            return None
        decision, eviction = found[-1]
        by = self._read({eviction.preemptor.uid.encode()})
        return Preempted(
            by=_named(by[0]) if by else eviction.preemptor.uid, at_ms=decision.decided_ms, eviction=eviction
        )


def _named(one: WorkloadObject) -> str:
    return f"{one.metadata.namespace or 'default'}/{one.metadata.name}"


def _quoted(name: str) -> bytes:
    return f'"{name}"'.encode()


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
    return sum(
        each.booking is not None
        and each.booking.cluster_queue == queue
        and (each.booking.epoch, each.booking.turn) == (one.epoch, one.turn)
        for one in decisions
        if one.decided_ms > now_ms - WINDOW_S * 1_000
        for each in one.changes
    )


def borrowed(queue: str, before: float, after: float) -> str:
    """Return what a ClusterQueue borrows of its cohort, by its weight, before and after a preemption; "": nothing."""
    return f"{queue} borrowed {before / 10:g}% of its cohort, and then {after / 10:g}%" if before or after else ""


def remedy(one: QueuePlace) -> str:
    """Return the change that would admit a pending workload; "": it is next."""
    if not one.cluster_queue:
        return "a LocalQueue of this name in its namespace, and its ClusterQueue"
    if one.never:
        return f"quota and a flavor for {', '.join(one.never)}"
    return meaning(one.reason).remedy
