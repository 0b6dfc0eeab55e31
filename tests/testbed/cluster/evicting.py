"""A node in memory whose best-effort pods are an API server's, too: its agent evicts them there."""

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slacktide.agents.http import Access
from slacktide.agents.node.apiserver import ApiServer as Door
from slacktide.agents.node.evict.eviction_client import EvictionClient
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from testbed.cluster.api_server import Account, ApiServer, RefusedError
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.policies import policy_from
from testbed.virtual.kernel import VirtualKernel

GIB, REPLIES_S = 1 << 30, 10.0
SERVICE = Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def agent_account(
    server: ApiServer, namespace: str, node: str, *, rights: list[dict[str, Any]] | None = None
) -> Account:
    """An agent's account in a namespace of its own, with a token bound to a pod on the node, and the rights of one."""
    name = f"agent-{secrets.token_hex(4)}"
    server.account(namespace, name)
    server.pod(namespace, name, node=node, spec={"serviceAccountName": name})
    server.post(f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": RIGHTS if rights is None else rights})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    server.post(f"{_RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    return server.account(namespace, name, pod=name)


class EvictingNode:
    """8 GiB, 4 of them a service's; evictions begin at half of it. Nobody but the guard decides."""

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        folder: Path,
        *,
        account: Callable[[str], Account] | None = None,
        **threshold: object,
    ) -> None:
        self.server, self.namespace, self.url = server, namespace, server.url
        self.name = server.node()
        self.account = agent_account(server, namespace, self.name) if account is None else account(self.name)
        self.token = folder / "token"
        self.token.write_text(self.account.token)
        self.clock = SteppedClock()
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB)
        self.machine.add_pod(SERVICE.uid, SERVICE.kube_qos).mem_bytes = 4 * GIB
        self.pods = [SERVICE]
        self.spool = MemorySpool()
        self.policy = policy_from(
            colocation={"enable": True},
            threshold={
                "clusterStrategy": {
                    "enable": True,
                    "cpuSuppressPolicy": "cfsQuota",
                    "memoryEvictThresholdPercent": 60,
                    "memoryEvictLowerPercent": 59,
                    **threshold,
                }
            },
        )
        self.boots = 0
        self._stirred = threading.Event()
        self._clients: list[EvictionClient] = []

    def run(self, name: str, *, priority: int = 5_000, mem_bytes: int = GIB, **parts: Any) -> str:
        """A best-effort pod, in the API server and on the node; its uid."""
        labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch", "app": name}
        made = self.server.pod(self.namespace, name, node=self.name, labels=labels, **parts)
        return self.lists(name, made["metadata"]["uid"], priority=priority, mem_bytes=mem_bytes)

    def lists(self, name: str, uid: str, *, priority: int = 5_000, mem_bytes: int = GIB) -> str:
        """A best-effort pod on the node, by what its kubelet lists."""
        self.machine.add_pod(uid, "BestEffort").mem_bytes = mem_bytes
        self.machine.pods[uid].demand_milli = 500
        self.pods.append(
            Pod(uid=uid, namespace=self.namespace, name=name, qos_label="BE", kube_qos="BestEffort", priority=priority)
        )
        return uid

    def start(self, *, credit: int = 10, **settings: int) -> None:
        """A new agent; the node and the spool are as the last one left them."""
        self.boots += 1
        boot_id = f"{self.boots:012d}-0badcafe"
        eviction_client = EvictionClient(
            Door(Access(url=self.url, token=self.token, ca=self.server.ca)), self._stirred.set
        )
        self._clients.append(eviction_client)
        capacity = Resources(cpu_milli=4_000, mem_bytes=8 * GIB)
        facts = NodeFacts(name=self.name, capacity=capacity, allocatable=capacity)
        self.agent = lone_agent(
            VirtualKernel(self.machine), self.clock, facts, spool=self.spool, boot_id=boot_id, settings=settings,
            policy=self.policy, pods=self.pods, eviction_client=eviction_client,
        )  # fmt: skip
        lease = EvictionCredit(node=self.name, boot_id=boot_id, epoch=1, number=1, granted=credit, ttl_ms=10**9)
        self.agent.credit(lease, self.clock.mono_ns())

    def tick(self, ms: int = 1_000, *, replies: bool = False) -> NodeSample:
        """Time passes, a sample is taken and the guard decides; with ``replies`` the API server is waited for."""
        self._stirred.clear()
        self.clock.pass_ms(ms)
        self.machine.step(ms)
        sample = self.agent.take()
        if self.agent.in_charge == "stream":
            self.clock.pass_ms(1_000)
            self.agent.overdue()
        if replies:
            assert self._stirred.wait(60), "the API server does not reply"
            self.agent.replied()
        return sample

    def tick_and_poll(self) -> None:
        """A tick, and what comes of what was asked, if anything was: that is the agent's choice."""
        self.tick()
        until_s = time.monotonic() + REPLIES_S
        while self.agent._evictor._requests._asked and time.monotonic() < until_s:
            time.sleep(0.01)
            self.agent.replied()

    def kubelet(self) -> None:
        """As the kubelet does: ends the processes of pods that the API server has deleted, or is deleting."""
        for pod in self.pods[1:]:
            if pod.uid in self.machine.pods and self.deleted(pod):
                self.machine.terminate_pod(pod.uid)

    def deleted(self, pod: Pod) -> bool:
        try:
            found = self.server.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")["metadata"]
        except RefusedError:
            return True
        return found["uid"] != pod.uid or "deletionTimestamp" in found

    def budget(self, app: str, allowed: int) -> None:
        """A PodDisruptionBudget, with the status that its controller would give it."""
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        self.server.post(path, {"metadata": {"name": app}, "spec": spec})
        counts = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        self.server.patch(f"{path}/{app}/status", {"status": {"observedGeneration": 1, **counts}})

    def outcomes(self, uid: str = "") -> list[NodeOutcome]:
        found = [one for _, one in self.spool.pending(10_000) if one.pod is not None]
        return [one for one in found if one.target == f"pod/{uid}"] if uid else found

    def results(self, uid: str) -> list[tuple[str, str]]:
        return [(one.result, one.bound) for one in self.outcomes(uid)]

    def crash(self) -> None:
        self._clients[-1].close()

    def close(self) -> None:
        for eviction_client in self._clients:
            eviction_client.close()


def events_on(server: ApiServer, namespace: str, uid: str) -> list[dict[str, Any]]:
    items = server.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return [one for one in items if one["regarding"]["uid"] == uid]
