"""Starts and stops Jobs of batch/v1.

A start changes the pod template, and an annotation keeps the original values, so that a stop can restore it.
"""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from slacktide.agents.cluster.queue.work import Kind, Work, Write
from slacktide.agents.kubernetes.objects import Condition, Head, Json
from slacktide.agents.kubernetes.resource import JOBS
from slacktide.schemas.errors import TextError
from slacktide.schemas.queue_objects import Metadata, Part, PodTemplate, WorkloadPodSet
from slacktide.schemas.text import answer_of, json_of
from slacktide.streams.decisions.queue.job import (
    Admission,
    Conflict,
    JobProgress,
    JobTemplate,
    min_count,
    reclaimable_pods,
    stopped,
)
from slacktide.streams.decisions.queue.kinds.manifest import changed, merge_patch
from slacktide.streams.decisions.queue.kinds.placing import HERE, ORIGINAL, Template, begun, differences, template_at

MAIN = "main"
POD_LABEL = "batch.kubernetes.io/controller-uid"


class _Spec(Part, frozen=True, kw_only=True):
    template: Json
    suspend: bool = False
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"


class _Status(Part, frozen=True, kw_only=True):
    start_time: str | None = None
    conditions: list[Condition] | None = None
    succeeded: int = 0
    ready: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""


class _Job(Part, frozen=True, kw_only=True):
    metadata: Metadata
    spec: _Spec
    status: _Status = _Status()


class _Original(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a start replaced."""

    parallelism: int
    completions: int | None
    template: Template


def original_of(text: str) -> _Original:
    """Read the annotation. Raises TextError."""
    original: _Original = json_of(text, _Original, where=ORIGINAL)
    return original


class Job(Work):
    """A Job as read from the API server."""

    def __init__(self, raw: msgspec.Raw) -> None:
        job: _Job = answer_of(raw, _Job, where="Job", strict=False)
        head: Head = answer_of(raw, Head, where="Job")
        spec, status, template = job.spec, job.status, job.spec.template
        msgspec.convert(template, PodTemplate, strict=False)  # raises if it is invalid
        self.metadata, self.version, self.suspended = job.metadata, head.metadata.resource_version, spec.suspend
        self._start_time, self._template = status.start_time, template_at(template, HERE)
        self._annotations = job.metadata.annotations or {}
        self._now = JobTemplate(spec.suspend, spec.parallelism, spec.completions)
        self._queued, self._was = self._now, self._template
        # One that cannot be read counts as absent.
        with suppress(TextError):
            if (text := self._annotations.get(ORIGINAL)) is not None:
                before = original_of(text)
                then = self._now._replace(parallelism=before.parallelism, completions=before.completions)
                self._queued, self._was = stopped(self._now, then, self._annotations), before.template
        was = {
            **template.get("spec", {}),
            "nodeSelector": self._was.node_selector,
            "tolerations": self._was.tolerations,
        }
        made = msgspec.convert({"spec": {key: value for key, value in was.items() if value}}, PodTemplate, strict=False)
        # As many pods as run in parallel.
        count = JobProgress(self._queued.parallelism, self._queued.completions).spec_count
        self.pod_sets = [WorkloadPodSet(count=count, min_count=min_count(self._annotations), template=made)]
        progress = JobProgress(spec.parallelism, spec.completions, status.succeeded, status.ready)
        self.pods_now: Mapping[str, int] = {MAIN: progress.spec_count}
        self.ready = progress.pods_ready
        lists = (status.completed_indexes, status.failed_indexes) if spec.completion_mode == "Indexed" else None
        before_start = JobProgress(self._queued.parallelism, self._queued.completions, status.succeeded, status.ready)
        done = reclaimable_pods(before_start, lists, corrected=True)
        self.done: Mapping[str, int] = {MAIN: done} if done else {}
        conditions = {one.type for one in status.conditions or () if one.status == "True"}
        # Without a start time, the condition may predate the start.
        self.settled = "Suspended" in conditions and status.start_time is not None
        self.finished = not conditions.isdisjoint({"Complete", "Failed"})
        self.pods = [f"{POD_LABEL}={self.metadata.uid}"]

    def start(self, admitted: Mapping[str, Admission], *, again: bool) -> Json | Conflict:
        """Return the patch that sets node selector, counts and marks."""
        del again
        if MAIN not in admitted:
            return Conflict("podSetAssignments", MAIN, ", ".join(admitted), MAIN)
        now = self._now._replace(suspend=True)
        made = begun(self._template, admitted[MAIN], job=now, annotations=self._annotations)
        if isinstance(made, Conflict):
            return made
        then, numbers = made
        before = _Original(parallelism=now.parallelism, completions=now.completions, template=self._template)
        spec = {"suspend": False, "template": self._change(then), **_numbers(self._now, numbers)}
        return {"metadata": {"annotations": {ORIGINAL: msgspec.json.encode(before).decode()}}, "spec": spec}

    def stop(self) -> Json:
        """Return the patch that suspends the Job. The template can be restored only afterwards."""
        return {"spec": {"suspend": True}}

    def back(self) -> Write | None:
        """Return the next write that restores the Job. Kubernetes changes templates only without a start time."""
        if self._start_time is not None:
            return Write("reset", {"status": {"startTime": None}}, "status")
        if ORIGINAL not in self._annotations:
            return None
        body = {"metadata": {"annotations": {ORIGINAL: None}}}
        spec = {"template": self._change(self._was), **_numbers(self._now, self._queued)}
        return Write("restore", {**body, "spec": spec})

    def _change(self, then: Template) -> Json:
        """Return the merge patch of the pod template."""
        now = changed({}, dict(zip(HERE, msgspec.structs.astuple(self._template), strict=True)))
        return merge_patch(now, differences(now, HERE, then, {}))


def _numbers(now: JobTemplate, then: JobTemplate) -> Json:
    numbers = {"parallelism": then.parallelism, "completions": then.completions}
    return {name: value for name, value in numbers.items() if value != getattr(now, name)}


JOB = Kind("Job", JOBS, lambda given: Job(given[0]))
