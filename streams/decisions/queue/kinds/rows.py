"""The table of kinds: a row has the paths of pod sets, suspension and states in an object of the kind.

Reading: kueue v0.19.2, pkg/controller/jobs; jobset, mpi-operator, training-operator 1.9, trainer, kuberay and
spark-operator for what a field means. Users add rows in a ConfigMap.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from slacktide.schemas.bounds import Name
from slacktide.schemas.queue_objects import POD_SETS_MAX, Part

_NAME = r"[a-zA-Z_][a-zA-Z0-9_-]*(\[\])?"
FieldPath = Annotated[str, Meta(pattern=rf"^{_NAME}(\.({_NAME}|\*))*$", max_length=200)]
"""Names separated by dots; ``name[]`` is each item of a list, and ``*`` each value of a map."""
Single = Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_-]*(\.[a-zA-Z_][a-zA-Z0-9_-]*)*$", max_length=200)]
"""Names separated by dots."""
_LABEL = r"[A-Za-z0-9._/-]+=([A-Za-z0-9._-]*|\{[a-zA-Z0-9_.-]+\})"
Selector = Annotated[str, Meta(pattern=rf"^{_LABEL}(,{_LABEL})*$", max_length=500)]
"""Equal labels of pods; ``{PATH}`` is a field of the object, such as ``{metadata.name}``."""


class Row(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind."""

    api_version: Annotated[str, Meta(pattern=r"^[a-z0-9.-]+/v[a-z0-9]+$", max_length=200)]
    kind: Annotated[str, Meta(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=63)]
    plural: Annotated[str, Meta(pattern=r"^[a-z0-9-]+$", max_length=63)]
    pod_sets: Annotated[list[PodSetRow], Meta(min_length=1, max_length=POD_SETS_MAX)]
    suspend: Single = "spec.suspend"
    """True or false."""
    settled: State
    """Its controller has seen the suspension."""
    active: FieldPath | None = None
    """Numbers that are also 0 then."""
    unseen: Single | None = None
    """A text that is empty before its controller has seen it. A suspended object is settled then, too."""
    succeeded: State | None = None
    failed: State | None = None
    finished: State | None = None
    """If succeeded or failed is not enough. Without any of the three, it holds quota until it is deleted or evicted."""
    held: State | None = None
    """Its controller would not run it."""
    ready: State | None = None
    """All its pods are ready. Without it and without ``jobs``, it is ready as soon as it is started."""
    jobs: Single | None = None
    """A status list: by ``name``, how many of a pod set's replicas are ``ready`` or have ``succeeded``."""
    priority_class: Single | None = None
    managed_by: Single | None = None
    """Another value than ``operator`` means that another controller manages the object."""
    operator: str = ""
    pods: Annotated[list[Selector], Meta(min_length=1, max_length=2)]
    """Selectors of its pods. A label whose field is empty leaves its selector out."""


