"""Cases of the rules between a Job and its Workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, into, unique
from slacktide.deploy.cli.calc.forms import By, Flat, Form, Given, Nullable, Whole
from slacktide.deploy.cli.calc.queue_order import progress_form
from slacktide.deploy.cli.calc.queue_quota import key_of, known, resource_of
from slacktide.schemas.message import Terms
from slacktide.schemas.pod_resources import Amounts, Container, Needs
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.job import (
    PRIORITY_CLASS,
    QUEUE_NAME,
    Admission,
    Conflict,
    Defaults,
    Flavor,
    JobPriority,
    JobTemplate,
    PriorityClass,
    Toleration,
    job_priority,
    min_count,
    pod_request,
    reclaimable_pods,
    started,
    stopped,
    workload_name,
)
from slacktide.streams.decisions.queue.pods_ready import JobProgress


def _decimals(given: Mapping[str, int], field: str) -> Amounts:
    return {resource_of(key, f"{field}.{key}"): Decimal(amount) for key, amount in given.items()}


GivenAmounts = Nullable[Annotated[Amounts, By(_decimals, dict[str, Whole])]]
Pods = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
GivenContainer = Annotated[
    Container, Form("requests limits sidecar", requests=(GivenAmounts, {}), limits=(GivenAmounts, {}))
]
"""A container, or a pod as a whole."""
GivenTolerations = Nullable[tuple[Annotated[Toleration, Form(strict=True)], ...]]


class GivenJob(Given, frozen=True, kw_only=True):
    """A Job and its pod template."""

    progress: Flat[Annotated[JobProgress, progress_form(Pods)]]
    name: str = "j"
    uid: str = "uid-j"
    indexed: bool = False
    labels: Nullable[dict[str, str]] = {}
    annotations: Nullable[dict[str, str]] = {}
    completed_indexes: Nullable[str] = ""
    failed_indexes: Nullable[str] = ""
    init_containers: Nullable[list[GivenContainer]] = []
    containers: Nullable[list[GivenContainer]] = []
    overhead: GivenAmounts = {}
    runtime_class: Nullable[str] = ""
    priority_class: Nullable[str] = ""
    pod_level_resources: GivenContainer | None = None


class GivenRuntimeClass(Given, frozen=True, kw_only=True):
    """A RuntimeClass."""

    name: str
    overhead: GivenAmounts = {}


class GivenLimitRange(Given, frozen=True, kw_only=True):
    """A LimitRange of type Container."""

    default: GivenAmounts = {}
    default_request: GivenAmounts = {}


GivenPriorityClasses = Nullable[Sequence[Annotated[PriorityClass, Form(strict=True, value=0)]]]
NO_LIMITS = GivenLimitRange()


def calc_queue_job(
    *,
    job: GivenJob,
    runtime_classes: Nullable[Sequence[GivenRuntimeClass]] = (),
    priority_classes: GivenPriorityClasses = (),
    workload_priority_classes: GivenPriorityClasses = (),
    limit_range: Nullable[GivenLimitRange] = NO_LIMITS,
    corrected: bool = False,
) -> Calculated:
    """Convert a Job to a workload of the queue by the cluster's objects that affect it."""
    progress = job.progress
    lists = [job.completed_indexes, job.failed_indexes] if job.indexed else None
    reclaimable = reclaimable_pods(progress, lists, corrected=corrected)
    count = progress.spec_count - min(reclaimable, progress.spec_count)
    needs = Needs(
        containers=job.containers, inits=job.init_containers, overhead=job.overhead, pod_level=job.pod_level_resources
    )
    unique((one.name for one in runtime_classes), "input.runtime_classes[{}].name")
    overheads = {one.name: one.overhead for one in runtime_classes}
    defaults = Defaults(limit_range.default, limit_range.default_request, overheads.get(job.runtime_class, {}))
    one_pod = pod_request(needs, defaults, corrected=corrected)
    unique((one.name for one in priority_classes), "input.priority_classes[{}].name")
    unique((one.name for one in workload_priority_classes), "input.workload_priority_classes[{}].name")
    by_name = {one.name: one.value for one in workload_priority_classes}
    priority = job_priority(job.labels.get(PRIORITY_CLASS, ""), job.priority_class, by_name, priority_classes)
    pod_set = {
        "name": "main",
        "spec_count": progress.spec_count,
        "min_count": min_count(job.annotations),
        "count": count,
        "total_requests": {key_of(resource): amount * count for resource, amount in one_pod.requests.items()},
    }
    output = {
        "name": workload_name(job.name, job.uid),
        "queue_name": job.labels.get(QUEUE_NAME, ""),
        "reclaimable_pods": reclaimable,
        "pods_ready": progress.pods_ready,
        "resources_valid": one_pod.valid,
        "pod_sets": [pod_set],
    }
    terms: Terms = {"spec_count": progress.spec_count, "reclaimable_count": reclaimable, "count": count}
    bound = "reclaimed" if reclaimable else "spec"
    because = [Because(of="pod_sets/main/count", bound=bound, terms=terms)]
    if priority is not None and priority.global_defaults:
        several: Terms = {"global_default_count": len(priority.global_defaults)}
        because.append(Because(of="priority_class", bound="smallest of several global defaults", terms=several))
    return Calculated(output=output | _shown_priority(priority), because=because)


