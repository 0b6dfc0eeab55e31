"""Removed or replaced? An agent and a bridge that end ask a real API server, in each way in which they are deleted."""

import asyncio
import json
from pathlib import Path

import pytest
from cluster.test_agent_evicts import inventory

from slacktide.agents.http import Access
from slacktide.agents.node.apiserver import Removal
from slacktide.agents.node.loop import run
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.state import State
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import BridgeRig, until
from testbed.cluster.evicting import RIGHTS, agent_account
from testbed.cluster.manifests import MANIFESTS, SYSTEM
from testbed.policies import policy_from
from testbed.virtual.kernel import VirtualKernel

pytestmark = pytest.mark.cluster
GIB = 1 << 30
READS = {"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["slacktide-agent"], "verbs": ["get"]}
SUPPRESS = policy_from(
    colocation={"enable": True},
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 20}},
)
OF_NAMESPACE = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def workload(kind: str, name: str, namespace: str) -> dict:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


class Node:
    """An agent on a virtual node that holds its best-effort pod, under an account of the API server."""

    def __init__(
        self, server: ApiServer, namespace: str, folder: Path, bootstrap: str, *, may_read: bool = True
    ) -> None:
        self.server, self.folder, self.may_read = server, folder, may_read
        name, uid = server.node(), "8c6a0a3e-0000-4000-8000-000000000001"
        self.path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
        server.post(self.path, workload("DaemonSet", "slacktide-agent", namespace))
        rights = [*RIGHTS, READS, OF_NAMESPACE] if may_read else RIGHTS
        self.account = agent_account(server, namespace, name, rights=rights)
        token = folder / "token"
        token.write_text(self.account.token)
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB)
        self.machine.add_pod(uid, "BestEffort").demand_milli = 4_000
        file = folder / "inventory.json"
        file.write_text(json.dumps(inventory(name, namespace, uid)))
        self.state = folder / "state"
        self.state.mkdir()
        State(self.state).keep_policy(SUPPRESS)
        self.removal = Removal(Access(url=server.url, token=token, ca=server.ca), f"{namespace}/slacktide-agent")
        settings = LoopSettings(
            node=name, bootstrap=Cluster(bootstrap), inventory=file, state_folder=self.state, removal=self.removal,
            sample_interval_ms=200,
        )  # fmt: skip
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(run(VirtualKernel(self.machine), settings, self.stop, Health()))

    @property
    def quota_us(self) -> int | None:
        return self.machine.best_effort.quota_us

    async def holds(self) -> None:
        """Wait until the agent holds the pod, and has asked about its DaemonSet."""
        await until(lambda: self.quota_us is not None and (self.removal._was_there or not self.may_read))

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(60):
            await self.task


@pytest.fixture
def where(embedded_broker: EmbeddedBroker) -> str:
    embedded_broker.apply_topics(2)
    return embedded_broker.bootstrap


async def test_a_rollout_keeps_the_limits(api_server: ApiServer, namespace: str, where: str, tmp_path: Path) -> None:
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    await node.end()

    assert node.quota_us is not None
    assert (node.state / "policy.json").exists()


async def test_with_the_daemon_set_all_limits_go(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    api_server.kubectl("delete", "daemonset", "slacktide-agent", "-n", namespace, "--wait=false")
    await node.end()

    assert node.quota_us is None
    assert not node.state.exists()


async def test_a_daemon_set_that_waits_for_its_pods_is_deleted(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    command = ("delete", "daemonset", "slacktide-agent", "-n", namespace, "--wait=false", "--cascade=foreground")
    api_server.kubectl(*command)
    assert api_server.exists(f"{node.path}/slacktide-agent"), "nothing here collects garbage"
    await node.end()

    assert node.quota_us is None


async def test_in_a_namespace_that_is_being_deleted_all_limits_go_though_the_daemon_set_is_there(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    """`kubectl delete namespace` ends pods before it deletes their DaemonSet."""
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    api_server.kubectl("delete", "namespace", namespace, "--wait=false")
    assert "deletionTimestamp" not in api_server.get(f"{node.path}/slacktide-agent")["metadata"]
    await node.end()

    assert node.quota_us is None


async def test_an_account_whose_right_was_deleted_is_removed(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    """`kubectl delete -k` deletes roles before the DaemonSet."""
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    api_server.delete(f"{RBAC}/clusterrolebindings/{node.account.name}")
    await node.end()

    assert node.quota_us is None


async def test_an_account_that_was_deleted_is_removed(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    """So is its namespace's account."""
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    api_server.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts/{node.account.name}")
    api_server.delete(f"{RBAC}/clusterrolebindings/{node.account.name}")
    await node.end()

    assert node.quota_us is None


async def test_an_agent_that_never_had_the_right_keeps_the_limits(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    node = Node(api_server, namespace, tmp_path, where, may_read=False)
    await node.holds()
    await node.end()

    assert node.quota_us is not None


async def test_an_api_server_that_does_not_answer_keeps_the_limits(
    api_server: ApiServer, namespace: str, where: str, tmp_path: Path
) -> None:
    node = Node(api_server, namespace, tmp_path, where)
    await node.holds()
    node.removal._access = Access(url="https://127.0.0.1:1", token=tmp_path / "token", ca=api_server.ca)
    await node.end()

    assert node.quota_us is not None


DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"


async def test_a_bridge_that_is_replaced_keeps_the_resources_of_nodes(rig: BridgeRig) -> None:
    node = await _sold(rig)
    await rig.end()

    assert rig.resources(node)["allocatable"] == {
        "kubernetes.io/batch-cpu": "2k",
        "kubernetes.io/batch-memory": str(GIB),
    }


async def test_a_bridge_whose_deployment_is_deleted_removes_the_resources_of_nodes(rig: BridgeRig) -> None:
    node = await _sold(rig)
    bystander = rig.cluster.node()
    rig.cluster.kubectl("delete", "deployment", "slacktide-bridge", "-n", SYSTEM, "--wait=false")
    try:
        await rig.end()
    finally:
        rig.cluster.kubectl("apply", "-k", str(MANIFESTS))

    assert rig.resources(node) == rig.resources(bystander) == {"capacity": {}, "allocatable": {}}


async def _sold(rig: BridgeRig) -> str:
    """A node with batch resources that the bridge wrote."""
    rig.say_policy(colocation={"enable": True})
    node = rig.cluster.node()
    rig.say(node, cpu=2_000, mem=GIB)
    rig.replica(deployment=f"{SYSTEM}/slacktide-bridge")
    await until(lambda: rig.resources(node)["allocatable"])
    return node
