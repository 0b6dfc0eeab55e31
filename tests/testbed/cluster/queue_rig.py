"""A queue on a real API server with the real Job controller: a decider, the bridge, and Jobs that name a queue."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import yaml

from testbed.background import Background
from testbed.cluster.api_server import ApiServer, Json, RefusedError
from testbed.cluster.jobs import Batch
from testbed.cluster.manifests import MANIFESTS

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
GROUP = "/apis/kueue.x-k8s.io/v1beta2"
POOL = "pool"
OPERATORS = "koordinator-system"
DONE = {"phase": "Succeeded", "code": 0}


def install(server: ApiServer) -> None:
    """The kinds of the manifests, and what the bridge may beside its own rights."""
    components = MANIFESTS / "components"
    for name in yaml.safe_load((components / "queue-crds/kustomization.yaml").read_text())["resources"]:
        server.kubectl("apply", "-f", str(components / "queue-crds" / name))
    server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    permit(server)


def permit(server: ApiServer) -> None:
    """What the bridge may beside its own rights; one of them is in the operator's namespace."""
    if not server.exists(f"/api/v1/namespaces/{OPERATORS}"):
        server.post("/api/v1/namespaces", {"metadata": {"name": OPERATORS}})
    for name in ("queue-bridge/rbac.yaml", "queue-pods/rbac.yaml", "queue-pods/pod-policy.yaml"):
        server.kubectl("apply", "-f", str(MANIFESTS / "components" / name))


class Queue:
    """One ClusterQueue with CPU of one flavor, a namespace with a LocalQueue of it, and Jobs."""

    def __init__(self, server: ApiServer, cpu: str, *, preemption: Json | None = None) -> None:
        self._server = server
        self.namespace = server.namespace("queued")
        self.name = self.namespace
        self.flavor = f"flavor-{self.namespace}"
        flavor = {"name": self.flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        spec: Json = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
            "preemption": preemption or {},
        }
        self.create("ResourceFlavor", self.flavor, {"nodeLabels": {POOL: self.name}})
        self.create("ClusterQueue", self.name, spec)
        self.create("LocalQueue", "main", {"clusterQueue": self.name}, f"namespaces/{self.namespace}/")

    def create(self, kind: str, name: str, spec: Json | None, where: str = "", **more: Any) -> None:
        plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **more}
        self._server.post(f"{GROUP}/{where}{plural}", body | ({} if spec is None else {"spec": spec}))

    def quota(self, cpu: str) -> None:
        flavor = {"name": self.flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        self._server.patch(f"{GROUP}/clusterqueues/{self.name}", {"spec": {"resourceGroups": groups}})

    def job(self, name: str, *, priority: str = "", **spec: Any) -> Batch:
        """A Job of one pod with half a CPU, suspended unless it is not to be."""
        labels = {QUEUE: "main"} | ({PRIORITY: priority} if priority else {})
        given = {"suspend": True, **spec}
        return Batch(self._server, name, namespace=self.namespace, labels=labels, **given)

    def running(self) -> set[str]:
        items = self._server.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs")["items"]
        return {one["metadata"]["name"] for one in items if not one["spec"].get("suspend") and not ended(one)}

    def pods(self) -> list[Json]:
        items = self._server.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [one for one in items if one["status"].get("phase") in {"Pending", "Running"}]

    def end(self, pod: Json) -> None:
        """A pod has succeeded, as a kubelet would report it."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        with contextlib.suppress(RefusedError):  # it was deleted
            self._server.patch(path, {"status": {"phase": "Succeeded"}})


def ended(job: Json) -> bool:
    return any(one["type"] in {"Complete", "Failed"} for one in job.get("status", {}).get("conditions", ()))


class Kubelets(Background):
    """Count the pods all the time, and let each succeed after a while."""

    def __init__(self, queue: Queue, ends_s: float | None = None) -> None:
        """Not begun yet; ``ends_s``: of each pod, from when it was first seen; None: pods go on."""
        super().__init__()
        self.most = 0
        """At once."""
        self.seen: dict[str, float] = {}
        """By uid when it was first seen."""
        self._queue, self._ends_s = queue, ends_s

    def _run(self) -> None:
        while not self._over.wait(0.1):
            pods = self._queue.pods()
            self.most = max(self.most, len(pods))
            for pod in pods:
                first_s = self.seen.setdefault(pod["metadata"]["uid"], time.monotonic())
                if self._ends_s is not None and time.monotonic() > first_s + self._ends_s:
                    self._queue.end(pod)
