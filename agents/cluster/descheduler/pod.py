"""Reads a pod for descheduling; above all, whether it is evictable. Pure.

Source: koordinator a7a1b76b, pkg/descheduler/framework/plugins/kubernetes/defaultevictor and apis/extension. Stricter:
    only best-effort pods are evicted, and none with resources that are not compared between nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.kubernetes_pod import (
    ANNOTATION_MIRROR,
    ANNOTATION_SOURCE,
    DELETION_COST,
    EVICTION_COST,
    cost_of,
    read_pod,
)
from slacktide.schemas.qos import as_held, effective_qos
from slacktide.schemas.text import time_ms_of

FEATURE = "LowNodeLoad"
"""The name for annotation koordinator.sh/eviction-policy that allows eviction."""
OWN_NAMESPACES = frozenset({"kube-system", "slacktide-system", "koordinator-system"})
CRITICAL = 2_000_000_000
"""Priority of system-cluster-critical."""
MIRRORS = frozenset({ANNOTATION_MIRROR, ANNOTATION_SOURCE})
NEVER = 2**31 - 1
"""This eviction cost forbids an eviction."""
NAMES = {
    "cpu_milli": "cpu",
    "mem_bytes": "memory",
    "batch_cpu_milli": "kubernetes.io/batch-cpu",
    "batch_mem_bytes": "kubernetes.io/batch-memory",
    "mid_cpu_milli": "kubernetes.io/mid-cpu",
    "mid_mem_bytes": "kubernetes.io/mid-memory",
    "free_cpu_milli": "kubernetes.io/free-cpu",
    "free_mem_bytes": "kubernetes.io/free-memory",
}
COMPARED = ("cpu", "memory", "kubernetes.io/", "koordinator.sh/", "ephemeral-storage")
"""Prefixes of resources that are compared; a device may exist on no other node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulerPod:
    """A bound pod."""

    pod: Pod
    node: str
    """"": not bound."""
    requests: Mapping[str, int]
    """By Kubernetes' resource names."""
    stays: str
    """Why it is not evictable; "": it is."""
    created_s: int
    deletion_cost: int
    eviction_cost: int

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.pod.namespace, self.pod.name


def parsed(item: Mapping[str, Any], noted: Callable[[str], object] = lambda _: None) -> DeschedulerPod:
    """Parse a pod; ``noted`` as in ``read_pod``. Raises BadMessageError if a field is invalid."""
    pod = read_pod(item, noted)
    metadata = item.get("metadata") or {}
    costs = [_cost(metadata, name) for name in (DELETION_COST, EVICTION_COST)]
    return DeschedulerPod(
        pod=msgspec.structs.replace(pod, containers=[]),
        node=(item.get("spec") or {}).get("nodeName") or "",
        requests=amounts_of(pod.requests),
        stays=next(_stays(pod, item, costs[1]), ""),
        created_s=_created_s(metadata),
        deletion_cost=costs[0],
        eviction_cost=costs[1],
    )


def amounts_of(resources: Resources) -> dict[str, int]:
    """By Kubernetes' resource names."""
    amounts = {name: getattr(resources, field) for field, name in NAMES.items()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _stays(pod: Pod, item: Mapping[str, Any], cost: int) -> Iterator[str]:
    """Yield reasons against an eviction, permanent ones first."""
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    if pod.namespace in OWN_NAMESPACES:
        yield "system_namespace"
    held = as_held(pod)
    if held.unheld or effective_qos(held.qos_label, held.kube_qos) != "BE":
        yield "not_best_effort"
    if (pod.priority or 0) >= CRITICAL:
        yield "critical"
    if metadata.get("deletionTimestamp"):
        yield "leaving"
    if cost == NEVER or (pod.eviction_features is not None and FEATURE not in pod.eviction_features):
        yield "forbids_it"
    yield from _by_owner(metadata)
    yield from _bound_to_its_node(spec)


def _by_owner(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield reasons by owner: no controller would recreate the pod, or only on the same node."""
    owners = metadata.get("ownerReferences") or ()
    if MIRRORS & (metadata.get("annotations") or {}).keys() or any(one.get("kind") == "Node" for one in owners):
        yield "static"
    if any(one.get("kind") == "DaemonSet" for one in owners):
        yield "daemonset"
    if not any(one.get("controller") for one in owners):
        yield "no_controller"


def _bound_to_its_node(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield reasons by node: local data or node constraints."""
    if any("emptyDir" in one or "hostPath" in one for one in spec.get("volumes") or ()):
        yield "local_storage"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if spec.get("nodeSelector") or affinity.get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield "selects_nodes"
    asking = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    asked = [
        name
        for one in asking
        for kind in ("requests", "limits")
        for name in ((one.get("resources") or {}).get(kind) or {})
    ]
    if not all(name.startswith(COMPARED) for name in asked):
        yield "asks_for_devices"


def _cost(metadata: Mapping[str, Any], name: str) -> int:
    """0 if absent or invalid."""
    try:
        return cost_of(text) if (text := (metadata.get("annotations") or {}).get(name)) else 0
    except TextError:
        return 0


def _created_s(metadata: Mapping[str, Any]) -> int:
    text = metadata.get("creationTimestamp")
    return time_ms_of(text, where="metadata.creationTimestamp") // 1_000 if text else 0


Json = dict[str, Any]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Absent fields stay absent when converted to plain data."""


class Metadata(_Part, frozen=True):
    """Name, owner, labels and annotations."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Json] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Container(_Part, frozen=True):
    """Resources of a container."""

    name: str = ""
    resources: Json | None = None
    restart_policy: str | None = None


class Spec(_Part, frozen=True):
    """Node constraints and containers."""

    node_name: str | None = None
    priority: int | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Json | None = None
    resources: Json | None = None
    volumes: list[Json] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Json | None = None


class Status(_Part, frozen=True):
    """The pod's status."""

    phase: str | None = None
    qos_class: str | None = msgspec.field(name="qosClass", default=None)
    resources: Json | None = None
    allocated_resources: Json | None = None
    container_statuses: list[Container] | None = None
    init_container_statuses: list[Container] | None = None


class PodObject(_Part, frozen=True):
    """A pod."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    def plain(self) -> Json:
        """As plain data."""
        made: Json = msgspec.to_builtins(self)
        return made
