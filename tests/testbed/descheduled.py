"""Pods as Kubernetes has them, and nodes as the log has them, for descheduling."""

from typing import Any

import msgspec

from slacktide.agents.cluster.descheduler.pod import DeschedulerPod, parsed
from slacktide.agents.kubernetes.objects import Pod
from slacktide.schemas.metric import NodeMetric, PodMetric, Use

GIB = 2**30
OWNER = [{"kind": "ReplicaSet", "name": "etl", "uid": "rs", "controller": True}]


def pod_object(name: str, node: str = "", **other: Any) -> dict[str, Any]:
    """A best-effort pod of a controller that asks for 1 batch CPU and 1 GiB; ``other``: parts of it, replaced."""
    amounts = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": str(GIB)}
    return {
        "metadata": {
            "namespace": "jobs",
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"koordinator.sh/qosClass": "BE"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": OWNER,
        }
        | other.pop("metadata", {}),
        "spec": {
            "nodeName": node,
            "priority": 5_500,
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        }
        | other.pop("spec", {}),
        "status": {"phase": "Running", "qosClass": "BestEffort"} | other.pop("status", {}),
    }


def metric(node: str, pods: dict[str, int], *, system: int = 0, stale_ms: int = 0) -> NodeMetric:
    """What the log says: millicores by pod's uid, and of the system; memory hardly any."""
    return NodeMetric(
        node=node,
        boot_id="b1",
        seq=1,
        observed_ms=0,
        window_ms=300_000,
        covered_ms=300_000,
        samples=300,
        policy_version="v",
        facts_revision="f",
        pods_revision="p",
        node_use=Use(cpu_milli=system + sum(pods.values()), mem_bytes=GIB),
        system_use=Use(cpu_milli=system, mem_bytes=GIB),
        pods=[PodMetric(uid=uid, use=Use(cpu_milli=cpu, mem_bytes=GIB)) for uid, cpu in pods.items()],
        stale_ms=stale_ms,
    )


def descheduled(item: dict[str, Any]) -> DeschedulerPod:
    """A pod as the descheduler reads it."""
    return parsed(msgspec.convert(item, Pod))
