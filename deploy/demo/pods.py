"""The demo's pods as Kubernetes manifests, and its policy. Pure."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from slacktide.deploy.demo.groups import CONTAINER, PodGroup

NAMESPACE = "slacktide-demo"
BATCH_PODS = 2
REQUEST_MIB = 256
WINDOW_S = 10
"""A short window, so that reclaimable CPU follows quickly."""
CEILING_PCT = 95
"""The ceiling with `cpu.idle` on best-effort pods."""
Form = Literal["none", "burstable", "besteffort", "plain"]
"""No pods; native requests; batch resources; best-effort pods without requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPod:
    """A pod of the service or the batch work."""

    node: str
    name: str
    kind: Literal["service", "burstable", "besteffort"]
    cpu_milli: int
    """The request: CPU, or batch CPU for best-effort; 0: no requests at all."""
    limit_milli: int | None = None
    mem_mib: int = REQUEST_MIB
    """The memory request; for pods with batch resources also the limit."""
    owner: str = ""
    """Its Deployment; "": none."""

    @property
    def uid(self) -> str:
        """Return the uid, which is equal in each run."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"slacktide-demo/{self.node}/{self.name}"))

    @property
    def kube_qos(self) -> str:
        """Return the Kubernetes QoS class."""
        return "BestEffort" if self.kind == "besteffort" else "Burstable"

    @property
    def request_milli(self) -> int:
        """Return the native CPU request."""
        return 0 if self.kind == "besteffort" else self.cpu_milli

    @property
    def group(self) -> PodGroup:
        """Return the cgroup."""
        tier: Literal["burstable", "besteffort"] = "besteffort" if self.kind == "besteffort" else "burstable"
        return PodGroup(uid=self.uid, tier=tier, request_milli=self.request_milli)


def service_pod(node: str, capacity_milli: int) -> DemoPod:
    """Return the latency-sensitive service, which requests half of the machine."""
    return DemoPod(node=node, name="service", kind="service", cpu_milli=capacity_milli // 2)


def batch_pods(form: Form, node: str, capacity_milli: int) -> list[DemoPod]:
    """Return two batch pods that request the other half, as native or batch CPU."""
    if form == "none":
        return []
    each_milli = capacity_milli // 2 // BATCH_PODS
    if form == "plain":
        return [DemoPod(node=node, name=f"crunch-plain-{n}", kind="besteffort", cpu_milli=0) for n in range(BATCH_PODS)]
    name = "crunch-native" if form == "burstable" else "crunch-batch"
    return [DemoPod(node=node, name=f"{name}-{n}", kind=form, cpu_milli=each_milli) for n in range(BATCH_PODS)]


def batch_uids(nodes: Iterable[str], capacity_milli: int) -> set[str]:
    """Return the uids of the batch work in all forms."""
    forms: tuple[Form, ...] = ("burstable", "besteffort", "plain")
    return {pod.uid for node in nodes for form in forms for pod in batch_pods(form, node, capacity_milli)}


def inventory_yaml(nodes: Iterable[str], capacity_milli: int, mem_bytes: int, pods: Iterable[DemoPod]) -> str:
    """Return the output of ``kubectl get node,pods -o yaml`` for identical nodes."""
    capacity = {"cpu": _cpu(capacity_milli), "memory": f"{mem_bytes // 1024}Ki", "pods": "110"}
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}},
            "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
        }
        for node in nodes
    ]
    items += [_pod(pod) for pod in pods]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}, sort_keys=False)


def _pod(pod: DemoPod) -> dict[str, Any]:
    best_effort = pod.kind == "besteffort"
    memory = f"{pod.mem_mib}Mi"
    labels = {"koordinator.sh/qosClass": "BE" if best_effort else "LS"}
    amounts: dict[str, str] = {}
    if not best_effort:
        amounts = {"cpu": _cpu(pod.cpu_milli), "memory": memory}
    elif pod.cpu_milli:
        amounts = {"kubernetes.io/batch-cpu": str(pod.cpu_milli), "kubernetes.io/batch-memory": memory}
    limits = {"kubernetes.io/batch-memory": memory} if best_effort and amounts else {}
    if pod.limit_milli is not None:
        limits |= {"kubernetes.io/batch-cpu": str(pod.limit_milli)} if best_effort else {"cpu": _cpu(pod.limit_milli)}
    resources = {"requests": amounts} | ({"limits": limits} if limits else {})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": pod.owner, "uid": pod.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": NAMESPACE, "uid": pod.uid, "labels": labels}
        | ({"ownerReferences": [owner]} if pod.owner else {}),
        "spec": {
            "nodeName": pod.node,
            "priority": 5500 if best_effort else 9500,
            "priorityClassName": "koord-batch" if best_effort else "koord-prod",
            "containers": [{"name": CONTAINER, "resources": resources}],
        },
        "status": {
            "phase": "Running",
            "qosClass": pod.kube_qos,
            "containerStatuses": [{"name": CONTAINER, "containerID": f"containerd://{CONTAINER}"}],
        },
    }


def policy_yaml(*, suppress: bool) -> str:
    """Return the demo's ``slo-controller-config``; ``suppress``: with a quota above ``CEILING_PCT``, and idle pods."""
    threshold = {"enable": suppress, "cpuSuppressThresholdPercent": CEILING_PCT, "cpuSuppressPolicy": "cfsQuota"}
    colocation = {"enable": True, "metricAggregateDurationSeconds": WINDOW_S}
    data = {
        "colocation-config": json.dumps(colocation),
        "resource-threshold-config": json.dumps({"clusterStrategy": threshold}),
    }
    if suppress:
        best_effort = {"cpuQOS": {"enable": True, "schedIdle": 1}}
        qos = {"policies": {"cpuPolicy": "podIdle"}, "beClass": best_effort}
        data["resource-qos-config"] = json.dumps({"clusterStrategy": qos})
    name = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}, sort_keys=False)


def _cpu(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
