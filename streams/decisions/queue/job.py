"""Computes the workload of a Job, the requests of its pods, and the changes of a Job that starts or stops.

Reading: kueue v0.19.2, pkg/controller/jobframework (workload_names.go; reconciler.go, getPodSetsInfoFromStatus),
pkg/controller/jobs/job/job_controller.go, pkg/podset/podset.go, pkg/util/priority/priority.go,
pkg/workload/resources.go (AdjustResources), pkg/util/limitrange; kubernetes v1.34,
component-helpers/resource/helpers.go, PodRequests. Amounts are by the name of the resource; CPU is in millicores.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Literal, NamedTuple

from slacktide.schemas.bounds import INT64_MAX
from slacktide.schemas.kubernetes_fields import Amounts, Container, Needs, larger, requests_of
from slacktide.streams.decisions.queue.pods_ready import JobProgress

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
DEFAULT_CLASS = "default"
"""Name of the WorkloadPriorityClass of workloads without the label."""
NAME_CHARS_MAX = 247
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INDEX = re.compile(r"[0-9]{1,18}")


class PriorityClass(NamedTuple):
    """A PriorityClass."""

    name: str
    value: int
    global_default: bool = False


class JobPriority(NamedTuple):
    """The priority of a workload and its source."""

    value: int
    kind: Literal["WorkloadPriorityClass", "PriorityClass", ""] = ""
    name: str = ""
    global_defaults: tuple[str, ...] = ()
    """PriorityClasses that are all the global default, which is worth a warning. The smallest value counts."""


def workload_name(job: str, uid: str) -> str:
    """Return the name of the Job's workload, which is deterministic."""
    digest = hashlib.sha1(f"Job\nbatch\n{job}\n{uid}".encode(), usedforsecurity=False).hexdigest()
    return f"{f'job-{job}'[:NAME_CHARS_MAX]}-{digest[:5]}"


def job_priority(
    label: str, class_name: str, workload_classes: Mapping[str, int], classes: Iterable[PriorityClass]
) -> JobPriority | None:
    """Return the value of the label's WorkloadPriorityClass, else of the one named ``default``.

    Without that: of the pods' PriorityClass, else of the global default. An empty name is absent. Return None if the
    named class does not exist.
    """
    classes = list(classes)
    several: tuple[str, ...] = ()
    if not label and DEFAULT_CLASS in workload_classes:
        label = DEFAULT_CLASS
    if label:
        value = workload_classes.get(label)
        return None if value is None else JobPriority(value, "WorkloadPriorityClass", label)
    if class_name:
        named = next((one for one in classes if one.name == class_name), None)
    else:
        defaults = [one for one in classes if one.global_default]
        if not defaults:
            return JobPriority(0)
        named = min(defaults, key=lambda one: (one.value, one.name))
        several = tuple(sorted(one.name for one in defaults)) if len(defaults) > 1 else ()
    return None if named is None else JobPriority(named.value, "PriorityClass", named.name, several)


def min_count(annotations: Mapping[str, str]) -> int | None:
    """Return the minimum pod count; None if it is absent or invalid."""
    text = annotations.get(MIN_PARALLELISM, "")
    return _whole(text) if _INTEGER.fullmatch(text) else None


def reclaimable_pods(
    progress: JobProgress, finished_indexes: Iterable[str] | None = None, *, corrected: bool = False
) -> int:
    """Return how many of the parallel pods will not run again; ``finished_indexes`` is None if not indexed.

    The reference counts from the parallelism even if fewer pods are to complete. Corrected, of the workload's pods.
    """
    wanted = progress.parallelism if progress.completions is None else progress.completions
    done = progress.succeeded if finished_indexes is None else _indexes_below(wanted, finished_indexes)
    if progress.parallelism <= 1 or done <= 0:
        return 0
    pods = progress.spec_count if corrected else progress.parallelism
    return max(0, pods - max(wanted - done, 0))


def _indexes_below(count: int, lists: Iterable[str]) -> int:
    """Return the number of distinct indexes; ignore invalid ones."""
    spans: list[tuple[int, int]] = []
    for part in ",".join(lists).split(","):
        first, dash, last = part.partition("-")
        if _INDEX.fullmatch(first) and (not dash or _INDEX.fullmatch(last)):
            spans.append((int(first), min(int(last) if dash else int(first), count - 1)))
    named, beyond = 0, 0
    for start, end in sorted(spans):
        named += max(0, end + 1 - max(start, beyond))
        beyond = max(beyond, end + 1)
    return named


def _whole(text: str) -> int | None:
    value = int(text)
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else None


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


NOTHING: Amounts = {}


class Defaults(NamedTuple):
    """Defaults of a namespace and a RuntimeClass."""

    limits: Amounts = NOTHING
    """Per container, by a LimitRange."""
    requests: Amounts = NOTHING
    overhead: Amounts = NOTHING
    """Of the RuntimeClass, for pods without overhead."""


class PodRequest(NamedTuple):
    """The request of one pod."""

    requests: Mapping[str, int]
    valid: bool
    """No container requests more than its limit."""


def pod_request(needs: Needs, defaults: Defaults, *, corrected: bool = False) -> PodRequest:
    """Apply the defaults and sum up.

    In the reference a request of the pod as a whole replaces the sum of its containers. Corrected, the larger counts.
    """
    containers = [_filled(one, defaults) for one in needs.containers]
    inits = [_filled(one, defaults) for one in needs.inits]
    pod_level = None if needs.pod_level is None else _filled(needs.pod_level, Defaults())
    apart = Needs(containers=containers, inits=inits, overhead=needs.overhead or defaults.overhead, pod_level=None)
    level = None if pod_level is None else Container(requests=_of_pods(pod_level.requests), limits={})
    parts = [*containers, *inits, *([] if pod_level is None else [pod_level])]
    asked = requests_of(replace(apart, pod_level=level))
    if corrected:
        asked = larger(asked, requests_of(apart))
    requests = {resource: max(0, int(amount)) for resource, amount in asked.items()}
    return PodRequest(requests, all(map(_within_limits, parts)))


def _filled(one: Container, defaults: Defaults) -> Container:
    """Use the default for a missing request, else the limit."""
    limits = {**defaults.limits, **one.limits}
    requests = {**limits, **defaults.requests, **one.requests}
    return Container(name=one.name, requests=requests, limits=limits, sidecar=one.sidecar)


def _of_pods(requests: Amounts) -> dict[str, Decimal]:
    return {
        resource: amount
        for resource, amount in requests.items()
        if resource in {"cpu", "memory"} or resource.startswith("hugepages-")
    }


def _within_limits(one: Container) -> bool:
    return all(one.requests[resource] <= limit for resource, limit in one.limits.items() if resource in one.requests)