class PodSetRow(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pod set, or one for each item of a list: replicas x min(parallelism, completions) pods."""

    path: FieldPath
    name: Name
    """Of the pod set. If the path is a list: the field of an item with the name."""
    replicas: Single = "replicas"
    parallelism: Single | None = None
    completions: Single | None = None
    template: Single = "template"


class State(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition that is true, or a field with one of the values."""

    condition: str | None = None
    path: Single | None = None
    values: list[str] = []

    def __post_init__(self) -> None:
        """Raise ValueError unless it is one of both."""
        if (self.condition is None) == (self.path is None) or (self.path is None) != (not self.values):
            raise ValueError("either condition, or path and values")


def _state(path: str, *values: str) -> State:
    return State(path=path, values=list(values))


_SUSPENDED = State(condition="Suspended")
_TRAINING: dict[str, Any] = {
    "suspend": "spec.runPolicy.suspend",
    "settled": _SUSPENDED,
    "active": "status.replicaStatuses.*.active",
    "succeeded": State(condition="Succeeded"),
    "failed": State(condition="Failed"),
    "ready": State(condition="Running"),
    "priority_class": "spec.runPolicy.schedulingPolicy.priorityClass",
    "managed_by": "spec.runPolicy.managedBy",
}
_JOBSET: dict[str, Any] = {
    "managed_by": "spec.managedBy",
    "pods": ["jobset.sigs.k8s.io/jobset-name={metadata.name}"],
    "settled": _SUSPENDED,
}
_COMPUTED = [PodSetRow(path="spec", name="pods")]
"""Of kinds whose pod sets have a module."""


def _replicas(specs: str, *names: str) -> list[PodSetRow]:
    return [PodSetRow(path=f"{specs}.{name}", name=name.lower()) for name in names]


def _training_pods(operator: str) -> list[str]:
    return [f"training.kubeflow.org/job-name={{metadata.name}},training.kubeflow.org/operator-name={operator}"]


JOBSET = Row(
    api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", plural="jobsets",
    pod_sets=[PodSetRow(path="spec.replicatedJobs[]", name="name", parallelism="template.spec.parallelism",
                        completions="template.spec.completions", template="template.spec.template")],
    active="status.replicatedJobsStatus[].active", jobs="status.replicatedJobsStatus",
    succeeded=State(condition="Completed"), failed=State(condition="Failed"),
    operator="jobset.sigs.k8s.io/jobset-controller", **_JOBSET,
)  # fmt: skip
MPI_JOB = Row(
    api_version="kubeflow.org/v2beta1", kind="MPIJob", plural="mpijobs",
    pod_sets=_replicas("spec.mpiReplicaSpecs", "Launcher", "Worker"),
    operator="kubeflow.org/mpi-operator", pods=_training_pods("mpi-operator"), **_TRAINING,
)  # fmt: skip
PYTORCH_JOB = Row(
    api_version="kubeflow.org/v1", kind="PyTorchJob", plural="pytorchjobs",
    pod_sets=_replicas("spec.pytorchReplicaSpecs", "Master", "Worker"),
    operator="kubeflow.org/training-operator", pods=_training_pods("pytorchjob-controller"), **_TRAINING,
)  # fmt: skip
TRAIN_JOB = Row(
    api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob", plural="trainjobs", pod_sets=_COMPUTED,
    active="status.jobsStatus[].active", jobs="status.jobsStatus",
    succeeded=State(condition="Complete"), failed=State(condition="Failed"),
    operator="trainer.kubeflow.org/trainjob-controller", **_JOBSET,
)  # fmt: skip
_DEPLOYMENT = "status.jobDeploymentStatus"
RAY_JOB = Row(
    api_version="ray.io/v1", kind="RayJob", plural="rayjobs", pod_sets=_COMPUTED,
    settled=_state(_DEPLOYMENT, "Suspended", ""), held=_state(_DEPLOYMENT, "ValidationFailed"),
    finished=_state(_DEPLOYMENT, "Complete", "Failed"), succeeded=_state("status.jobStatus", "SUCCEEDED"),
    ready=_state("status.rayClusterStatus.state", "ready"),
    managed_by="spec.managedBy", operator="ray.io/kuberay-operator",
    pods=["ray.io/cluster={status.rayClusterName}",
          "ray.io/originated-from-cr-name={metadata.name},ray.io/originated-from-crd=RayJob"],
)  # fmt: skip
RAY_CLUSTER = Row(
    api_version="ray.io/v1", kind="RayCluster", plural="rayclusters", pod_sets=_COMPUTED,
    settled=_state("status.state", "suspended"), unseen="status.state", ready=_state("status.state", "ready"),
    managed_by="spec.managedBy", operator="ray.io/kuberay-operator", pods=["ray.io/cluster={metadata.name}"],
)  # fmt: skip
_APPLICATION = "status.applicationState.state"
SPARK = Row(
    api_version="sparkoperator.k8s.io/v1beta2", kind="SparkApplication", plural="sparkapplications",
    pod_sets=_COMPUTED, settled=_state(_APPLICATION, "SUSPENDED"), unseen=_APPLICATION,
    succeeded=_state(_APPLICATION, "COMPLETED"), failed=_state(_APPLICATION, "FAILED"),
    ready=_state(_APPLICATION, "RUNNING"),
    pods=["sparkoperator.k8s.io/app-name={metadata.name}"],
)  # fmt: skip
POD = Row(
    api_version="v1", kind="Pod", plural="pods", pod_sets=_COMPUTED, settled=_SUSPENDED,
    pods=["metadata.name={metadata.name}"],
)  # fmt: skip
ROWS = (JOBSET, MPI_JOB, PYTORCH_JOB, TRAIN_JOB, RAY_JOB, RAY_CLUSTER, SPARK, POD)


def kind_of(api_version: str, kind: str) -> tuple[str, str]:
    """Return group and kind."""
    return api_version.rpartition("/")[0], kind


PARENTS = frozenset({kind_of(row.api_version, row.kind) for row in ROWS} | {("batch", "Job"), ("ray.io", "RayService")})
"""Group and kind of controllers whose objects follow them."""
