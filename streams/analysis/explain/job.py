"""Explains a Job's status, progress and failures, and its place in its queue. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.queue import QueueDecision, QueueEviction, QueueState
from slacktide.schemas.queue_objects import LocalQueueObject, WorkloadObject
from slacktide.schemas.topics import JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.schemas.units import count
from slacktide.streams.analysis.explain.evidence import Finding, Logged, Place, by_key, ignored_findings, logged
from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster
from slacktide.streams.decisions.queue.missing import WINDOW_S, Wait, meaning, missing, wait
from slacktide.streams.decisions.queue.queue_order import AT_ONCE, of_shape, place
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings, Workload
from slacktide.streams.queue.ledger import decision_of, last_of_each, ledger_of
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record

PACE_POINTS = 8
"""The newest points of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """One Job's explanation."""

    namespace: str
    name: str
    asked_ms: int
    place: Place
    """The position of the status record."""
    age_ms: int
    left: int | None
    """Pods that must still succeed; None: unknown, as for a work queue."""
    pace_per_min: float | None
    """Successes per minute, by the newest points of progress."""
    findings: list[Finding]
    status: JobStatus
    queue: QueuePlace | None = None
    """None: it is in no queue."""


def statuses(records: Iterable[Record]) -> list[Logged[JobStatus]]:
    """Return the last status of each existing Job."""
    by_uid = by_key(records, JOB_STATUS)
    found = (logged(of_job, JOB_STATUS, JobStatus, uid) for uid, of_job in by_uid.items())
    return [each[-1] for each in found if each]


def explain_job(found: Iterable[Logged[JobStatus]], namespace: str, name: str, now_ms: int) -> JobExplanation | None:
    """Return the newest Job of that name; None: unknown."""
    mine = [one for one in found if (one.body.namespace, one.body.name) == (namespace, name)]
    if not mine:
        return None
    logged_status = max(mine, key=lambda one: (one.body.observed_ms, one.place.logged_ms))
    status = logged_status.body
    left: int | None = None
    pace_per_min: float | None = None
    if not ended(status):
        if status.spec is not None and status.spec.completions is not None:
            left = max(0, status.spec.completions - status.succeeded)
        points = status.progress[-PACE_POINTS:]
        if len(points) >= 2 and points[-1].seen_ms > points[0].seen_ms:
            span_min = (points[-1].seen_ms - points[0].seen_ms) / 60_000
            pace_per_min = max(0, points[-1].succeeded - points[0].succeeded) / span_min
    return JobExplanation(
        namespace=namespace,
        name=name,
        asked_ms=now_ms,
        place=logged_status.place,
        age_ms=logged_status.age_ms(now_ms),
        left=left,
        pace_per_min=pace_per_min,
        findings=list(_findings(status)),
        status=status,
    )


def ended(status: JobStatus) -> str:
    """Return ``Complete`` or ``Failed``; "": the Job is active."""
    return next((one.type for one in status.conditions if one.type in {"Complete", "Failed"}), "")


def condition(status: JobStatus) -> str:
    """Return how the Job ended, else ``suspended``, ``running`` or ``no pod runs``."""
    if end := ended(status):
        return end
    if any(one.type == "Suspended" and one.status == "True" for one in status.conditions):
        return "suspended"
    return "running" if status.active or status.terminating else "no pods are running"


