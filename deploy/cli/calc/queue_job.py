"""Cases of the rules between a Job and its Workload."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given, Whole, into, unique
from slacktide.deploy.cli.calc.queue_order import GivenProgress
from slacktide.deploy.cli.calc.queue_quota import key_of, known, resource_of
from slacktide.schemas.kubernetes_fields import Amounts, Container, Needs
from slacktide.schemas.message import Terms
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

GivenAmounts = dict[str, Whole]
Pods = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class GivenContainer(Given, frozen=True, kw_only=True):
    """A container, or a pod as a whole; ``restart_policy_always``: an init container that is a sidecar."""

    requests: GivenAmounts | None = None
    limits: GivenAmounts | None = None
    restart_policy_always: bool | None = None

    def container(self, field: str) -> Container:
        """Convert to the rule's type."""
        return Container(
            requests=amounts_of(self.requests, f"{field}.requests"),
            limits=amounts_of(self.limits, f"{field}.limits"),
            sidecar=bool(self.restart_policy_always),
        )


class GivenJob(GivenProgress, frozen=True, kw_only=True):
    """A Job and its pod template."""

    name: str = "j"
    uid: str = "uid-j"
    parallelism: Pods = 1
    completions: Pods | None = None
    indexed: bool = False
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None
    init_containers: list[GivenContainer] | None = None
    containers: list[GivenContainer] | None = None
    overhead: GivenAmounts | None = None
    runtime_class: str | None = None
    priority_class: str | None = None
    pod_level_resources: GivenContainer | None = None


class GivenRuntimeClass(Given, frozen=True, kw_only=True):
    """A RuntimeClass."""

    name: str
    overhead: GivenAmounts | None = None


class GivenPriorityClass(Given, frozen=True, kw_only=True):
    """A PriorityClass or WorkloadPriorityClass."""

    name: str
    value: Whole = 0
    global_default: bool = False


class GivenLimitRange(Given, frozen=True, kw_only=True):
    """A LimitRange of type Container."""

    default: GivenAmounts | None = None
    default_request: GivenAmounts | None = None


class QueueJobInput(Given, frozen=True, kw_only=True):
    """A Job, and the cluster's objects that affect its workload."""

    job: GivenJob
    runtime_classes: list[GivenRuntimeClass] | None = None
    priority_classes: list[GivenPriorityClass] | None = None
    workload_priority_classes: list[GivenPriorityClass] | None = None
    limit_range: GivenLimitRange | None = None
    corrected: bool = False

    def defaults(self) -> Defaults:
        """Convert to the rule's type."""
        unique((one.name for one in self.runtime_classes or ()), "input.runtime_classes[{}].name")
        limits = self.limit_range or GivenLimitRange()
        overheads = {
            one.name: amounts_of(one.overhead, f"input.runtime_classes[{at}].overhead")
            for at, one in enumerate(self.runtime_classes or ())
        }
        return Defaults(
            limits=amounts_of(limits.default, "input.limit_range.default"),
            requests=amounts_of(limits.default_request, "input.limit_range.default_request"),
            overhead=overheads.get(self.job.runtime_class or "", {}),
        )

    def priority(self) -> JobPriority | None:
        """Compute the priority by the classes."""
        unique((one.name for one in self.priority_classes or ()), "input.priority_classes[{}].name")
        unique((one.name for one in self.workload_priority_classes or ()), "input.workload_priority_classes[{}].name")
        return job_priority(
            (self.job.labels or {}).get(PRIORITY_CLASS, ""),
            self.job.priority_class or "",
            {one.name: one.value for one in self.workload_priority_classes or ()},
            [PriorityClass(one.name, one.value, one.global_default) for one in self.priority_classes or ()],
        )


