"""Computes the workload of a Job, the requests of its pods, and the changes of a Job that starts or stops.

Also the condition ``PodsReady``, timeouts for ready pods, and the backoff after an eviction. Amounts are by the name of
the resource; CPU is in millicores. Reading: kueue v0.19.2, pkg/controller/jobframework (workload_names.go;
reconciler.go, getPodSetsInfoFromStatus, generatePodsReadyCondition), pkg/controller/jobs/job/job_controller.go,
pkg/podset/podset.go, pkg/util/priority/priority.go, pkg/workload/resources.go (AdjustResources), pkg/util/limitrange,
pkg/controller/core/workload_controller.go, pkg/util/wait; kubernetes v1.34, component-helpers/resource/helpers.go,
PodRequests. The reference adds up to 0.01% of random jitter to a backoff; this does not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from slacktide.schemas.bounds import INT64_MAX
from slacktide.schemas.kubernetes_fields import Amounts, Container, Needs, larger, requests_of
from slacktide.streams.decisions.queue.queue_order import Condition

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
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -INT64_MAX - 1 <= value <= INT64_MAX else None


def reclaimable_pods(
    progress: JobProgress, finished_indexes: Iterable[str] | None = None, *, corrected: bool = False
) -> int:
    """Return how many of the parallel pods will not run again; ``finished_indexes`` is None if not indexed.

    The reference counts from the parallelism even if fewer pods are to complete. Corrected, of the workload's pods.
    """
    wanted = progress.parallelism if progress.completions is None else progress.completions
    done = progress.succeeded
    if finished_indexes is not None:  # the distinct ones; invalid ones are ignored
        spans: list[tuple[int, int]] = []
        for part in ",".join(finished_indexes).split(","):
            first, dash, last = part.partition("-")
            if _INDEX.fullmatch(first) and (not dash or _INDEX.fullmatch(last)):
                spans.append((int(first), min(int(last) if dash else int(first), wanted - 1)))
        done, beyond = 0, 0
        for start, end in sorted(spans):
            done += max(0, end + 1 - max(start, beyond))
            beyond = max(beyond, end + 1)
    if progress.parallelism <= 1 or done <= 0:
        return 0
    pods = progress.spec_count if corrected else progress.parallelism
    return max(0, pods - max(wanted - done, 0))


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
    queues = {LOCAL_QUEUE: admission.local_queue, CLUSTER_QUEUE: admission.cluster_queue}
    labels = {POD_SET: admission.pod_set}
    labels |= {key: name for key, name in queues.items() if _DNS_LABEL.fullmatch(name)}  # else no label can have it
    selector: dict[str, str] = {}
    for flavor in admission.flavors:
        selector = {**flavor.node_labels, **selector}
    added = {"pod_labels": labels, "pod_annotations": {WORKLOAD: admission.workload}, "node_selector": selector}
    for field, wanted in added.items():
        there: Mapping[str, str] = getattr(job, field)
        for key, value in wanted.items():
            if there.get(key, value) != value:
                return Conflict(field, key, there[key], value)
    # The template's own tolerations stay, including duplicates.
    tolerations, known = list(job.tolerations), {one.meaning for one in job.tolerations}
    for one in (each for flavor in admission.flavors for each in flavor.tolerations):
        if one.meaning not in known:
            known.add(one.meaning)
            tolerations.append(one)
    partial = min_count(annotations) is not None
    return JobTemplate(
        suspend=False,
        parallelism=admission.pods if partial else job.parallelism,
        completions=admission.pods if partial and _equal_completions(annotations) else job.completions,
        pod_labels={**job.pod_labels, **added["pod_labels"]},
        pod_annotations={**job.pod_annotations, **added["pod_annotations"]},
        node_selector={**job.node_selector, **added["node_selector"]},
        tolerations=tuple(tolerations),
    )


def stopped(running: JobTemplate, job: JobTemplate, annotations: Mapping[str, str]) -> JobTemplate:
    """Return the stopped Job, to be queued again. ``job`` is its state at the workload's creation."""
    spec_count = job.parallelism if job.completions is None else min(job.parallelism, job.completions)
    back = job._replace(suspend=True, parallelism=running.parallelism, completions=running.completions)
    if min_count(annotations) is None or running.parallelism == spec_count:
        return back
    completions = spec_count if _equal_completions(annotations) else running.completions
    return back._replace(parallelism=spec_count, completions=completions)


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
    apart = Needs(containers=containers, inits=inits, overhead=needs.overhead or defaults.overhead, pod_level=None)
    parts, level = [*containers, *inits], None
    if needs.pod_level is not None:
        pod_level = _filled(needs.pod_level, Defaults())
        parts.append(pod_level)
        whole = {
            name: amount
            for name, amount in pod_level.requests.items()
            if name in {"cpu", "memory"} or name.startswith("hugepages-")
        }
        level = Container(requests=whole, limits={})
    asked = requests_of(replace(apart, pod_level=level))
    if corrected:
        asked = larger(asked, requests_of(apart))
    requests = {resource: max(0, int(amount)) for resource, amount in asked.items()}
    limits = (
        (one.requests[name], limit) for one in parts for name, limit in one.limits.items() if name in one.requests
    )
    return PodRequest(requests, all(request <= limit for request, limit in limits))