def _findings(status: JobStatus) -> Iterator[Finding]:
    spec = status.spec
    failed = next((one for one in status.conditions if one.type in {"FailureTarget", "Failed"}), None)
    if failed is not None:
        text = f"the Job failed, and does not restart: {failed.reason}: {failed.message}"
        yield Finding("job.failed", text)
    elif spec is not None and status.failed and not ended(status) and spec.backoff_limit_per_index is None:
        failures, limit = count(status.failed, "failure"), spec.backoff_limit
        name = "job.backoff-near" if 2 * status.failed > limit else "job.failures"
        yield Finding(name, f"{failures} of the {limit + 1} that fail the Job (backoffLimit {limit})")
    if status.failed_indexes:
        yield Finding("job.failed-indexes", f"permanently failed indexes: {status.failed_indexes[:200]}")
    if status.evictions:
        ignored = any(one.why.endswith(": Ignore") for one in status.failures)
        policy = "add a podFailurePolicy that ignores DisruptionTarget, so that evictions do not count as failures; "
        yield Finding(
            "job.evicted",
            f"Slacktide evicted {status.evictions} of its pods",
            advice=f"{'' if ignored else policy}save progress regularly, so that an eviction loses little work; see "
            "slacktide explain pod",
        )
    yield from ignored_findings("job", [] if spec is None else spec.ignored)
    if status.unseen_succeeded or status.unseen_failed:
        yield Finding(
            "job.unseen",
            f"known only from the Job controller: {count(status.unseen_succeeded, 'pod')} that succeeded and "
            f"{count(status.unseen_failed, 'pod')} that failed, when no bridge was running",
        )


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
    """The queue's state, for single Jobs. ``records``: of the spec, workload and state topics."""

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
        """Return a workload's place. ``decisions``: of the last hour, and from its last eviction on."""
        uid = one.metadata.uid
        keys = self._concerning(one)
        states = self._states_of(keys)
        given = queue_cluster([*self._specs, *self._read(keys)])
        mine = next((each for each in (*given.waiting, *given.admitted) if each.uid == uid), None)
        done = [found for record in decisions if (found := decision_of(record)) is not None]
        preempted = None
        if evicted := [(each, own) for each in done for own in each.evictions if own.victim.uid == uid]:
            decision, eviction = evicted[-1]
            by = self._read({eviction.preemptor.uid.encode()})
            named = _named(by[0]) if by else eviction.preemptor.uid
            preempted = Preempted(by=named, at_ms=decision.decided_ms, eviction=eviction)
        plain = QueuePlace(
            workload=_named(one),
            local_queue=one.spec.queue_name,
            cluster_queue=mine.queue if mine is not None else "",
            state=states.get(uid, NEW),
            reason=states.get(uid, NEW).reason,
            lacks=[],
            never=[],
            preempted=preempted,
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
    reason = plain.reason or next((each for each in alike if of_shape(each)), "")
    lately = [one for one in decisions if one.decided_ms > now_ms - WINDOW_S * 1_000]
    booked = ((one, each.booking) for one in lately for each in one.changes if each.booking is not None)
    admitted = sum(
        by.cluster_queue == mine.queue and (by.epoch, by.turn) == (one.epoch, one.turn) for one, by in booked
    )
    scheduling = Scheduling(given.queues, given.holders, Settings(given.flavors, corrected=True))
    lacking = missing(mine.pod_sets, scheduling.cluster(mine.queue, now_ms // 1_000))
    amounts = sorted(lacking.amounts.items())
    return replace(
        plain,
        reason=reason,
        position=position,
        pending_count=len(same),
        wait=wait(position, admitted, blocked_by="" if reason in AT_ONCE else reason),
        lacks=[Lacks(flavor=of.flavor, resource=of.resource, amount=amount) for of, amount in amounts],
        never=[*lacking.uncovered, *(f"pod set {name}" for name in lacking.unmatched)],
    )


def borrowed(queue: str, before: float, after: float) -> str:
    """Return what a ClusterQueue borrows of its cohort, by its weight, before and after a preemption; "": nothing."""
    if max(before, after) >= AMOUNT_MAX:  # endless, which a record cannot hold
        return f"{queue} borrowed although its fair weight is 0"
    return f"{queue} borrowed {before / 10:g}% of its cohort, and then {after / 10:g}%" if before or after else ""


def remedy(one: QueuePlace) -> str:
    """Return the change that would admit a pending workload; "": it is next."""
    if not one.cluster_queue:
        return "a LocalQueue of this name in its namespace, and its ClusterQueue"
    if one.never:
        return f"quota and a flavor for {', '.join(one.never)}"
    return meaning(one.reason).remedy