def calc_queue_job(given: QueueJobInput) -> Calculated:
    """Convert a Job to a workload of the queue."""
    job, progress = given.job, given.job.progress()
    lists = [job.completed_indexes or "", job.failed_indexes or ""] if job.indexed else None
    reclaimable = reclaimable_pods(progress, lists, corrected=given.corrected)
    count = progress.spec_count - min(reclaimable, progress.spec_count)
    level = job.pod_level_resources
    needs = Needs(
        containers=_containers(job.containers, "input.job.containers"),
        inits=_containers(job.init_containers, "input.job.init_containers"),
        overhead=amounts_of(job.overhead, "input.job.overhead"),
        pod_level=None if level is None else level.container("input.job.pod_level_resources"),
    )
    one_pod = pod_request(needs, given.defaults(), corrected=given.corrected)
    priority = given.priority()
    pod_set = {
        "name": "main",
        "spec_count": progress.spec_count,
        "min_count": min_count(job.annotations or {}),
        "count": count,
        "total_requests": {key_of(resource): amount * count for resource, amount in one_pod.requests.items()},
    }
    output = {
        "name": workload_name(job.name, job.uid),
        "queue_name": (job.labels or {}).get(QUEUE_NAME, ""),
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


def amounts_of(given: GivenAmounts | None, field: str) -> Amounts:
    """Convert to the rule's type, by the resource's Kubernetes name."""
    return {resource_of(key, f"{field}.{key}"): Decimal(amount) for key, amount in (given or {}).items()}


def _containers(given: list[GivenContainer] | None, field: str) -> list[Container]:
    return [one.container(f"{field}[{at}]") for at, one in enumerate(given or ())]


class GivenToleration(Given, frozen=True, kw_only=True):
    """A toleration; absent fields are not set."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class GivenFlavor(Given, frozen=True, kw_only=True):
    """A ResourceFlavor."""

    name: str
    node_labels: dict[str, str] | None = None
    tolerations: list[GivenToleration] | None = None


class GivenTemplate(Given, frozen=True, kw_only=True):
    """A Job at the creation of its workload."""

    parallelism: Pods = 1
    completions: Pods | None = None
    annotations: dict[str, str] | None = None
    pod_labels: dict[str, str] | None = None
    pod_annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[GivenToleration] | None = None


class GivenAdmission(Given, frozen=True, kw_only=True):
    """The admission of the Job's workload; flavors by resource."""

    workload_name: str
    cluster_queue: str
    local_queue: str
    count: Pods
    flavors: dict[str, str] = {}


class QueueJobStartInput(Given, frozen=True, kw_only=True):
    """A Job, its admission, and all flavors."""

    flavors: list[GivenFlavor] | None = None
    job: GivenTemplate
    admission: GivenAdmission

    def admitted(self) -> Admission:
        """Convert to the rule's type; flavors in the order of their resources."""
        unique((one.name for one in self.flavors or ()), "input.flavors[{}].name")
        by_name = {
            one.name: Flavor(one.node_labels or {}, tolerations_of(one.tolerations)) for one in self.flavors or ()
        }
        given = self.admission
        names = dict.fromkeys(name for _, name in sorted(given.flavors.items()))
        flavors = tuple(known(by_name, name, "input.admission.flavors") for name in names)
        return Admission(given.workload_name, given.cluster_queue, given.local_queue, given.count, flavors)


def calc_queue_job_start(given: QueueJobStartInput) -> Calculated:
    """Start and stop a Job."""
    job = into(JobTemplate, given.job, suspend=True, tolerations=tolerations_of(given.job.tolerations))
    annotations = given.job.annotations or {}
    running = started(job, annotations, given.admitted())
    if isinstance(running, Conflict):
        bound = f"conflict:{running.field}:{running.key}"
        return Calculated(output={"error": True}, because=[Because(of="running", bound=bound, terms={})])
    because = Because(
        of="running/parallelism",
        bound="spec" if running.parallelism == job.parallelism else "admitted",
        terms={"spec_parallelism": job.parallelism, "admitted_count": given.admission.count},
    )
    done = stopped(running, job, annotations)
    return Calculated(output={"running": _shown_job(running), "stopped": _shown_job(done)}, because=[because])


def _shown_job(job: JobTemplate) -> dict[str, object]:
    shown = job._asdict()
    written = ({name: text for name, text in sorted(one._asdict().items()) if text} for one in job.tolerations)
    shown["tolerations"] = sorted(written, key=msgspec.json.encode)
    return shown


def tolerations_of(given: Iterable[GivenToleration] | None) -> tuple[Toleration, ...]:
    """Convert to the rule's type."""
    return tuple(into(Toleration, one) for one in given or ())