def _shown_priority(priority: JobPriority | None) -> dict[str, object]:
    if priority is None:
        return {"priority_error": True}
    named = {"kind": priority.kind, "name": priority.name} if priority.kind else None
    return {"priority": priority.value, "priority_class": named}


class GivenFlavor(Given, frozen=True, kw_only=True):
    """A ResourceFlavor."""

    name: str
    flavor: Flat[Annotated[Flavor, Form(tolerations=GivenTolerations)]]


class GivenTemplate(Given, frozen=True, kw_only=True):
    """A Job at the creation of its workload."""

    parallelism: Pods = 1
    completions: Pods | None = None
    annotations: Nullable[dict[str, str]] = {}
    pod_labels: Nullable[dict[str, str]] = {}
    pod_annotations: Nullable[dict[str, str]] = {}
    node_selector: Nullable[dict[str, str]] = {}
    tolerations: GivenTolerations = ()


class GivenAdmission(Given, frozen=True, kw_only=True):
    """The admission of the Job's workload; flavors by resource."""

    workload_name: str
    cluster_queue: str
    local_queue: str
    count: Pods
    flavors: dict[str, str] = {}


def calc_queue_job_start(
    *, flavors: Nullable[Sequence[GivenFlavor]] = (), job: GivenTemplate, admission: GivenAdmission
) -> Calculated:
    """Start and stop a Job by its admission; flavors are added in the order of their resources."""
    template = into(JobTemplate, job, suspend=True)
    unique((one.name for one in flavors), "input.flavors[{}].name")
    by_name = {one.name: one.flavor for one in flavors}
    names = dict.fromkeys(name for _, name in sorted(admission.flavors.items()))
    chosen = tuple(known(by_name, name, "input.admission.flavors") for name in names)
    admitted = Admission(
        admission.workload_name, admission.cluster_queue, admission.local_queue, admission.count, chosen
    )
    running = started(template, job.annotations, admitted)
    if isinstance(running, Conflict):
        bound = f"conflict:{running.field}:{running.key}"
        return Calculated(output={"error": True}, because=[Because(of="running", bound=bound, terms={})])
    because = Because(
        of="running/parallelism",
        bound="spec" if running.parallelism == template.parallelism else "admitted",
        terms={"spec_parallelism": template.parallelism, "admitted_count": admission.count},
    )
    done = stopped(running, template, job.annotations)
    return Calculated(output={"running": _shown_job(running), "stopped": _shown_job(done)}, because=[because])


def _shown_job(job: JobTemplate) -> dict[str, object]:
    shown = job._asdict()
    written = ({name: text for name, text in sorted(one._asdict().items()) if text} for one in job.tolerations)
    shown["tolerations"] = sorted(written, key=msgspec.json.encode)
    return shown
