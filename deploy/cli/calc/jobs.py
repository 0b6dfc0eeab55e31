"""Cases of the rules of a Job: its status, and its Workload."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, cast

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, into, unique
from slacktide.deploy.cli.calc.forms import By, Flat, Form, Given, Nullable, Whole
from slacktide.deploy.cli.calc.queue_order import progress_form
from slacktide.deploy.cli.calc.queue_quota import key_of, known, resource_of
from slacktide.schemas.bounds import Name, TimeMs
from slacktide.schemas.job_pod import ControllerStatus, JobEvent, JobPodFacts, JobSpec
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
    JobProgress,
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
from slacktide.streams.jobs.fold import JobFold


def _decimals(given: Mapping[str, int], field: str) -> Amounts:
    return {resource_of(key, f"{field}.{key}"): Decimal(amount) for key, amount in given.items()}


GivenAmounts = Nullable[Annotated[Amounts, By(_decimals, dict[str, Whole])]]
Pods = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
GivenContainer = Annotated[
    Container, Form("requests limits sidecar", requests=(GivenAmounts, {}), limits=(GivenAmounts, {}))
]
"""A container, or a pod as a whole."""
GivenTolerations = Nullable[tuple[Annotated[Toleration, Form(strict=True)], ...]]


class _Job(Given, frozen=True, kw_only=True):
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


class _RuntimeClass(Given, frozen=True, kw_only=True):
    name: str
    overhead: GivenAmounts = {}


class _LimitRange(Given, frozen=True, kw_only=True):
    default: GivenAmounts = {}
    default_request: GivenAmounts = {}


GivenPriorityClasses = Nullable[Sequence[Annotated[PriorityClass, Form(strict=True, value=0)]]]
NO_LIMITS = _LimitRange()


def calc_queue_job(
    *,
    job: _Job,
    runtime_classes: Nullable[Sequence[_RuntimeClass]] = (),
    priority_classes: GivenPriorityClasses = (),
    workload_priority_classes: GivenPriorityClasses = (),
    limit_range: Nullable[_LimitRange] = NO_LIMITS,
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
    output = {
        "name": workload_name(job.name, job.uid),
        "queue_name": job.labels.get(QUEUE_NAME, ""),
        "reclaimable_pods": reclaimable,
        "pods_ready": progress.pods_ready,
        "resources_valid": one_pod.valid,
        "pod_sets": [
            {
                "name": "main",
                "spec_count": progress.spec_count,
                "min_count": min_count(job.annotations),
                "count": count,
                "total_requests": {key_of(resource): amount * count for resource, amount in one_pod.requests.items()},
            }
        ],
    }
    terms: Terms = {"spec_count": progress.spec_count, "reclaimable_count": reclaimable, "count": count}
    bound = "reclaimed" if reclaimable else "spec"
    because = [Because(of="pod_sets/main/count", bound=bound, terms=terms)]
    if priority is not None and priority.global_defaults:
        several: Terms = {"global_default_count": len(priority.global_defaults)}
        because.append(Because(of="priority_class", bound="smallest of several global defaults", terms=several))
    if priority is None:
        return Calculated(output=output | {"priority_error": True}, because=because)
    named = {"kind": priority.kind, "name": priority.name} if priority.kind else None
    return Calculated(output=output | {"priority": priority.value, "priority_class": named}, because=because)


class _Flavor(Given, frozen=True, kw_only=True):
    name: str
    flavor: Flat[Annotated[Flavor, Form(tolerations=GivenTolerations)]]


class _Template(Given, frozen=True, kw_only=True):
    parallelism: Pods = 1
    completions: Pods | None = None
    annotations: Nullable[dict[str, str]] = {}
    pod_labels: Nullable[dict[str, str]] = {}
    pod_annotations: Nullable[dict[str, str]] = {}
    node_selector: Nullable[dict[str, str]] = {}
    tolerations: GivenTolerations = ()


_ADMISSION = Form(
    "workload cluster_queue local_queue pods flavors",
    names={"workload": "workload_name", "pods": "count"},
    pods=Pods,
    flavors=(dict[str, str], {}),
)


def calc_queue_job_start(
    *, flavors: Nullable[Sequence[_Flavor]] = (), job: _Template, admission: Annotated[Admission, _ADMISSION]
) -> Calculated:
    """Start and stop a Job by its admission; flavors are added in the order of their resources."""
    template = into(JobTemplate, job, suspend=True)
    unique((one.name for one in flavors), "input.flavors[{}].name")
    by_name = {one.name: one.flavor for one in flavors}
    by_resource = cast("Mapping[str, str]", admission.flavors)
    names = dict.fromkeys(name for _, name in sorted(by_resource.items()))
    chosen = tuple(known(by_name, name, "input.admission.flavors") for name in names)
    running = started(template, job.annotations, admission._replace(flavors=chosen))
    if isinstance(running, Conflict):
        bound = f"conflict:{running.field}:{running.key}"
        return Calculated(output={"error": True}, because=[Because(of="running", bound=bound, terms={})])
    because = Because(
        of="running/parallelism",
        bound="spec" if running.parallelism == template.parallelism else "admitted",
        terms={"spec_parallelism": template.parallelism, "admitted_count": admission.pods},
    )
    done = stopped(running, template, job.annotations)
    return Calculated(output={"running": _shown_job(running), "stopped": _shown_job(done)}, because=[because])


def _shown_job(job: JobTemplate) -> dict[str, object]:
    shown = job._asdict()
    written = ({name: text for name, text in sorted(one._asdict().items()) if text} for one in job.tolerations)
    shown["tolerations"] = sorted(written, key=msgspec.json.encode)
    return shown


class _Event(Given, frozen=True, kw_only=True):
    observed_ms: TimeMs = 0
    spec: JobSpec | None = None
    counted: ControllerStatus | None = None
    pod: JobPodFacts | None = None


def calc_job_status(
    *,
    namespace: Name = "default",
    name: Name = "job",
    spec: JobSpec,
    events: Annotated[Sequence[_Event], msgspec.Meta(max_length=10_000)] = (),
) -> Calculated:
    """Compute the Job's status from events in order, as in slacktide.job.pod.v1."""
    fold = JobFold()
    for offset, one in enumerate([_Event(spec=spec), *events]):
        fold.take(into(JobEvent, one, uid="job", namespace=namespace, name=name), offset)
    status = fold.status()
    output = msgspec.to_builtins(status)
    for field in ("uid", "namespace", "name", "folded_to", "observed_ms", "spec", "counted"):
        output.pop(field, None)
    bound = "open" if status.decided is None else status.decided.reason
    terms: Terms = {
        "active_count": status.active,
        "terminating_count": status.terminating,
        "succeeded_count": status.succeeded,
        "failed_count": status.failed,
        "backoff_limit": spec.backoff_limit,
    }
    return Calculated(output=output, because=[Because(of="conditions", bound=bound, terms=terms)])