def _filled(one: Container, defaults: Defaults) -> Container:
    """Use the default for a missing request, else the limit."""
    limits = {**defaults.limits, **one.limits}
    requests = {**limits, **defaults.requests, **one.requests}
    return Container(name=one.name, requests=requests, limits=limits, sidecar=one.sidecar)


BACKOFF_S_MAX = 4_611_686_018
"""Half of the maximum in nanoseconds: the default."""
Action = Literal["none", "recheck", "evict", "deactivate"]


class PodsReadyConfig(NamedTuple):
    """Kueue's ``waitForPodsReady``."""

    timeout_s: int = 1_800
    recovery_timeout_s: int = 0
    """0: a workload whose pods were ready once is not evicted."""
    backoff_base_s: int = 60
    backoff_max_s: int = 3_600
    """0: no maximum."""
    corrected: bool = False
    """Apply the maximum to the first backoff, too."""
    backoff_limit_count: int | None = None
    """Maximum number of evictions; the next one deactivates. None: no limit."""


class Waiting(NamedTuple):
    """A workload that may wait for ready pods."""

    admitted_at_s: int | None
    active: bool = True
    evicted: bool = False
    pods_ready: Condition | None = None
    requeue_count: int = 0
    requeue_at_s: int | None = None


class PodsReadyAction(NamedTuple):
    """The action for a workload, and its cause."""

    action: Action
    cause: str = ""
    """``WaitForStart`` or ``WaitForRecovery``; "": it does not wait."""
    after_s: int = 0
    """Time until the next check; negative: time since the timeout."""
    backoff_s: int = 0
    requeue_count: int = 0
    requeue_at_s: int = 0


def pods_ready_action(one: Waiting, config: PodsReadyConfig | None, now_s: int) -> PodsReadyAction:
    """Return the action: check later, evict, or deactivate after too many evictions."""
    condition = one.pods_ready
    if (
        config is None
        or one.admitted_at_s is None
        or not one.active
        or one.evicted
        or (condition is not None and condition.status)
    ):
        return PodsReadyAction("none")
    if condition is None or condition.reason in {"WaitForStart", "PodsReady"}:
        cause, left_s = "WaitForStart", config.timeout_s - (now_s - one.admitted_at_s)
    elif condition.reason == "WaitForRecovery" and config.recovery_timeout_s > 0:
        cause, left_s = "WaitForRecovery", config.recovery_timeout_s - (now_s - condition.at_s)
    else:
        return PodsReadyAction("none")
    if left_s > 0:
        return PodsReadyAction("recheck", cause, left_s)
    count = one.requeue_count + 1
    if config.backoff_limit_count is not None and count > config.backoff_limit_count:
        return PodsReadyAction("deactivate", cause, left_s, requeue_count=one.requeue_count)
    backoff = backoff_s(count, config)
    at_s = now_s + backoff if one.requeue_at_s is None else max(now_s + backoff, one.requeue_at_s)
    return PodsReadyAction("evict", cause, left_s, backoff, count, at_s)


def backoff_s(count: int, config: PodsReadyConfig) -> int:
    """Return the base, doubled with each eviction after the first. The reference does not limit the first."""
    most = config.backoff_max_s or BACKOFF_S_MAX
    waits = min(config.backoff_base_s, most) if config.corrected else config.backoff_base_s
    for _ in range(count - 1 if waits else 0):
        waits *= 2
        if waits > most:
            return most
    return waits


class JobProgress(NamedTuple):
    """Pods of a Job."""

    parallelism: int
    completions: int | None = None
    succeeded: int = 0
    ready: int = 0
    uncounted_succeeded: int = 0
    """Succeeded pods that the Job controller has not counted yet."""

    @property
    def spec_count(self) -> int:
        """Return the number of parallel pods."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def pods_ready(self) -> bool:
        """Return whether all parallel pods are ready or finished."""
        return self.succeeded + self.ready + self.uncounted_succeeded >= self.spec_count


def pods_ready_condition(old: Condition | None, *, admitted: bool, ready: bool) -> tuple[bool, str]:
    """Return status and reason. A workload whose pods were ready before waits for recovery."""
    reason = "" if old is None else old.reason
    if not admitted:
        return False, "WaitForStart"
    if ready:
        return True, "Recovered" if reason in {"WaitForRecovery", "Recovered"} else "Started"
    if old is not None and (old.status or reason == "WaitForRecovery"):
        return False, "WaitForRecovery"
    return False, "WaitForStart"


def admission_open(*, block_admission: bool, holding: Iterable[Condition | None]) -> bool:
    """Return whether workloads may be admitted. With ``block_admission``, all that hold quota must have ready pods."""
    return not block_admission or all(one is not None and one.status for one in holding)
