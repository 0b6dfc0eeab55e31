"""Reads a pod for descheduling; above all, whether it is evictable. Pure.

Source: koordinator a7a1b76b, pkg/descheduler/framework/plugins/kubernetes/defaultevictor and apis/extension. Stricter:
    only best-effort pods are evicted, and none with resources that are not compared between nodes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from slacktide.agents.kubernetes import objects
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


def parsed(item: objects.Pod, noted: Callable[[str], object] = lambda _: None) -> DeschedulerPod:
    """Read a pod; ``noted`` as in ``read_pod``. Raises BadMessageError if a field is invalid."""
    pod = read_pod(msgspec.to_builtins(item), noted)
    metadata = item.metadata
    deletion_cost, eviction_cost = (_cost(metadata.annotations or {}, name) for name in (DELETION_COST, EVICTION_COST))
    created = metadata.creation_timestamp
    return DeschedulerPod(
        pod=msgspec.structs.replace(pod, containers=[]),
        node=item.spec.node_name or "",
        requests=amounts_of(pod.requests),
        stays=next(_stays(pod, item, eviction_cost), ""),
        created_s=time_ms_of(created, where="metadata.creationTimestamp") // 1_000 if created else 0,
        deletion_cost=deletion_cost,
        eviction_cost=eviction_cost,
    )


def amounts_of(resources: Resources) -> dict[str, int]:
    """By Kubernetes' resource names."""
    amounts = {name: getattr(resources, field) for field, name in NAMES.items()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _stays(pod: Pod, item: objects.Pod, cost: int) -> Iterator[str]:
    """Yield reasons against an eviction, permanent ones first."""
    if pod.namespace in OWN_NAMESPACES:
        yield "system_namespace"
    held = as_held(pod)
    if held.unheld or effective_qos(held.qos_label, held.kube_qos) != "BE":
        yield "not_best_effort"
    if (pod.priority or 0) >= CRITICAL:
        yield "critical"
    if item.metadata.deletion_timestamp:
        yield "leaving"
    if cost == NEVER or (pod.eviction_features is not None and FEATURE not in pod.eviction_features):
        yield "forbids_it"
    # By owner: no controller would recreate the pod, or only on the same node.
    owners = item.metadata.owner_references or ()
    if MIRRORS & (item.metadata.annotations or {}).keys() or any(one.kind == "Node" for one in owners):
        yield "static"
    if any(one.kind == "DaemonSet" for one in owners):
        yield "daemonset"
    if not any(one.controller for one in owners):
        yield "no_controller"
    yield from _bound_to_its_node(item.spec)


def _bound_to_its_node(spec: objects.PodSpec) -> Iterator[str]:
    """Yield reasons by node: local data or node constraints."""
    if any("emptyDir" in one or "hostPath" in one for one in spec.volumes or ()):
        yield "local_storage"
    affinity = (spec.affinity or {}).get("nodeAffinity") or {}
    if spec.node_selector or affinity.get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield "selects_nodes"
    asking = [one.resources for one in (spec, *spec.containers, *(spec.init_containers or ()))]
    asked = [name for one in asking if one is not None for part in (one.requests, one.limits) for name in part or ()]
    if not all(name.startswith(COMPARED) for name in asked):
        yield "asks_for_devices"


def _cost(annotations: Mapping[str, str], name: str) -> int:
    """0 if absent or invalid."""
    try:
        return cost_of(text) if (text := annotations.get(name)) else 0
    except TextError:
        return 0
