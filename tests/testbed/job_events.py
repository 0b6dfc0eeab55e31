"""Events of Jobs as the bridge writes them, the log that they are in, and a worker that folds it and may be killed."""

from typing import Any

import msgspec

from slacktide.schemas.codec import encode
from slacktide.schemas.job_pod import ContainerExit, FailureRule, JobEvent, JobPodFacts, JobSpec
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.topics import JOB_POD
from slacktide.streams.jobs.fold import JobFold
from slacktide.streams.jobs.folder import Folder, statuses_of
from slacktide.streams.records import Record

SLIDE = [
    FailureRule(action="FailJob", pod_conditions={"ConfigIssue": "True"}),
    FailureRule(action="Ignore", pod_conditions={"DisruptionTarget": "True"}),
    FailureRule(action="FailJob", operator="In", values=[1, 2, 126, 127, 128, 139]),
    FailureRule(action="Ignore", operator="In", values=[130, 137, 138, 147]),
]
"""The podFailurePolicy of the talk that Kubernetes' batch working group gave."""


def pod(name: str, phase: str = "Running", **other: Any) -> JobPodFacts:
    """A pod that its controller has not counted."""
    code = other.pop("code", None)
    exits = [] if code is None else [ContainerExit(name="main", exit_code=code)]
    return JobPodFacts(uid=f"uid-{name}", name=name, phase=phase, tracked=True, exits=exits, **other)


def event(*, job: str = "j", at: int = 0, **other: Any) -> JobEvent:
    return JobEvent(uid=job, namespace="jobs", name=job, observed_ms=at, **other)


def folded(spec: JobSpec, *pods: JobPodFacts, job: str = "j") -> JobStatus:
    """A Job whose pods were so, one after another."""
    fold = JobFold()
    fold.take(event(job=job, spec=spec), 0)
    for at, one in enumerate(pods, 1):
        fold.take(event(job=job, pod=one, at=at * 1_000), at)
    return fold.status()


def by_rule(status: JobStatus) -> dict[str, int]:
    """How many pods failed by which rule."""
    return {one.why: one.pods for one in status.failures}


def records(events: list[JobEvent]) -> list[Record]:
    return [
        Record(topic=JOB_POD.name, partition=0, offset=offset, timestamp_ms=0, key=one.uid.encode(), value=encode(one))
        for offset, one in enumerate(events)
    ]


class KilledWorker:
    """Folds a partition, and forgets all but what it published and committed when it is killed."""

    def __init__(self, log: list[Record]) -> None:
        self._log = log
        self._statuses: list[Record] = []
        self._cursor = 0
        self._position = 0
        self.start()

    def start(self) -> None:
        self._folder = Folder(0, self._statuses)
        self._position = self._cursor

    def fold(self, count: int) -> None:
        assert not self._folder.take(self._log[self._position : self._position + count], 0), "no dead letters"
        self._position = min(len(self._log), self._position + count)

    def publish(self, *, commit: bool = True) -> None:
        """Publish what is due; a kill may come before the commit."""
        for out in self._folder.due(0):
            self._statuses.append(
                Record(
                    topic=out.topic,
                    partition=0,
                    offset=len(self._statuses),
                    timestamp_ms=0,
                    key=out.key,
                    value=out.value,
                )
            )
        if commit:
            self._cursor = self._folder.cursor(self._position)

    def final(self) -> dict[str, JobStatus]:
        """All statuses at the log's end, without offsets."""
        self.fold(len(self._log))
        self.publish()
        found = statuses_of(self._statuses)
        return {uid: msgspec.structs.replace(status, folded_to=0) for uid, status in found.items()}
