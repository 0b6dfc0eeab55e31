"""Kubernetes objects that a job queue uses, as ``kubectl get -o yaml`` prints them. Unused fields are left out.

Kueue's kinds are those of ``kueue.x-k8s.io/v1beta2``; names that v1beta1 used for the same are read, too.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slacktide.schemas.bounds import INT32_MAX, Int32, Int64, Name, Term

Quantity = str | Term
PodCount = Annotated[int, Meta(ge=0, le=INT32_MAX)]
POD_SETS_MAX = 8
"""Kueue's limit."""
Quantities = dict[str, Quantity]
PreemptionPolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
Continue = Literal["MayStopSearch", "TryNextFlavor", "Borrow", "Preempt"]
"""The last two are v1beta1's names of the first."""
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
"""Hold: nothing more is admitted. HoldAndDrain: what has quota is also evicted."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all: names are Kubernetes'."""


class Owner(Part, frozen=True, kw_only=True):
    """Of an object."""

    kind: str = ""
    uid: str = ""


class Metadata(Part, frozen=True, kw_only=True):
    """Of an object."""

    name: Name
    namespace: Name = ""
    uid: Name = ""
    generation: Int64 = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    owner_references: list[Owner] | None = None


class Taint(Part, frozen=True, kw_only=True):
    """Of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(Part, frozen=True, kw_only=True):
    """Of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Expression(Part, frozen=True, kw_only=True):
    """Of a selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(Part, frozen=True, kw_only=True):
    """Without labels and expressions it matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class ResourceQuota(Part, frozen=True, kw_only=True):
    """Of one resource of a flavor."""

    name: str
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Part, frozen=True, kw_only=True):
    """Of one flavor."""

    name: str
    resources: list[ResourceQuota] = []


class ResourceGroup(Part, frozen=True, kw_only=True):
    """Resources that come from the same flavor."""

    covered_resources: list[str] = []
    flavors: list[FlavorQuotas] = []


class BorrowWithinCohort(Part, frozen=True, kw_only=True):
    """Preemption while borrowing."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Int32 | None = None


class PreemptionSpec(Part, frozen=True, kw_only=True):
    """The workloads that those of a ClusterQueue may preempt."""

    within_cluster_queue: PreemptionPolicy = "Never"
    reclaim_within_cohort: PreemptionPolicy = "Never"
    borrow_within_cohort: BorrowWithinCohort | None = None


class FlavorFungibility(Part, frozen=True, kw_only=True):
    """Whether the next flavor is tried."""

    when_can_borrow: Continue = "MayStopSearch"
    when_can_preempt: Continue = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None


class FairSharing(Part, frozen=True, kw_only=True):
    """The weight of a ClusterQueue or Cohort."""

    weight: Quantity = 1


class AdmissionCheckRule(Part, frozen=True, kw_only=True):
    """An admission check of a ClusterQueue."""

    name: str
    on_flavors: list[str] | None = None
    """Flavors that it is for. Empty: all workloads."""


class AdmissionChecksStrategy(Part, frozen=True, kw_only=True):
    """The admission checks of a ClusterQueue."""

    admission_checks: list[AdmissionCheckRule] = []


class ClusterQueueSpec(Part, frozen=True, kw_only=True):
    """Of a ClusterQueue."""

    cohort_name: str = ""
    cohort: str = ""
    resource_groups: list[ResourceGroup] = []
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    preemption: PreemptionSpec | None = None
    flavor_fungibility: FlavorFungibility | None = None
    fair_sharing: FairSharing | None = None
    namespace_selector: LabelSelector | None = None
    stop_policy: StopPolicy | None = None
    """Absent: None."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    admission_checks: list[str] | None = None
    """Of v1beta1."""


class CohortSpec(Part, frozen=True, kw_only=True):
    """Of a Cohort."""

    parent_name: str = ""
    parent: str = ""
    resource_groups: list[ResourceGroup] = []
    fair_sharing: FairSharing | None = None


class ResourceFlavorSpec(Part, frozen=True, kw_only=True):
    """Of a ResourceFlavor."""

    node_labels: dict[str, str] | None = None
    node_taints: list[Taint] | None = None
    tolerations: list[Toleration] | None = None


class LocalQueueSpec(Part, frozen=True, kw_only=True):
    """Of a LocalQueue."""

    cluster_queue: Name
    stop_policy: StopPolicy | None = None
    """Absent: None."""


class ResourceDemand(Part, frozen=True, kw_only=True):
    """Of a container, or of a pod as a whole."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerSpec(Part, frozen=True, kw_only=True):
    """Of a pod."""

    name: str = ""
    resources: ResourceDemand | None = None
    restart_policy: str = ""


class NodeSelectorTerm(Part, frozen=True, kw_only=True):
    """Of an affinity."""

    match_expressions: list[Expression] | None = None


class NodeSelector(Part, frozen=True, kw_only=True):
    """Of an affinity."""

    node_selector_terms: list[NodeSelectorTerm] = []


class NodeAffinity(Part, frozen=True, kw_only=True):
    """Of an affinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Part, frozen=True, kw_only=True):
    """Of a pod."""

    node_affinity: NodeAffinity | None = None


