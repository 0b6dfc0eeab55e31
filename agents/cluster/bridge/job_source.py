"""Publishes changes of Jobs and their pods, and Slacktide's evictions of them, to Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from functools import partial

import msgspec

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.job_facts import Job, Pod, ignored_of
from slacktide.agents.cluster.bridge.job_log import JobLog, Key
from slacktide.agents.cluster.ignored_fields import IgnoredFields
from slacktide.agents.cluster.watching import each_alone, inform
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.resource import JOBS, PODS
from slacktide.agents.together import until_one_ends
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.job_pod import CHARS_MAX, JobEvent, JobEviction
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import AUDIT, JOB_POD, JOB_STATUS
from slacktide.streams.decisions.evict.node_evict import ENDS, HOLDS, observed
from slacktide.streams.kafka import Following, Refused, Sender, TailReader, read_topic
from slacktide.streams.records import Out, Record, event

log = logging.getLogger(__name__)

SOURCE = "bridge"
JOB_PODS = "batch.kubernetes.io/job-name"
"""Label that the Job controller sets on its pods."""
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
        """Return Jobs with a status in Kafka."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            known: dict[bytes | None, JobEvent | None] = {}
            try:
                async with aclosing(read_topic(self._cluster, JOB_STATUS.name)) as records:
                    async for record in records:
                        known[record.key] = _last_event(record)
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
        await inform(follow(api, PODS, Pod, labels=JOB_PODS), whole, self._log.pod, self._log.pod_gone, trouble)

    async def _take_outcomes(self, records: list[Record], _: float) -> None:
        for record in records:
            try:
                body = decode(record.value, NodeOutcome)
            except BadMessageError as exc:
                self._to_dead_letter(record, str(exc))
                continue
            if (found := _eviction(body)) is not None:
                self._log.evicted(*found)

    async def _write(self) -> None:
        """Send pending events until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            self._log.name_again()
            try:
                await self._send()
                backoff.reset()
                self._troubles["log"] = ""
                await asyncio.sleep(GATHER_S)
            except LogError as exc:
                self._troubles["log"] = str(exc)
                await asyncio.sleep(backoff.next_s())

    async def _send(self) -> None:
        while self._log.pending:
            if not self._sender.connected:
                await self._sender.connect([JOB_POD.name])
            events = dict(list(self._log.pending.items())[:AT_ONCE])
            results = await self._sender.send_each([_out(key, event) for key, event in events.items()])
            for refused in results:
                if isinstance(refused, Refused):
                    log.warning("cannot publish a Job event", extra={"why": refused.why})
            self._log.wrote(events)


def _out(key: Key, change: JobEvent) -> Out:
    event_id = f"{key.kind}/{key.uid}/{change.writer_epoch}/{change.observed_ms}"
    return event(
        JOB_POD.name, change.uid, encode(change), source=SOURCE, event_id=event_id, event_ms=change.observed_ms
    )


def _last_event(record: Record) -> JobEvent | None:
    """Return the Job of a status record; None: it was deleted."""
    try:
        status = None if record.value is None else decode(record.value, JobStatus)
    except BadMessageError:
        return None
    if status is None:
        return None
    return JobEvent(uid=status.uid, namespace=status.namespace, name=status.name, observed_ms=status.observed_ms)


def _eviction(body: NodeOutcome) -> tuple[str, JobEviction] | None:
    """Return the pod's uid and the reason, if the outcome is a completed eviction."""
    kind, _, uid = body.target.partition("/")
    if body.result != "applied" or body.pod is None or kind != "pod" or body.bound in HOLDS | ENDS:
        return None
    eviction = JobEviction(
        node=body.node,
        rule=body.rule,
        bound=body.bound,
        threshold=observed(body.terms)[:CHARS_MAX],
        acted_ms=body.acted_ms,
    )
    return uid, eviction
