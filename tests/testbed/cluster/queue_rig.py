"""A queue on a real API server with the real Job controller: a decider, the bridge, and Jobs that name a queue."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import yaml

from slacktide.schemas.codec import decode
from slacktide.schemas.queue import QueueOutcome
from slacktide.schemas.topics import QUEUE_OUTCOME
from testbed.background import Background
from testbed.cluster.api_server import ApiServer, Json, RefusedError
from testbed.cluster.bridge_rig import BridgeRig
from testbed.cluster.jobs import Batch
from testbed.cluster.manifests import MANIFESTS
from testbed.waiting import soon

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
    """One ClusterQueue with CPU of one flavor or of several, a namespace with a LocalQueue of it, and Jobs."""

    def __init__(
        self, server: ApiServer, cpu: str, *, preemption: Json | None = None, flavors: Sequence[str] = (), **spec: Any
    ) -> None:
        """``flavors``: those of another queue, instead of one of its own; each has the quota ``cpu``."""
        self._server = server
        self.namespace = server.namespace("queued")
        self.name = self.namespace
        self.flavor = f"flavor-{self.namespace}"
        if not flavors:
            self.make_flavor(self.flavor, self.name)
        self._flavors = flavors or (self.flavor,)
        given = {"namespaceSelector": {}, "resourceGroups": self._groups(cpu), "preemption": preemption or {}}
        self.create("ClusterQueue", self.name, given | spec)
        self.create("LocalQueue", "main", {"clusterQueue": self.name}, f"namespaces/{self.namespace}/")

    def make_flavor(self, name: str, pool: str) -> None:
        self.create("ResourceFlavor", name, {"nodeLabels": {POOL: pool}})

    def change(self, **spec: Any) -> None:
        self._server.patch(f"{GROUP}/clusterqueues/{self.name}", {"spec": spec})

    def create(self, kind: str, name: str, spec: Json | None, where: str = "", **more: Any) -> None:
        plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **more}
        self._server.post(f"{GROUP}/{where}{plural}", body | ({} if spec is None else {"spec": spec}))

    def quota(self, cpu: str) -> None:
        self.change(resourceGroups=self._groups(cpu))

    def _groups(self, cpu: str) -> list[Json]:
        flavors = [{"name": one, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for one in self._flavors]
        return [{"coveredResources": ["cpu"], "flavors": flavors}]

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


async def runs(queue: Queue, *names: str) -> None:
    """Wait until exactly these Jobs run."""
    await soon(
        lambda: asyncio.to_thread(queue.running), f"{names} run, and no other", enough=lambda found: found == set(names)
    )


async def answers(rig: BridgeRig, job: Batch) -> list[str]:
    """Outcomes of a Job's bookings, in order."""
    return [decode(one.value, QueueOutcome).result for one in await rig.records(QUEUE_OUTCOME.name, job.uid)]


async def finish(job: Batch) -> None:
    await asyncio.to_thread(job.run, lambda *_: DONE, lambda _: False)


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
