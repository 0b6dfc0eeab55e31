"""Objects of the API server: the fields that are read of pods, nodes and the metadata of all kinds.

Each object is decoded once, where it is received. What users wrote into its texts is parsed later, by functions of
``schemas.text`` and ``schemas.units``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from slacktide.schemas.queue_objects import ContainerSpec, Part, Quantities, ResourceDemand, Taint

Json = dict[str, Any]
RESIZED = ("cpu", "memory")
"""What a resize in place may change."""


class Owner(Part, frozen=True, kw_only=True):
    """An owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Part, frozen=True, kw_only=True):
    """Metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[Owner] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Head(Part, frozen=True, kw_only=True):
    """Any object, of which only the metadata is read."""

    metadata: Meta


class Condition(Part, frozen=True, kw_only=True):
    """A condition of an object's status."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class Terminated(Part, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(Part, frozen=True, kw_only=True):
    """The state of a container."""

    terminated: Terminated | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """A container of a pod's status."""

    name: str = ""
    container_id: str | None = msgspec.field(name="containerID", default=None)
    state: ContainerState = ContainerState()
    restart_count: int = 0
    resources: ResourceDemand | None = None


class Gate(Part, frozen=True, kw_only=True):
    """A scheduling gate."""

    name: str = ""


class SchedulingGroup(Part, frozen=True, kw_only=True):
    """The PodGroup of a pod in Kubernetes' own API, since 1.36."""

    pod_group_name: str = ""


class WorkloadRef(Part, frozen=True, kw_only=True):
    """The Workload of a pod in Kubernetes' own API, in 1.35."""

    name: str = ""


class PodSpec(Part, frozen=True, kw_only=True):
    """What a pod asks for, and what binds it to nodes."""

    node_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    containers: list[ContainerSpec] = []
    init_containers: list[ContainerSpec] | None = None
    overhead: Quantities | None = None
    resources: ResourceDemand | None = None
    volumes: list[Json] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Json | None = None
    termination_grace_period_seconds: int | None = None
    tolerations: list[Json] | None = None
    topology_spread_constraints: list[Json] | None = None
    scheduling_gates: list[Gate] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None


class PodStatus(Part, frozen=True, kw_only=True):
    """The state of a pod."""

    phase: str = ""
    reason: str | None = None
    qos_class: str | None = msgspec.field(name="qosClass", default=None)
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    start_time: str | None = None
    resources: ResourceDemand | None = None
    allocated_resources: Quantities | None = None
    nominated_node_name: str | None = None


class Pod(Part, frozen=True, kw_only=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def controller(self) -> Owner:
        """The owner that recreates it; an empty one: none."""
        return next((one for one in self.metadata.owner_references or () if one.controller), Owner())

    @property
    def ended(self) -> bool:
        """Whether it has terminated."""
        return self.status.phase in {"Succeeded", "Failed"}

    def requests(self) -> Requests:
        """Return what it requests, as the kubelet has allocated it: a resize in place may wait for more."""
        spec, status, whole = self.spec, self.status, None
        if spec.resources is not None:
            given = status.allocated_resources or {}
            whole = _requested(spec.resources, status.resources)
            whole |= {name: given[name] for name in spec.resources.requests or () if name in given}
        return Requests(
            _each(spec.containers, status.container_statuses),
            _each(spec.init_containers, status.init_container_statuses),
            spec.overhead or {},
            whole,
        )


class Requests(NamedTuple):
    """What a pod requests: each container with its own, and the pod as a whole."""

    containers: list[tuple[ContainerSpec, Quantities]]
    inits: list[tuple[ContainerSpec, Quantities]]
    overhead: Quantities
    whole: Quantities | None
    """None: it requests nothing as a whole."""


def _each(
    spec: Sequence[ContainerSpec] | None, status: Sequence[ContainerStatus] | None
) -> list[tuple[ContainerSpec, Quantities]]:
    held = {one.name: one.resources for one in status or ()}
    return [(one, _requested(one.resources, held.get(one.name))) for one in spec or ()]


def _requested(wanted: ResourceDemand | None, held: ResourceDemand | None) -> Quantities:
    """Absent requests default to the limits, as at the API server."""
    wanted, held = wanted or ResourceDemand(), held or ResourceDemand()
    found: Quantities = {}
    for asked, given in ((wanted.limits or {}, held.limits or {}), (wanted.requests or {}, held.requests or {})):
        found |= asked
        found |= {name: given[name] for name in RESIZED if name in asked and name in given}
    return found


class NodeSpec(Part, frozen=True, kw_only=True):
    """Whether a Node takes pods."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Part, frozen=True, kw_only=True):
    """The amounts of a Node."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class Node(Part, frozen=True, kw_only=True):
    """A Node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
