"""Starts and stops Jobs of batch/v1.

A start changes the pod template, and an annotation keeps the original values, so that a stop can restore it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from slacktide.agents.cluster.queue.work import Kind, Write
from slacktide.agents.kubernetes.resource import JOBS
from slacktide.schemas.errors import TextError
from slacktide.schemas.queue_objects import Metadata, PodTemplate, ResourceFlavorObject, WorkloadPodSet
from slacktide.schemas.text import answer_of, json_of
from slacktide.streams.decisions.queue.job import (
    Admission,
    Conflict,
    Flavor,
    JobProgress,
    JobTemplate,
    Toleration,
    min_count,
    reclaimable_pods,
    started,
    stopped,
)

ORIGINAL = "slacktide.io/queue-original"
"""Annotation of a started object: JSON of the original values."""
Json = dict[str, Any]


class Template(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a pod template that a start changes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Json] = []


def template_of(raw: Mapping[str, Any]) -> Template:
    """Return the fields of a pod template from JSON."""
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    return Template(
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        node_selector=spec.get("nodeSelector") or {},
        tolerations=spec.get("tolerations") or [],
    )


def change(now: Template, then: Template) -> Json:
    """Return the merge patch from one pod template to another."""
    body: Json = {}
    metadata = {name: _keys(getattr(now, name), getattr(then, name)) for name in ("labels", "annotations")}
    if any(metadata.values()):
        body["metadata"] = {name: keys for name, keys in metadata.items() if keys}
    spec: Json = {}
    if selector := _keys(now.node_selector, then.node_selector):
        spec["nodeSelector"] = selector
    if now.tolerations != then.tolerations:
        spec["tolerations"] = then.tolerations or None
    return body | ({"spec": spec} if spec else {})


def begun(
    template: Template,
    admission: Admission,
    *,
    job: JobTemplate | None = None,
    annotations: Mapping[str, str] | None = None,
) -> tuple[Template, JobTemplate] | Conflict:
    """Return the template with the node selectors and tolerations of the assigned flavors.

    ``job``: the object's counts, if admission may change them. ``annotations``: of the object.
    """
    own = tuple(Toleration(*(str(one.get(name) or "") for name in Toleration._fields)) for one in template.tolerations)
    made = started(
        (job or JobTemplate(suspend=True, parallelism=admission.pods))._replace(
            pod_labels=template.labels,
            pod_annotations=template.annotations,
            node_selector=template.node_selector,
            tolerations=own,
        ),
        annotations or {},
        admission,
    )
    if isinstance(made, Conflict):
        return made
    added = [{key: value for key, value in one._asdict().items() if value} for one in made.tolerations[len(own) :]]
    then = Template(
        labels=dict(made.pod_labels),
        annotations=dict(made.pod_annotations),
        node_selector=dict(made.node_selector),
        tolerations=[*template.tolerations, *added],
    )
    return then, made


def flavors_of(names: Iterable[str], there: Mapping[str, ResourceFlavorObject]) -> tuple[Flavor, ...] | str:
    """Return the distinct flavors of a pod set, or the name of one that does not exist."""
    found = []
    for name in dict.fromkeys(names):
        if name not in there:
            return name
        spec = there[name].spec
        tolerations = tuple(Toleration(one.key, one.operator, one.value, one.effect) for one in spec.tolerations or ())
        found.append(Flavor(spec.node_labels or {}, tolerations))
    return tuple(found)


def _keys(now: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str | None]:
    changed: dict[str, str | None] = {key: value for key, value in then.items() if now.get(key) != value}
    return changed | dict.fromkeys(now.keys() - then.keys())


MAIN = "main"
POD_LABEL = "batch.kubernetes.io/controller-uid"


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields use Kubernetes' names."""


class _Version(_Shape, frozen=True, kw_only=True):
    resource_version: str = ""


class _Versioned(_Shape, frozen=True, kw_only=True):
    metadata: _Version


class _Condition(_Shape, frozen=True, kw_only=True):
    type: str
    status: str


class _Spec(_Shape, frozen=True, kw_only=True):
    template: Json
    suspend: bool = False
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"


class _Status(_Shape, frozen=True, kw_only=True):
    start_time: str | None = None
    conditions: list[_Condition] | None = None
    succeeded: int = 0
    ready: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""


class _Job(_Shape, frozen=True, kw_only=True):
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


