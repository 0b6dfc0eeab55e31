"""``slacktide agent restore`` on real groups: an agent that was killed has left limits in force, and nobody runs."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernel.groups import CONTAINER, Groups
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.knobs import Tuned
from slacktide.agents.node.state import Identity, State
from slacktide.deploy.cli.main import cli
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.resource_qos import CpuQos, QosClass, QosPolicies, ResourceQos
from slacktide.schemas.policy.strategies import Colocation, CpuBurst
from slacktide.schemas.sample import Limits
from testbed.lone_agent import SteppedClock, lone_agent

MIB = 1 << 20
AMOUNTS = Resources(cpu_milli=64_000, mem_bytes=64 << 30)
FACTS = NodeFacts(name="node-1", capacity=AMOUNTS, allocatable=AMOUNTS)
IDLE = ResourceQos(policies=QosPolicies(cpu="podIdle"), be=QosClass(cpu=CpuQos(enable=True, sched_idle=1)))
ON = Policy(
    version="on",
    colocation=Colocation(enable=True),
    cpu_burst=CpuBurst(policy="auto", cpu_burst_pct=50),
    resource_qos=IDLE,
)
BOUGHT = Resources(batch_cpu_milli=500, batch_mem_bytes=64 * MIB)
SERVED = Resources(cpu_milli=500, mem_bytes=64 * MIB)


def pod(uid: str, kube_qos: str, amounts: Resources) -> Pod:
    container = Container(name="main", id=CONTAINER, requests=amounts, limits=amounts)
    return Pod(
        uid=uid, namespace="shop", name=uid, kube_qos=kube_qos, requests=amounts, limits=amounts, containers=[container]
    )


PODS = [pod("batch", "BestEffort", BOUGHT), pod("web", "Burstable", SERVED)]


class LeftNode:
    """Held by an agent that is gone."""

    def __init__(self, groups: Groups, kernel: CgroupKernel, folder: Path) -> None:
        self.groups, self.folder = groups, folder
        self.batch = groups.add_pod("besteffort", "batch")
        self.web = groups.add_pod("burstable", "web")
        for group in (self.web, f"{self.web}/{CONTAINER}"):
            groups.quota(group, "50000" if groups.version == 1 else "50000 100000")
        self.before = self.quotas()
        state, tuned = State(folder), Tuned(folder)
        state.keep_policy(ON)
        state.keep_inventory(FACTS, PODS)
        clock = SteppedClock()
        agent = lone_agent(kernel, clock, FACTS, policy=ON, pods=PODS, tuned=tuned)
        for _ in range(4):
            clock.pass_ms(1_000)
            agent.take()
        kernel.hold(Limits(be_cfs_quota_us=30_000))
        assert self.quotas() != self.before
        assert self.mem_limited
        assert self.idle

    def quotas(self) -> list[str]:
        below = (self.batch, f"{self.batch}/{CONTAINER}", self.web, f"{self.web}/{CONTAINER}")
        return [self.groups.quota(group) for group in ("besteffort", *below)]

    @property
    def idle(self) -> bool:
        return (self.groups.cpu / self.batch / "cpu.idle").read_text() == "1\n"

    @property
    def mem_limited(self) -> bool:
        root = Path("/sys/fs/cgroup", "memory" if self.groups.version == 1 else "", self.groups.kubepods, self.batch)
        text = (root / ("memory.limit_in_bytes" if self.groups.version == 1 else "memory.max")).read_text().strip()
        return text != "max" and int(text) < 1 << 62

    def restore(self, *args: str) -> Result:
        where = ["--state-folder", str(self.folder), "--kubepods", self.groups.kubepods, "--node-name", "node-1"]
        return CliRunner().invoke(cli, ["agent", "restore", *where, *args])


@pytest.fixture
def left(groups: Groups, kernel: CgroupKernel, tmp_path: Path) -> LeftNode:
    return LeftNode(groups, kernel, tmp_path)


def test_it_lifts_all_that_the_state_folder_names_and_empties_it(left: LeftNode) -> None:
    result = left.restore()

    assert result.exit_code == 0, result.output
    assert left.quotas() == left.before
    assert not left.mem_limited
    assert not left.idle
    assert "applied  besteffort the agent is being removed" in result.output
    assert not left.folder.exists()


def test_what_the_rules_set_is_lifted_though_the_state_folder_does_not_name_it(left: LeftNode, tmp_path: Path) -> None:
    """The folder was lost; the pods are given as kubectl prints them."""
    shutil.rmtree(left.folder)
    alone = left.restore()
    file = tmp_path.parent / "pods.json"
    file.write_text(json.dumps(_as_kubectl_prints()))
    result = left.restore("--inventory", str(file))

    assert alone.exit_code == 2
    assert "If it was lost, give the node's pods with --inventory" in alone.output
    assert result.exit_code == 0, result.output
    assert left.quotas()[:3] == left.before[:3]
    assert not left.mem_limited
    assert not left.idle


def test_where_an_agent_runs_it_touches_nothing(left: LeftNode) -> None:
    held = left.quotas()
    running = Identity(left.folder, start_ms=0)
    try:
        result = left.restore()
    finally:
        running.release()

    assert result.exit_code == 1
    assert "another agent uses this state folder; stop it" in result.output
    assert left.quotas() == held


def _as_kubectl_prints() -> dict:
    amounts = {"cpu": "64", "memory": "64Gi"}
    bought = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
    node = {"kind": "Node", "metadata": {"name": "node-1"}, "status": {"capacity": amounts, "allocatable": amounts}}
    batch = {
        "kind": "Pod",
        "metadata": {
            "name": "batch", "namespace": "shop", "uid": "batch", "labels": {"koordinator.sh/qosClass": "BE"}
        },
        "spec": {
            "nodeName": "node-1", "containers": [{"name": "main", "resources": {"requests": bought, "limits": bought}}]
        },
        "status": {
            "phase": "Running", "qosClass": "BestEffort",
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{CONTAINER}"}],
        },
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": [node, batch]}
