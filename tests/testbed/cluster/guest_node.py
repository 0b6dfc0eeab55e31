"""A real node on cgroup v2, in a guest: kubelet, containerd and the agent; all else of the cluster runs outside."""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from slacktide.schemas.message import Message
from slacktide.schemas.topics import Topic
from slacktide.streams.kafka import read_topic
from slacktide.streams.samples import SampleReader
from testbed.brokers import EmbeddedBroker
from testbed.parts import Part
from testbed.policies import config_map
from testbed.reaching import needs
from testbed.rungs import built_program
from testbed.sampled import decoded

from . import images
from .api_server import ApiServer, Json, flagged
from .guest import ADDRESS, Guest, GuestProgram
from .manifests import SYSTEM, objects
from .real_node import containerd_config, kubelet_config

NODE, OPERATORS = "node-v2", "koordinator-system"
RUN = Path("/run/node")
"""What the node keeps, in the guest's memory."""
ROOT = RUN / "kubelet"
"""The kubelet's root directory, with its configuration as kubeadm leaves it there."""
USUAL_ROOT = Path("/var/lib/kubelet")
KUBEPODS = Path("/sys/fs/cgroup/kubepods")
KUBELET_PORT = 10250
KUBELET = {
    "failCgroupV1": True,  # as Kubernetes 1.35 has it
    "cpuManagerPolicy": "static",
    "systemReserved": {"cpu": "500m"},
    "evictionHard": {"memory.available": "50Mi"},
}
"""Other than on the node that is this machine."""
KUBELET_OF_ZONES = {
    "topologyManagerPolicy": "single-numa-node",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"cpu": "500m", "memory": "150Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "200Mi"}}],
}
"""Besides, where the guest has several NUMA zones: zone 0 alone has CPU and memory for the system and for eviction."""
GUEST_WAIT_S = 240.0
"""Beside other work the guest may be many times slower than the machine."""
ADMISSIONS_MAX = 3
"""A kubelet may see the Node's batch resources later than the API server shows them: then it rejects the pod."""
LOOPBACK = {"cniVersion": "0.4.0", "name": "loopback", "plugins": [{"type": "loopback"}]}
"""All pods are on the host's network; without a configuration the node is not Ready."""
M = TypeVar("M", bound=Message)
LEFT_OUT = {"Deployment", "DaemonSet", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
"""Of the manifests: nobody here runs what a controller would start, and no webhook answers."""


@needs("guestnode", "zonednode")
class GuestNode(ApiServer):
    """A cluster of one node: ``.name``, with the product's parts. Its pods are processes of the guest."""

    def __init__(self, folder: Path, zones: int = 1) -> None:
        """``zones``: of NUMA. With several of them the kubelet gives a container CPUs and memory of one zone."""
        super().__init__(folder)
        self.name, self._zoned = NODE, zones > 1
        self.guest = Guest(folder, zones)
        self.broker = EmbeddedBroker(folder)
        self.kubelet = GuestProgram(self.guest, "kubelet", self._kubelet_command())
        self.agent = GuestProgram(self.guest, "agent", self._agent_command())
        self._containerd = GuestProgram(self.guest, "containerd", ["containerd", "--config", f"{folder}/c.toml"])
        self._parts: list[Part] = []
        self._sold_milli: Counter[str] = Counter()

    def start(self) -> None:
        """Start all of it; return when the node is Ready. The agent starts by itself meanwhile."""
        self.guest.start([self.port, int(self.broker.bootstrap.rpartition(":")[2])])
        made = images.make(self.folder / "images", [images.PAUSE, images.BURN])
        self.broker.start()
        self.broker.apply_topics()
        super().start()
        self.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(self._manifests())}))
        self._start_parts()
        self._configure()
        self.guest.await_boot()
        self.guest.sh(f"mkdir -p {RUN}/cni {ROOT}; cp {self.folder}/10-loopback.conflist {RUN}/cni")
        # Whatever its root directory is, the kubelet has device plugins in its usual one.
        self.guest.sh(f"cp {self.folder}/config.yaml {ROOT}; mkdir -p {USUAL_ROOT}; mount --bind {ROOT} {USUAL_ROOT}")
        self._containerd.start()
        self.agent.start()
        self.wait(lambda: self.guest.sh(f"[ ! -S {RUN}/containerd.sock ] || echo up"), "containerd")
        load = f"ctr -a {RUN}/containerd.sock -n k8s.io images import --no-unpack"
        self.guest.sh("".join(f"{load} {tar} & " for tar in made) + "wait")
        self.start_kubelet()

    def stop(self) -> None:
        self.guest.stop()
        for part in self._parts:
            part.kill()
        self.broker.stop()
        super().stop()

    def wait(self, until: Callable[[], object], what: str, within_s: float = GUEST_WAIT_S) -> None:
        super().wait(until, what, within_s)

    def _manifests(self) -> list[Json]:
        """What the manifests install, without what would run it."""
        found = [each for each in objects() if each["kind"] not in LEFT_OUT]
        return sorted(found, key=lambda each: each["kind"] not in {"Namespace", "CustomResourceDefinition"})

    def _start_parts(self) -> None:
        where = ["--bootstrap", self.broker.bootstrap]
        bridge = self.account(SYSTEM, "slacktide-bridge")
        bridging = [*where, "--kubeconfig", str(bridge.kubeconfig), "--namespace", SYSTEM]
        self._parts = [
            Part("stream", self.folder, ["stream", *where]),
            Part("bridge", self.folder, ["bridge", *bridging]),
        ]
        for part in self._parts:
            part.start()

    def _configure(self) -> None:
        """Write what the guest's programs read; the agent's token is bound to its pod."""
        (self.folder / "c.toml").write_text(containerd_config(RUN, "native"))
        (self.folder / "10-loopback.conflist").write_text(json.dumps(LOOPBACK))
        crt, key = self.pki.certificate("kubelet-server", f"/CN=system:node:{NODE}", "IP:127.0.0.1")
        config = kubelet_config(RUN, KUBELET_PORT, self.ca, crt, key) | KUBELET
        config |= KUBELET_OF_ZONES if self._zoned else {}
        (self.folder / "config.yaml").write_text(json.dumps(config))
        self.pki.client(self.folder / "kubelet.kubeconfig", self.url, f"/O=system:nodes/CN=system:node:{NODE}")
        # The agent is a process of the guest's: its pod is there for the token, and the kubelet has nothing to run.
        self.pod(SYSTEM, "slacktide-agent", node=NODE, spec={"serviceAccountName": "slacktide-agent"})
        self.patch(f"/api/v1/namespaces/{SYSTEM}/pods/slacktide-agent/status", {"status": {"phase": "Succeeded"}})
        token = self.account(SYSTEM, "slacktide-agent", pod="slacktide-agent").token
        (self.folder / "agent-token").write_text(token)

    def _kubelet_command(self) -> list[str]:
        flags = {
            "config": f"{ROOT}/config.yaml",
            "kubeconfig": f"{self.folder}/kubelet.kubeconfig",
            "hostname-override": NODE,
            "node-ip": ADDRESS,
            "root-dir": str(ROOT),
        }
        return [str(built_program("kubelet")), *flagged(flags)]

    def _agent_command(self) -> list[str]:
        token, ca = f"{self.folder}/agent-token", str(self.ca)
        options = {
            "bootstrap": self.broker.bootstrap,
            "node-name": NODE,
            "kubelet": f"https://127.0.0.1:{KUBELET_PORT}",
            "kubelet-token": token,
            "kubelet-ca": ca,
            "api-server": self.url,
            "api-token": token,
            "api-ca": ca,
            "state-folder": f"{RUN}/agent",
            "guard-deadline": "10",
            "look-interval": "0",
            "kubelet-folder": str(ROOT),
        }
        return [str(Path(sys.executable).with_name("slacktide")), "agent", "--restore-on-exit", *flagged(options)]

    def device_plugin(self, resource: str, **zones: int) -> GuestProgram:
        devices = [f"{name}:{zone}" for name, zone in zones.items()]
        command = [str(built_program("devices")), resource, *devices]
        plugin = GuestProgram(self.guest, resource.replace("/", "-"), command)
        plugin.start()
        return plugin

    def start_kubelet(self) -> None:
        """Start it; return when the node is Ready by a heartbeat of this kubelet."""
        before = self.heartbeat(NODE)
        self.kubelet.start()
        self.wait(lambda: self.heartbeat(NODE) not in {"", before}, "the node is Ready")

    def run(
        self,
        namespace: str,
        name: str,
        *command: str,
        labels: Json | None = None,
        resources: Json | None = None,
        scheduler: str | None = None,
    ) -> str:
        """Make a pod of one container, ``main``, on the node unless a scheduler is to place it; its uid."""
        container = {"name": "main", "image": images.BURN, "command": list(command), "resources": resources or {}}
        spec = {
            **({"schedulerName": scheduler} if scheduler else {"nodeName": NODE}),
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        pod = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
        return str(self.post(f"/api/v1/namespaces/{namespace}/pods", pod)["metadata"]["uid"])

    def best_effort(
        self, namespace: str, name: str, *command: str, cpu_milli: int, mem_mib: int, tier: str = "batch"
    ) -> str:
        """Make a pod of batch, mid or free resources once the node has so many more; its uid.

        The kubelet admits none before.
        """
        amounts = {f"kubernetes.io/{tier}-cpu": str(cpu_milli), f"kubernetes.io/{tier}-memory": f"{mem_mib}Mi"}
        bought = {"requests": amounts, "limits": amounts}
        qos = "LS" if tier == "mid" else "BE"
        labels = {"koordinator.sh/qosClass": qos, "koordinator.sh/priority-class": f"koord-{tier}"}
        self._sold_milli[tier] += cpu_milli
        wanted_milli = self._sold_milli[tier]
        self.wait(lambda: self._cpu_milli(tier) >= wanted_milli, f"{wanted_milli}m of {tier} CPU")
        for _ in range(ADMISSIONS_MAX):
            uid = self.run(namespace, name, *command, labels=labels, resources=bought)
            self.wait(lambda: self._pod(namespace, name)["status"]["phase"] != "Pending", f"pod {name} is admitted")
            if self._pod(namespace, name)["status"]["phase"] != "Failed":
                return uid
            self.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
        raise AssertionError(f"the kubelet admits no pod {name}")

    def _pod(self, namespace: str, name: str) -> Json:
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def _cpu_milli(self, tier: str) -> int:
        allocatable = self.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
        return int(allocatable.get(f"kubernetes.io/{tier}-cpu", "0").replace("k", "000"))

    def containers(self, namespace: str) -> dict[str, tuple[str, int]]:
        """Of each pod that runs, the id of its container, and how often that was restarted."""
        pods = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        running = {each["metadata"]["name"]: each["status"] for each in pods if each["status"]["phase"] == "Running"}
        statuses = {name: status["containerStatuses"][0] for name, status in running.items()}
        return {name: (one["containerID"].partition("://")[2], one["restartCount"]) for name, one in statuses.items()}

    def group(self, tier: str, uid: str) -> Path:
        return KUBEPODS / tier / f"pod{uid}"

    def records(self, topic: Topic, kind: type[M]) -> list[M]:
        async def read() -> list[M]:
            async with aclosing(read_topic(self.broker.cluster, topic.name, key=NODE)) as records:
                samples = SampleReader()
                return [decoded(record, kind, samples) async for record in records]

        return asyncio.run(read())

    def set_policy(self, **configs: Json) -> None:
        """Write the operator's ConfigMap; none: remove it."""
        given = config_map(**configs)
        given["metadata"]["namespace"] = OPERATORS
        self.apply(json.dumps(given))


@contextlib.contextmanager
def running_guest_node(zones: int = 1) -> Iterator[GuestNode]:
    """The node; nothing of it is left. Its folder is on the machine's root file system, which the guest has, too."""
    folder = Path(tempfile.mkdtemp(prefix="slacktide-guest-", dir="/var/tmp"))
    node = GuestNode(folder, zones)
    try:
        node.start()
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)