class PodSpec(Part, frozen=True, kw_only=True):
    """Of a pod template."""

    containers: list[ContainerSpec] = []
    init_containers: list[ContainerSpec] | None = None
    overhead: Quantities | None = None
    resources: ResourceDemand | None = None
    runtime_class_name: str = ""
    priority_class_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None


class PodTemplate(Part, frozen=True, kw_only=True):
    """Of a Job or a pod set."""

    spec: PodSpec


class JobSpec(Part, frozen=True, kw_only=True):
    """Of a Job."""

    parallelism: PodCount = 1
    completions: PodCount | None = None
    completion_mode: Literal["NonIndexed", "Indexed"] = "NonIndexed"
    template: PodTemplate


class ObjectCondition(Part, frozen=True, kw_only=True):
    """Of an object's status."""

    type: str
    status: str
    reason: str = ""
    last_transition_time: str | None = None


class JobStatus(Part, frozen=True, kw_only=True):
    """Of a Job."""

    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[ObjectCondition] | None = None


class WorkloadPodSet(Part, frozen=True, kw_only=True):
    """Of a Workload."""

    name: Name = "main"
    count: PodCount = 1
    min_count: Int32 | None = None
    template: PodTemplate


class WorkloadSpec(Part, frozen=True, kw_only=True):
    """Of a Workload."""

    queue_name: str = ""
    priority: Int32 | None = None
    active: bool = True
    pod_sets: Annotated[list[WorkloadPodSet], Meta(max_length=POD_SETS_MAX)] = []


class PodSetAdmission(Part, frozen=True, kw_only=True):
    """Of an admitted Workload."""

    name: Name = "main"
    flavors: dict[str, str] | None = None
    resource_usage: Quantities | None = None
    count: PodCount | None = None


class AdmissionStatus(Part, frozen=True, kw_only=True):
    """Of a Workload that holds quota."""

    cluster_queue: Name
    pod_set_assignments: Annotated[list[PodSetAdmission], Meta(max_length=POD_SETS_MAX)] = []


class RequeueState(Part, frozen=True, kw_only=True):
    """Of a Workload that waits after an eviction."""

    count: Int32 = 0
    requeue_at: str | None = None


class ReclaimablePod(Part, frozen=True, kw_only=True):
    """Pods of a set that are done."""

    name: str
    count: PodCount


class WorkloadStatus(Part, frozen=True, kw_only=True):
    """Of a Workload."""

    admission: AdmissionStatus | None = None
    conditions: list[ObjectCondition] | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: list[ReclaimablePod] | None = None


class QueueObject(Part, frozen=True, kw_only=True):
    """What all of them have."""

    metadata: Metadata


class ClusterQueueObject(QueueObject, frozen=True, kw_only=True):
    """A ClusterQueue."""

    spec: ClusterQueueSpec


class CohortObject(QueueObject, frozen=True, kw_only=True):
    """A Cohort."""

    spec: CohortSpec = CohortSpec()


class ResourceFlavorObject(QueueObject, frozen=True, kw_only=True):
    """A ResourceFlavor."""

    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class LocalQueueObject(QueueObject, frozen=True, kw_only=True):
    """A LocalQueue."""

    spec: LocalQueueSpec


class NamespaceObject(QueueObject, frozen=True, kw_only=True):
    """A Namespace."""


class PriorityClassObject(QueueObject, frozen=True, kw_only=True):
    """A PriorityClass."""

    value: Int32 = 0
    global_default: bool = False


class WorkloadPriorityClassObject(QueueObject, frozen=True, kw_only=True):
    """A WorkloadPriorityClass."""

    value: Int32 = 0


class JobObject(QueueObject, frozen=True, kw_only=True):
    """A Job."""

    spec: JobSpec
    status: JobStatus = JobStatus()


class WorkloadObject(QueueObject, frozen=True, kw_only=True):
    """A Workload."""

    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()


KINDS = {kind.__name__.removesuffix("Object"): kind for kind in QueueObject.__subclasses__()}
"""Of files."""


class KindObject(QueueObject, frozen=True, kw_only=True):
    """An object of another kind that is queued, with its pod sets. It is no kind of files: its own manifest is."""

    kind: str
    pod_sets: list[WorkloadPodSet] = []
    own_class: str = ""
    """Its priority class beside those of pod templates."""
    left_out: str = ""
    """Why it is not queued."""
    status: JobStatus = JobStatus()
