"""Computes the name, priority and pod counts of a Job's workload.

Reading: kueue v0.19.2, pkg/controller/jobframework/workload_names.go, pkg/controller/jobs/job/job_controller.go,
pkg/util/priority/priority.go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from slacktide.schemas.bounds import INT64_MAX
from slacktide.streams.decisions.queue.pods_ready_condition import JobProgress

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
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
    """Return the value of the label's WorkloadPriorityClass, else the pods' PriorityClass, else the global default.

    An empty name is absent. Return None if the named class does not exist.
    """
    classes = list(classes)
    several: tuple[str, ...] = ()
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


def reclaimable_pods(progress: JobProgress, finished_indexes: Iterable[str] | None = None) -> int:
    """Return how many of the parallel pods will not run again; ``finished_indexes`` is None if not indexed."""
    wanted = progress.parallelism if progress.completions is None else progress.completions
    done = progress.succeeded if finished_indexes is None else _indexes_below(wanted, finished_indexes)
    if progress.parallelism <= 1 or done <= 0:
        return 0
    return max(0, progress.parallelism - max(wanted - done, 0))


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
