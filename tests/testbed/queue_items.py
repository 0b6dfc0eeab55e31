"""The queue's objects as ``kubectl get -o yaml`` prints them: short to write in a test."""

from __future__ import annotations

from typing import Any

from slacktide.streams.decisions.queue.cluster_objects import QueueCluster, queue_cluster, read_objects
from slacktide.streams.decisions.queue.quota_tree import FlavorResource

Json = dict[str, Any]
CPU, MEMORY = FlavorResource("f", "cpu"), FlavorResource("f", "memory")
SHARES = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": "50"}
T0, T0_S = "2026-03-01T12:00:00Z", 1_772_366_400


def objects(*items: Json) -> list[Any]:
    return read_objects([(f"items[{at}]", item) for at, item in enumerate(items)])


def cluster(*items: Json) -> QueueCluster:
    return queue_cluster(objects(*items))


def resource(name: str = "cpu", nominal: Any = "4", **limits: Any) -> Json:
    return {"name": name, "nominalQuota": nominal, **limits}


def cluster_queue(name: str = "cq", *resources: Json, metadata: Json | None = None, **spec: Any) -> Json:
    given = list(resources or (resource(),))
    group = {"coveredResources": [one["name"] for one in given], "flavors": [{"name": "f", "resources": given}]}
    spec = {"resourceGroups": [group], "namespaceSelector": {}, **spec}
    return {"kind": "ClusterQueue", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def cohort(name: str, metadata: Json | None = None, **spec: Any) -> Json:
    return {"kind": "Cohort", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def local_queue(queue: str = "cq", namespace: str = "ns") -> Json:
    return {"kind": "LocalQueue", "metadata": {"namespace": namespace, "name": "q"}, "spec": {"clusterQueue": queue}}


def pod(cpu: str = "1", **spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec}}


def condition(kind: str, status: str = "True", reason: str = "r", at: str | None = T0) -> Json:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at}


def workload(name: str = "w", *, status: Json | None = None, metadata: Json | None = None, **spec: Any) -> Json:
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 2, "template": pod()}], **spec}
    about = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": T0, **(metadata or {})}
    return {"kind": "Workload", "metadata": about, "spec": spec, "status": status or {}}


def admitted(*, queue: str = "cq", conditions: list[Json] | None = None, count: int | None = 2, **status: Any) -> Json:
    sets = [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}, "count": count}]
    reserved = [condition("QuotaReserved")] if conditions is None else conditions
    return {"admission": {"clusterQueue": queue, "podSetAssignments": sets}, "conditions": reserved, **status}


def job(name: str = "j", *, status: Json | None = None, metadata: Json | None = None, **spec: Any) -> Json:
    about = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": T0,
             "labels": {"kueue.x-k8s.io/queue-name": "q"}, **(metadata or {})}  # fmt: skip
    return {"kind": "Job", "metadata": about, "spec": {"template": pod(), **spec}, "status": status or {}}
