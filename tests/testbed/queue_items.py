"""The queue's objects as ``kubectl get -o yaml`` prints them: short to write in a test."""

from typing import Any

from slacktide.streams.decisions.queue.kinds.files import read_objects
from slacktide.streams.decisions.queue.quota_tree import FlavorResource

Json = dict[str, Any]
CPU = FlavorResource("f", "cpu")
SHARES = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": "50"}
T0 = "2026-03-01T12:00:00Z"
POD: Json = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}


def objects(*items: Json) -> list[Any]:
    return read_objects([(f"items[{at}]", item) for at, item in enumerate(items)])


def resource(name: str = "cpu", nominal: Any = "4", **limits: Any) -> Json:
    return {"name": name, "nominalQuota": nominal, **limits}


def cluster_queue(name: str = "cq", *resources: Json, metadata: Json | None = None, **spec: Any) -> Json:
    given = list(resources or (resource(),))
    group = {"coveredResources": [one["name"] for one in given], "flavors": [{"name": "f", "resources": given}]}
    spec = {"resourceGroups": [group], "namespaceSelector": {}, **spec}
    return {"kind": "ClusterQueue", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def cohort(name: str, metadata: Json | None = None, **spec: Any) -> Json:
    return {"kind": "Cohort", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def workload(name: str = "w", *, metadata: Json | None = None) -> Json:
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 2, "template": POD}]}
    about = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": T0, **(metadata or {})}
    return {"kind": "Workload", "metadata": about, "spec": spec}


def job(name: str = "j") -> Json:
    about = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": T0,
             "labels": {"kueue.x-k8s.io/queue-name": "q"}}  # fmt: skip
    return {"kind": "Job", "metadata": about, "spec": {"template": POD}}