class Job:
    """A Job as read from the API server."""

    def __init__(self, raw: msgspec.Raw) -> None:
        job: _Job = answer_of(raw, _Job, where="Job", strict=False)
        self.metadata = job.metadata
        head: _Versioned = answer_of(raw, _Versioned, where="Job")
        self.version = head.metadata.resource_version
        self._spec, self._status = job.spec, job.status
        self._annotations = job.metadata.annotations or {}
        self._template = template_of(job.spec.template)
        self._conditions = {one.type for one in job.status.conditions or () if one.status == "True"}
        msgspec.convert(job.spec.template, PodTemplate, strict=False)  # raises if it is invalid

    @cached_property
    def _original(self) -> _Original | None:
        """Return None if the Job has not been started, or if the annotation is invalid."""
        text = self._annotations.get(ORIGINAL)
        if text is None:
            return None
        try:
            return original_of(text)
        except TextError:
            return None

    @cached_property
    def _queued(self) -> JobTemplate:
        now = JobTemplate(self._spec.suspend, self._spec.parallelism, self._spec.completions)
        before = self._original
        if before is None:
            return now
        return stopped(now, now._replace(parallelism=before.parallelism, completions=before.completions),
                       self._annotations)  # fmt: skip

    @property
    def _was(self) -> Template:
        return self._template if self._original is None else self._original.template

    @property
    def pod_sets(self) -> list[WorkloadPodSet]:
        """Return one pod set with as many pods as run in parallel."""
        queued, was, template = self._queued, self._was, self._spec.template
        spec = {**template.get("spec", {}), "nodeSelector": was.node_selector, "tolerations": was.tolerations}
        made = msgspec.convert({"spec": {key: value for key, value in spec.items() if value}}, PodTemplate,
                               strict=False)  # fmt: skip
        count = JobProgress(queued.parallelism, queued.completions).spec_count
        return [WorkloadPodSet(count=count, min_count=min_count(self._annotations), template=made)]

    @property
    def pods_now(self) -> Mapping[str, int]:
        """Return the pod count of the current spec."""
        return {MAIN: JobProgress(self._spec.parallelism, self._spec.completions).spec_count}

    @property
    def done(self) -> Mapping[str, int]:
        """Return the number of pods within the parallelism that will not run again."""
        status, indexed = self._status, self._spec.completion_mode == "Indexed"
        progress = JobProgress(self._queued.parallelism, self._queued.completions, status.succeeded, status.ready)
        lists = (status.completed_indexes, status.failed_indexes) if indexed else None
        return {MAIN: count} if (count := reclaimable_pods(progress, lists, corrected=True)) else {}

    @property
    def suspended(self) -> bool:
        """Return whether the spec suspends the Job."""
        return self._spec.suspend

    @property
    def settled(self) -> bool:
        """Return whether ``Suspended`` holds. Without a start time, the condition may predate the start."""
        return "Suspended" in self._conditions and self._status.start_time is not None

    @property
    def ready(self) -> bool:
        """Return whether the status counts enough ready or finished pods."""
        spec, status = self._spec, self._status
        return JobProgress(spec.parallelism, spec.completions, status.succeeded, status.ready).pods_ready

    @property
    def finished(self) -> bool:
        """Return whether a condition marks the Job complete or failed."""
        return not self._conditions.isdisjoint({"Complete", "Failed"})

    @property
    def pods(self) -> str:
        """Return a selector on the label that the Job controller sets."""
        return f"{POD_LABEL}={self.metadata.uid}"

    def start(self, admitted: Mapping[str, Admission]) -> Json | Conflict:
        """Return the patch that sets node selector, counts and marks."""
        if MAIN not in admitted:
            return Conflict("podSetAssignments", MAIN, ", ".join(admitted), MAIN)
        now = JobTemplate(suspend=True, parallelism=self._spec.parallelism, completions=self._spec.completions)
        made = begun(self._template, admitted[MAIN], job=now, annotations=self._annotations)
        if isinstance(made, Conflict):
            return made
        then, numbers = made
        before = _Original(parallelism=now.parallelism, completions=now.completions, template=self._template)
        spec = {"suspend": False, "template": change(self._template, then), **_numbers(now, numbers)}
        return {"metadata": {"annotations": {ORIGINAL: msgspec.json.encode(before).decode()}}, "spec": spec}

    def stop(self) -> Json:
        """Return the patch that suspends the Job. The template can be restored only afterwards."""
        return {"spec": {"suspend": True}}

    def back(self) -> Write | None:
        """Return the next write that restores the Job. Kubernetes changes templates only without a start time."""
        if self._status.start_time is not None:
            return Write("reset", {"status": {"startTime": None}}, "status")
        if ORIGINAL not in self._annotations:
            return None
        now = JobTemplate(suspend=True, parallelism=self._spec.parallelism, completions=self._spec.completions)
        body = {"metadata": {"annotations": {ORIGINAL: None}}}
        spec = {"template": change(self._template, self._was), **_numbers(now, self._queued)}
        return Write("restore", {**body, "spec": spec})


def _numbers(now: JobTemplate, then: JobTemplate) -> Json:
    numbers = {"parallelism": then.parallelism, "completions": then.completions}
    return {name: value for name, value in numbers.items() if value != getattr(now, name)}


JOB = Kind("Job", JOBS, Job)
