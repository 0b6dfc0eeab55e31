"""Publishes changes of Jobs and their pods in order, the newest per object, and Slacktide's evictions of them.

A Job's event precedes those of its pods. Living objects are republished every ten minutes, so that readers need not
read further back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.job_facts import (
    Job,
    counted_by,
    eviction_of,
    ignored_of,
    is_tracked,
    job_uid_of,
    named_conditions,
    pod_facts,
    spec_of,
)
from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.cluster.watching import each_alone, inform
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.objects import Pod
from slacktide.agents.kubernetes.resource import JOBS, PODS
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError, failure
from slacktide.schemas.job_pod import JobEvent, JobEviction
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.kubernetes_pod import JOB_NAME
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import AUDIT, JOB_POD, JOB_STATUS
from slacktide.streams.kafka import Following, Refused, Sender, TailReader, read_topic
from slacktide.streams.records import Record
from slacktide.streams.records import event as record_of
from slacktide.streams.tasks import until_one_ends

log = logging.getLogger(__name__)

AGAIN_MS = 600_000
PODS_MAX = 200_000
"""Limit for followed pods, at some 1 KB each."""
GONE_MAX = 10_000
"""Deleted pods that are kept for late reports of their eviction."""
Name = tuple[str, str]


class Key(NamedTuple):
    """The object of an event."""

    kind: str
    uid: str


@dataclass(slots=True)
class _Job:
    event: JobEvent
    conditions: frozenset[str]
    pods: dict[str, JobEvent] = field(default_factory=dict)
    """By uid, pods that live or are not counted yet."""


class JobLog:
    """Events of one term. ``known``: by uid, Jobs of earlier terms; those that are not listed were deleted."""

    def __init__(self, writer_epoch: int, known: Iterable[JobEvent], now_ms: Callable[[], int]) -> None:
        self.pending: dict[Key, JobEvent] = {}
        self.refused_pods = 0
        """Pods that are not followed because of the limit."""
        self._epoch = writer_epoch
        self._now_ms = now_ms
        self._jobs: dict[str, _Job] = {}
        self._job_names: dict[Name, str] = {}
        self._pod_names: dict[Name, tuple[str, str]] = {}
        """UIDs of the Job and the pod."""
        self._waiting: dict[Name, Pod] = {}
        """Pods whose Job is unknown yet."""
        self._earlier = {one.uid: one for one in known}
        self._listed: set[str] = set()
        self._evictions: dict[str, JobEviction] = {}
        self._gone: dict[str, JobEvent] = {}
        self._named_ms = now_ms()

    def jobs_listed(self, jobs: Sequence[Job]) -> None:
        """Receive the complete list of Jobs."""
        there = {(one.metadata.namespace, one.metadata.name) for one in jobs}
        for name in [name for name in self._job_names if name not in there]:
            self.job_gone(*name)
        for job in jobs:
            self.job(job)
        for uid, event in self._earlier.items():
            if uid not in self._jobs:
                self._put("job", uid, event, gone=True)
        self._earlier = {}
        self._named("jobs")

    def pods_listed(self, pods: Sequence[Pod]) -> None:
        """Receive the complete list of Job pods."""
        there = {(one.metadata.namespace, one.metadata.name) for one in pods}
        for name in [name for name in (*self._pod_names, *self._waiting) if name not in there]:
            self.pod_gone(*name)
        for pod in pods:
            self.pod(pod)
        self._named("pods")

    @each_alone("jobs")
    def job(self, job: Job) -> None:
        """Record that a Job was added or changed."""
        meta = job.metadata
        name = meta.namespace, meta.name
        if self._job_names.get(name, meta.uid) != meta.uid:
            self.job_gone(*name)
        spec, counted = spec_of(job), counted_by(job)
        known = self._jobs.get(meta.uid)
        if known is not None and (known.event.spec, known.event.counted) == (spec, counted):
            return
        event = JobEvent(uid=meta.uid, namespace=name[0], name=name[1], observed_ms=0, spec=spec, counted=counted)
        event = self._put("job", meta.uid, event)
        if known is not None:
            known.event = event
        else:
            self._job_names[name] = meta.uid
            self._jobs[meta.uid] = _Job(event, named_conditions(spec))
            for pod in [pod for pod in self._waiting.values() if job_uid_of(pod) == meta.uid]:
                self.pod(self._waiting.pop((pod.metadata.namespace, pod.metadata.name)))

    def job_gone(self, namespace: str, name: str) -> None:
        """Record that a Job was deleted."""
        uid = self._job_names.pop((namespace, name), None)
        if uid is None:
            return
        job = self._jobs.pop(uid)
        for pod in job.pods.values():
            assert pod.pod is not None
            self._pod_names.pop((namespace, pod.pod.name), None)
        self.pending.pop(Key("job", uid), None)  # its final event goes last
        self._put("job", uid, JobEvent(uid=uid, namespace=namespace, name=name, observed_ms=0, gone=True))

    @each_alone("job pods")
    def pod(self, pod: Pod) -> None:
        """Record that a pod was added or changed."""
        uid, name = job_uid_of(pod), (pod.metadata.namespace, pod.metadata.name)
        known_as = self._pod_names.get(name)
        if known_as is not None and known_as[1] != pod.metadata.uid:
            self.pod_gone(*name)
        job, counted = self._jobs.get(uid), pod.ended and not is_tracked(pod)
        if job is None:
            if uid and not counted:
                self._waiting[name] = pod
            return
        before = job.pods.get(pod.metadata.uid)
        if before is None and (counted or len(self._pod_names) >= PODS_MAX):
            self.refused_pods += not counted
            return
        facts = pod_facts(pod, job.conditions, None if before is None else before.pod)
        if facts.eviction is None and (eviction := self._evictions.pop(facts.uid, None)) is not None:
            facts = msgspec.structs.replace(facts, eviction=eviction)
        if before is not None and before.pod == facts:
            return
        event = JobEvent(uid=uid, namespace=name[0], name=job.event.name, observed_ms=0, pod=facts)
        event = self._put("pod", facts.uid, event)
        if facts.last:
            self._forget(job, name, event)
        else:
            job.pods[facts.uid] = event
            self._pod_names[name] = uid, facts.uid

    def pod_gone(self, namespace: str, name: str) -> None:
        """Record that a pod was deleted."""
        self._waiting.pop((namespace, name), None)
        job_uid, uid = self._pod_names.get((namespace, name), ("", ""))
        job = self._jobs.get(job_uid)
        if job is None:
            return
        before = job.pods[uid]
        assert before.pod is not None
        event = self._put("pod", uid, before, pod=msgspec.structs.replace(before.pod, last=True))
        self._forget(job, (namespace, name), event)

    def evicted(self, uid: str, eviction: JobEviction) -> None:
        """Slacktide evicted a pod, which may belong to a Job."""
        event = self._gone.get(uid)
        for job in self._jobs.values() if event is None else ():
            if uid in job.pods:
                event = job.pods[uid]
                break
        if event is None or event.pod is None:
            self._evictions[uid] = eviction
            _bounded(self._evictions)
            return
        if event.pod.eviction is not None:
            return
        last = event.pod.last
        event = self._put("pod", uid, event, pod=msgspec.structs.replace(event.pod, eviction=eviction))
        if not last:
            self._jobs[event.uid].pods[uid] = event

    def name_again(self) -> None:
        """Republish living objects that were not written for ten minutes."""
        now_ms = self._now_ms()
        if now_ms < self._named_ms + AGAIN_MS // 10:
            return
        self._named_ms = now_ms
        for uid, job in self._jobs.items():
            if job.event.observed_ms + AGAIN_MS <= now_ms:
                job.event = self._put("job", uid, job.event)
            for pod_uid, event in job.pods.items():
                if event.observed_ms + AGAIN_MS <= now_ms:
                    job.pods[pod_uid] = self._put("pod", pod_uid, event)

    def wrote(self, events: dict[Key, JobEvent]) -> None:
        """These events are in Kafka; newer ones stay pending."""
        for key, event in events.items():
            if self.pending.get(key) is event:
                del self.pending[key]

    def _named(self, what: str) -> None:
        """After both lists no pod of an earlier term is unknown."""
        if self._listed == {"jobs", "pods"}:
            return
        self._listed.add(what)
        if len(self._listed) == 2:
            for uid, job in self._jobs.items():
                self._put("listed", uid, job.event, spec=None, counted=None, listed=True)

    def _forget(self, job: _Job, name: Name, event: JobEvent) -> None:
        assert event.pod is not None
        uid = event.pod.uid
        job.pods.pop(uid, None)
        self._pod_names.pop(name, None)
        self._gone[uid] = event
        _bounded(self._gone)

    def _put(self, kind: str, uid: str, event: JobEvent, **changes: Any) -> JobEvent:
        """Let it be written, by this term and now."""
        changes |= {"writer_epoch": self._epoch, "observed_ms": self._now_ms()}
        self.pending[Key(kind, uid)] = event = msgspec.structs.replace(event, **changes)
        return event


def _bounded(kept: dict[str, JobEvent] | dict[str, JobEviction]) -> None:
    while len(kept) > GONE_MAX:
        del kept[next(iter(kept))]


SOURCE = "bridge"
AT_ONCE = 500
GATHER_S = 0.1
"""Changes gather for this time: a Job with many pods changes constantly."""
RETRY_S, RETRY_MAX_S = 0.5, 5.0
AUDIT_BACK_MS = 600_000


class JobSource:
    """Publishes slacktide.job.pod.v1 in one term. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(
        self,
        cluster: Cluster,
        writer_epoch: int,
        to_dead_letter: Callable[[Record, str], None],
        clock: Clock,
        ignored: IgnoredFields,
    ) -> None:
        self._cluster = cluster
        self._epoch = writer_epoch
        self._to_dead_letter, self._clock, self._ignored = to_dead_letter, clock, ignored
        self._log = JobLog(writer_epoch, (), clock.wall_ms)
        self._sender = Sender(cluster, client_id="slacktide-bridge-jobs", acks="all")
        self._following = Following(
            TailReader(
                cluster, (AUDIT.name,), client_id="slacktide-bridge-jobs", back_ms=AUDIT_BACK_MS, now_ms=clock.wall_ms
            ),
            away="evictions are not assigned to Jobs",
            clock=clock,
        )
        self._troubles = {"jobs": "", "pods": "", "log": ""}

    @property
    def trouble(self) -> str:
        """Why Job events are not published; "": they are."""
        many = f"{self._log.refused_pods} pods are not tracked: too many pods" if self._log.refused_pods else ""
        return next((why for why in self._troubles.values() if why), many)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        self._log = JobLog(self._epoch, await self._known(), self._clock.wall_ms)
        try:
            await until_one_ends(
                self._follow_jobs(api),
                self._follow_pods(api),
                self._following.run(lambda: None, self._take_outcomes),
                self._write(),
            )
        finally:
            await self._sender.close()

    async def _known(self) -> list[JobEvent]:
        """Return Jobs with a status in Kafka, which deleted ones have not."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            known: dict[bytes | None, JobEvent | None] = {}
            try:
                async with aclosing(read_topic(self._cluster, JOB_STATUS.name)) as records:
                    async for record in records:
                        known[record.key] = None
                        with suppress(BadMessageError):
                            if record.value is not None:
                                one = decode(record.value, JobStatus)
                                known[record.key] = JobEvent(
                                    uid=one.uid, namespace=one.namespace, name=one.name, observed_ms=one.observed_ms
                                )
            except LogError as exc:
                self._troubles["log"] = str(exc)
                await asyncio.sleep(backoff.next_s())
                continue
            return [event for event in known.values() if event is not None]

    async def _follow_jobs(self, api: ApiServer) -> None:
        def whole(jobs: list[Job]) -> None:
            metrics.LISTED.labels("jobs").inc()
            self._log.jobs_listed(jobs)
            for job in jobs:
                self._look(job)

        def changed(job: Job) -> None:
            self._log.job(job)
            self._look(job)

        trouble = partial(self._troubles.__setitem__, "jobs")
        await inform(follow(api, JOBS, Job), whole, changed, self._log.job_gone, trouble)

    @each_alone("jobs")
    def _look(self, job: Job) -> None:
        self._ignored.take("Job", msgspec.to_builtins(job.metadata), ignored_of(job))

    async def _follow_pods(self, api: ApiServer) -> None:
        def whole(pods: list[Pod]) -> None:
            metrics.LISTED.labels("job pods").inc()
            self._log.pods_listed(pods)

        trouble = partial(self._troubles.__setitem__, "pods")
        await inform(follow(api, PODS, Pod, labels=JOB_NAME), whole, self._log.pod, self._log.pod_gone, trouble)

    async def _take_outcomes(self, records: list[Record], _: float) -> None:
        for record in records:
            try:
                body = decode(record.value, NodeOutcome)
                if (eviction := eviction_of(body)) is not None:
                    self._log.evicted(body.target.removeprefix("pod/"), eviction)
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                self._to_dead_letter(record, failure("assign to its Job", exc))

    async def _write(self) -> None:
        """Send pending events until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            self._log.name_again()
            try:
                while self._log.pending:
                    if not self._sender.connected:
                        await self._sender.connect([JOB_POD.name])
                    events = dict(list(self._log.pending.items())[:AT_ONCE])
                    records = [
                        record_of(
                            JOB_POD.name,
                            event.uid,
                            encode(event),
                            source=SOURCE,
                            event_id=f"{key.kind}/{key.uid}/{event.writer_epoch}/{event.observed_ms}",
                            event_ms=event.observed_ms,
                        )
                        for key, event in events.items()
                    ]
                    results = await self._sender.send_each(records)
                    for refused in results:
                        if isinstance(refused, Refused):
                            log.warning("cannot publish a Job event", extra={"why": refused.why})
                    self._log.wrote(events)
                backoff.reset()
                self._troubles["log"] = ""
                await asyncio.sleep(GATHER_S)
            except LogError as exc:
                self._troubles["log"] = str(exc)
                await asyncio.sleep(backoff.next_s())
