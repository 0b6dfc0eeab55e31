"""Which Job events to publish: changes in order, the newest per object. Pure.

A Job's event precedes those of its pods. Living objects are republished every ten minutes, so that readers need not
read further back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from slacktide.agents.cluster.bridge.job_facts import Job, Pod, counted_by, named_conditions, pod_facts, spec_of
from slacktide.agents.cluster.watching import each_alone
from slacktide.schemas.job_pod import JobEvent, JobEviction

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
                self._put(Key("job", uid), self._stamped(event, gone=True))
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
        spec = spec_of(job)
        event = self._stamped(
            JobEvent(uid=meta.uid, namespace=name[0], name=name[1], observed_ms=0, spec=spec, counted=counted_by(job))
        )
        known = self._jobs.get(meta.uid)
        if known is not None and (known.event.spec, known.event.counted) == (event.spec, event.counted):
            return
        if known is None:
            self._job_names[name] = meta.uid
            self._jobs[meta.uid] = _Job(event, named_conditions(spec))
        else:
            known.event = event
        self._put(Key("job", meta.uid), event)
        if known is None:
            for pod in [pod for pod in self._waiting.values() if pod.job_uid == meta.uid]:
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
        self._put(
            Key("job", uid), self._stamped(JobEvent(uid=uid, namespace=namespace, name=name, observed_ms=0, gone=True))
        )

    @each_alone("job pods")
    def pod(self, pod: Pod) -> None:
        """Record that a pod was added or changed."""
        uid, name = pod.job_uid, (pod.metadata.namespace, pod.metadata.name)
        known_as = self._pod_names.get(name)
        if known_as is not None and known_as[1] != pod.metadata.uid:
            self.pod_gone(*name)
        job = self._jobs.get(uid)
        if job is None:
            if uid and not (pod.ended and not pod.tracked):
                self._waiting[name] = pod
            return
        before = job.pods.get(pod.metadata.uid)
        if before is None and not self._is_new(pod):
            return
        facts = pod_facts(pod, job.conditions, None if before is None else before.pod)
        if facts.eviction is None and (eviction := self._evictions.pop(facts.uid, None)) is not None:
            facts = msgspec.structs.replace(facts, eviction=eviction)
        if before is not None and before.pod == facts:
            return
        event = self._stamped(JobEvent(uid=uid, namespace=name[0], name=job.event.name, observed_ms=0, pod=facts))
        self._put(Key("pod", facts.uid), event)
        if facts.last:
            self._forget(job, name, event)
        else:
            job.pods[facts.uid] = event
            self._pod_names[name] = uid, facts.uid

    def _is_new(self, pod: Pod) -> bool:
        """Return whether to follow a new pod: not if the controller already counted it."""
        if pod.ended and not pod.tracked:
            return False
        full = len(self._pod_names) >= PODS_MAX
        self.refused_pods += full
        return not full

    def pod_gone(self, namespace: str, name: str) -> None:
        """Record that a pod was deleted."""
        self._waiting.pop((namespace, name), None)
        job_uid, uid = self._pod_names.get((namespace, name), ("", ""))
        job = self._jobs.get(job_uid)
        if job is None:
            return
        before = job.pods[uid]
        assert before.pod is not None
        event = self._stamped(msgspec.structs.replace(before, pod=msgspec.structs.replace(before.pod, last=True)))
        self._put(Key("pod", uid), event)
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
        event = self._stamped(msgspec.structs.replace(event, pod=msgspec.structs.replace(event.pod, eviction=eviction)))
        if event.pod is not None and not event.pod.last:
            self._jobs[event.uid].pods[uid] = event
        self._put(Key("pod", uid), event)

    def name_again(self) -> None:
        """Republish living objects that were not written for ten minutes."""
        now_ms = self._now_ms()
        if now_ms < self._named_ms + AGAIN_MS // 10:
            return
        self._named_ms = now_ms
        for uid, job in self._jobs.items():
            if job.event.observed_ms + AGAIN_MS <= now_ms:
                job.event = self._stamped(job.event)
                self._put(Key("job", uid), job.event)
            for pod_uid, event in job.pods.items():
                if event.observed_ms + AGAIN_MS <= now_ms:
                    job.pods[pod_uid] = self._stamped(event)
                    self._put(Key("pod", pod_uid), job.pods[pod_uid])

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
                bare = msgspec.structs.replace(job.event, spec=None, counted=None, listed=True)
                self._put(Key("listed", uid), self._stamped(bare))

    def _forget(self, job: _Job, name: Name, event: JobEvent) -> None:
        assert event.pod is not None
        uid = event.pod.uid
        job.pods.pop(uid, None)
        self._pod_names.pop(name, None)
        self._gone[uid] = event
        _bounded(self._gone)

    def _stamped(self, event: JobEvent, *, gone: bool = False) -> JobEvent:
        return msgspec.structs.replace(
            event, writer_epoch=self._epoch, observed_ms=self._now_ms(), gone=gone or event.gone
        )

    def _put(self, key: Key, event: JobEvent) -> None:
        self.pending[key] = event


def _bounded(kept: dict[str, JobEvent] | dict[str, JobEviction]) -> None:
    while len(kept) > GONE_MAX:
        del kept[next(iter(kept))]
