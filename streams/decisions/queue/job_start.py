"""Computes the changes of a Job when its workload is admitted or stopped.

Reading: kueue v0.19.2, pkg/controller/jobframework/reconciler.go (getPodSetsInfoFromStatus),
pkg/controller/jobs/job/job_controller.go (RunWithPodSetsInfo, RestorePodSetsInfo), pkg/podset/podset.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.job_workload import min_count

POD_SET = "kueue.x-k8s.io/podset"
LOCAL_QUEUE = "kueue.x-k8s.io/local-queue-name"
CLUSTER_QUEUE = "kueue.x-k8s.io/cluster-queue-name"
WORKLOAD = "kueue.x-k8s.io/workload"
COMPLETIONS_EQUAL_PARALLELISM = "kueue.x-k8s.io/job-completions-equal-parallelism"
TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Toleration(NamedTuple):
    """A toleration of a pod; "" is absent."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    @property
    def meaning(self) -> tuple[str, ...]:
        """Return a key that is equal for equivalent tolerations."""
        return self.key, self.operator or "Equal", self.value, self.effect


class JobTemplate(NamedTuple):
    """The fields of a Job that starting and stopping change."""

    suspend: bool
    parallelism: int
    completions: int | None = None
    pod_labels: Mapping[str, str] = {}
    pod_annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class Flavor(NamedTuple):
    """An assigned ResourceFlavor."""

    node_labels: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class Admission(NamedTuple):
    """The admission of a Job's workload."""

    workload: str
    cluster_queue: str
    local_queue: str
    pods: int
    flavors: tuple[Flavor, ...]
    """Distinct. If two have the same label key, the first wins."""
    pod_set: str = "main"


class Conflict(NamedTuple):
    """A template key with a different value: the Job is not started."""

    field: str
    """``pod_labels``, ``pod_annotations`` or ``node_selector``."""
    key: str
    has: str
    wants: str


def started(job: JobTemplate, annotations: Mapping[str, str], admission: Admission) -> JobTemplate | Conflict:
    """Return the Job to run on nodes of its flavors. ``job`` is its state at the workload's creation."""
    added = {
        "pod_labels": _labels(admission),
        "pod_annotations": {WORKLOAD: admission.workload},
        "node_selector": _selector(admission.flavors),
    }
    for field, wanted in added.items():
        there: Mapping[str, str] = getattr(job, field)
        for key, value in wanted.items():
            if there.get(key, value) != value:
                return Conflict(field, key, there[key], value)
    partial = min_count(annotations) is not None
    return JobTemplate(
        suspend=False,
        parallelism=admission.pods if partial else job.parallelism,
        completions=admission.pods if partial and _equal_completions(annotations) else job.completions,
        pod_labels={**job.pod_labels, **added["pod_labels"]},
        pod_annotations={**job.pod_annotations, **added["pod_annotations"]},
        node_selector={**job.node_selector, **added["node_selector"]},
        tolerations=_tolerations(job.tolerations, admission.flavors),
    )


def stopped(running: JobTemplate, job: JobTemplate, annotations: Mapping[str, str]) -> JobTemplate:
    """Return the stopped Job, to be queued again. ``job`` is its state at the workload's creation."""
    spec_count = job.parallelism if job.completions is None else min(job.parallelism, job.completions)
    back = job._replace(suspend=True, parallelism=running.parallelism, completions=running.completions)
    if min_count(annotations) is None or running.parallelism == spec_count:
        return back
    completions = spec_count if _equal_completions(annotations) else running.completions
    return back._replace(parallelism=spec_count, completions=completions)


def _labels(admission: Admission) -> dict[str, str]:
    """Skip a queue whose name is not a valid label value."""
    labels = {POD_SET: admission.pod_set}
    queues = {LOCAL_QUEUE: admission.local_queue, CLUSTER_QUEUE: admission.cluster_queue}
    return labels | {key: name for key, name in queues.items() if _DNS_LABEL.fullmatch(name)}


def _selector(flavors: Iterable[Flavor]) -> dict[str, str]:
    selector: dict[str, str] = {}
    for flavor in flavors:
        selector = {**flavor.node_labels, **selector}
    return selector


def _tolerations(there: tuple[Toleration, ...], flavors: Iterable[Flavor]) -> tuple[Toleration, ...]:
    """Add tolerations; keep the template's own, including duplicates."""
    merged, known = list(there), {one.meaning for one in there}
    for flavor in flavors:
        for one in flavor.tolerations:
            if one.meaning not in known:
                known.add(one.meaning)
                merged.append(one)
    return tuple(merged)


def _equal_completions(annotations: Mapping[str, str]) -> bool:
    return annotations.get(COMPLETIONS_EQUAL_PARALLELISM, "") in TRUE
