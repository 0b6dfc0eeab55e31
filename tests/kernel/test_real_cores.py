"""Pods of five classes on a real kernel: on which CPUs each may run, and does."""

import os
import subprocess
from collections.abc import Sequence

import msgspec
import pytest

from kernel.groups import CONTAINER, V1, V2_WHOLE, Groups, on
from kernel.test_real_cpuset import ran_on
from kernel.test_real_knobs import SteppedClock
from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey, pod_group
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Drift, Limits
from slacktide.streams.decisions.cores.sharing import OWN, RULE, SHARED, cpusets
from slacktide.streams.decisions.cpu_list import cpu_ranges
from slacktide.streams.decisions.knobs import drift_settings, wanted
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import off_exclusive
from testbed.one_machine import eventually

TWO_CPUS = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is nothing to divide")
EACH = on(pytest.param(*V1.values, id=V1.id, marks=[*V1.marks, TWO_CPUS]), V2_WHOLE)
GUARANTEED, BURSTABLE, BEST_EFFORT = ".", "burstable", "besteffort"
ONE_CPU, UNLIMITED, EMPTY = Resources(cpu_milli=1_000), Resources(), Policy(version="p")


class Node:
    """A node whose agent sees these pods, each with a busy process in its container."""

    def __init__(self, groups: Groups, kernel: CgroupKernel) -> None:
        self.groups, self.kernel = groups, kernel
        self.pods: list[Pod] = []
        self.busy: dict[str, subprocess.Popen] = {}
        self.facts = NodeFacts(
            name="n", capacity=Resources(cpu_milli=2_000), allocatable=Resources(), processors=kernel.processors()
        )
        self.all = ",".join(str(one.cpu) for one in self.facts.processors)

    def add(
        self, uid: str, qos: str, tier: str, cpuset: str = "", *,
        requests: Resources = ONE_CPU, limits: Resources = UNLIMITED,
    ) -> None:  # fmt: skip
        kube_qos = {GUARANTEED: "Guaranteed", BURSTABLE: "Burstable", BEST_EFFORT: "BestEffort"}[tier]
        group = self.groups.add_pod(tier, uid)
        self.groups.bind(group, f"{group}/c1", f"{group}/sandbox")
        self.busy[uid] = self.groups.start(group)
        (self.groups.cpuset_root / self.groups.kubepods / group / "c1/cgroup.procs").write_text(str(self.busy[uid].pid))
        container = Container(name="main", id=CONTAINER, requests=requests, limits=limits)
        pod = Pod(
            uid=uid, namespace="default", name=uid, qos_label=qos, kube_qos=kube_qos, cpuset=cpuset,
            containers=[container], requests=requests, limits=limits,
        )  # fmt: skip
        for below in (group, f"{group}/{CONTAINER}") if limits.cpu_milli else ():
            quota_us = limits.cpu_milli * 100
            self.groups.quota(below, str(quota_us) if self.groups.version == 1 else f"{quota_us} 100000")
        self.pods.append(pod)

    def settle(self) -> list[str]:
        """What an agent does in a second: keep best-effort pods off, then set what differs. Returns the pods set."""
        self.kernel.read(0)
        self.kernel.know(self.pods)
        limits = self.kernel.limits()
        kept = off_exclusive(limits, self.facts, self.pods)
        if kept is not limits:
            self.kernel.hold(kept)
        rules = wanted(self.facts, self.pods, Policy(version="p"))
        keys = {*rules, *(KnobKey(pod_group(pod.uid), "cpus") for pod in self.pods if pod.kube_qos != "BestEffort")}
        held = self.kernel.held(sorted(keys)).values
        drift = [
            Drift(group=key.group, knob=key.knob, held=value)
            for key, value in held.items()
            if value != (rules[key].value if key in rules else None)
        ]
        done = drift_settings(drift, self.facts, self.pods, Policy(version="p"))
        for one in done:
            self.kernel.put(KnobKey(one.group, one.knob), one.value)
        return [one.group.removeprefix("pod/") for one in done]

    def agent(self, clock: SteppedClock, spool: MemorySpool, policy: Policy = EMPTY) -> NodeAgent:
        """Where nobody answers it, its guard decides."""
        agent = NodeAgent(
            node="n", boot_id="000000000001-0badcafe", kernel=self.kernel, spool=spool, clock=clock,
            policy=policy, facts=self.facts, pods=self.pods, settings=AgentSettings(),
        )  # fmt: skip
        agent.start()
        return agent

    def quotas(self, uid: str) -> list[str]:
        """Of the pod and its container, as the kernel says them."""
        return [self.groups.quota(group).partition(" ")[0] for group in (f"./pod{uid}", f"./pod{uid}/{CONTAINER}")]

    def may_run(self) -> dict[str, set[int]]:
        return {uid: os.sched_getaffinity(process.pid) for uid, process in self.busy.items()}

    def leaves(self, uid: str) -> None:
        self.pods = [pod for pod in self.pods if pod.uid != uid]


@pytest.fixture
def node(groups: Groups, kernel: CgroupKernel) -> Node:
    groups.bind(BURSTABLE, BEST_EFFORT)
    return Node(groups, kernel)


def pass_s(seconds: int, clock: SteppedClock, agent: NodeAgent) -> None:
    for _ in range(seconds):
        clock.now_ns += 1_000_000_000
        agent.take()


def cpus_of(node: Node) -> Sequence[int]:
    return sorted(one.cpu for one in node.facts.processors)


@EACH
@pytest.mark.story
def test_nobody_else_runs_on_the_cpu_of_an_lse_pod_and_it_is_everybodys_once_the_pod_is_gone(node: Node) -> None:
    first, *others = cpus_of(node)
    whole, rest = {first, *others}, set(others)
    for uid, qos, tier in [("ls", "LS", BURSTABLE), ("system", "SYSTEM", BURSTABLE), ("be", "BE", BEST_EFFORT)]:
        node.add(uid, qos, tier)
    assert node.settle() == [], "without such a pod nothing is written"
    node.add("lse", "LSE", GUARANTEED, str(first))
    assert node.settle() == ["ls", "system", "lse"], "the others make way first"

    expected = {"ls": rest, "system": rest, "be": rest, "lse": {first}}
    assert node.may_run() == expected
    assert eventually(lambda: ran_on(node.busy["be"]) <= rest and ran_on(node.busy["ls"]) <= rest, 60)
    assert node.settle() == [], "all of it is read back"

    node.leaves("lse")
    assert sorted(node.settle()) == ["ls", "system"]
    assert node.may_run() == {"ls": whole, "system": whole, "be": rest, "lse": {first}}, "and be by its own rule"


@EACH
def test_an_agent_alone_binds_pods_reports_it_and_gives_all_back(node: Node) -> None:
    first, *others = cpus_of(node)
    node.add("ls", "LS", BURSTABLE)
    node.add("lse", "LSE", GUARANTEED, str(first))
    clock, spool = SteppedClock(), MemorySpool()
    agent = node.agent(clock, spool)
    pass_s(4, clock, agent)
    assert node.may_run() == {"ls": set(others), "lse": {first}}
    told = [(one.pod.name, one.rule, one.bound, one.knob.after) for _, one in spool.pending(99) if one.knob and one.pod]
    assert told == [("ls", RULE, SHARED, cpu_ranges(others)), ("lse", RULE, OWN, str(first))]

    agent.inventory(node.facts, node.pods[:1], {})
    pass_s(4, clock, agent)
    assert node.may_run()["ls"] == {first, *others}


@EACH
@pytest.mark.story
def test_the_quota_of_a_pod_is_lifted_while_it_has_cpus_of_its_own(node: Node) -> None:
    first, *_ = cpus_of(node)
    node.add("lsr", "LSR", GUARANTEED, str(first), limits=Resources(cpu_milli=1_000))
    node.add("ls", "LS", BURSTABLE)
    limited, lifted = ["100000"] * 2, ["-1" if node.groups.version == 1 else "max"] * 2
    clock, spool = SteppedClock(), MemorySpool()
    agent = node.agent(clock, spool)
    assert node.quotas("lsr") == limited
    pass_s(4, clock, agent)
    assert node.quotas("lsr") == lifted
    told = [(one.target, one.rule, one.knob.after) for _, one in spool.pending(99) if one.knob]
    assert told[1:] == [("pod/lsr", RULE, str(first)), ("pod/lsr", RULE, None), ("pod/lsr/main", RULE, None)]

    def in_time(quotas: list[str]) -> bool:
        return eventually(lambda: pass_s(1, clock, agent) or node.quotas("lsr") == quotas, 60)

    for _ in range(5):  # another process insists that the pod runs everywhere
        node.groups.cpuset("./podlsr", node.all)
        pass_s(1, clock, agent)
    assert in_time(limited), "it could take all CPUs"
    assert in_time(lifted), "the agent has bound it again"

    without = [msgspec.structs.replace(node.pods[0], cpuset=""), node.pods[1]]
    agent.inventory(node.facts, without, {})
    pass_s(4, clock, agent)
    assert node.quotas("lsr") == limited
    agent.inventory(node.facts, node.pods, {})
    pass_s(4, clock, agent)
    assert node.quotas("lsr") == lifted
    agent.suspend("a test")
    pass_s(2, clock, agent)
    assert (node.quotas("lsr"), node.may_run()["ls"]) == (limited, set(cpus_of(node)))
    agent.suspend("")
    pass_s(4, clock, agent)
    assert (node.quotas("lsr"), node.may_run()["lsr"]) == (lifted, {first})
    agent.close(removed=True)
    assert node.quotas("lsr") == limited
    assert node.may_run() == {"lsr": set(cpus_of(node)), "ls": set(cpus_of(node))}


@EACH
def test_best_effort_pods_may_use_the_cpus_of_an_lsr_pod_and_nobody_else(node: Node) -> None:
    first, *others = cpus_of(node)
    for uid, qos, tier in [("none", "", BURSTABLE), ("be", "BE", BEST_EFFORT)]:
        node.add(uid, qos, tier)
    node.add("lsr", "LSR", GUARANTEED, str(first))
    node.settle()

    assert node.may_run() == {"none": set(others), "be": {first, *others}, "lsr": {first}}


@EACH
def test_a_pod_moves_to_other_cpus_though_each_child_must_stay_within_its_parent(node: Node) -> None:
    first, second, *_ = cpus_of(node)
    node.add("lsr", "LSR", GUARANTEED, str(first))
    node.settle()
    node.pods = [msgspec.structs.replace(node.pods[0], cpuset=str(second))]
    node.settle()

    assert node.may_run() == {"lsr": {second}}


@EACH
def test_cpus_that_the_node_lacks_bind_a_pod_to_nothing(node: Node) -> None:
    node.add("lsr", "LSR", GUARANTEED, "4000")
    node.add("ls", "LS", BURSTABLE)

    assert list(cpusets(node.facts, node.pods)) == []
    assert node.settle() == []


@EACH
def test_a_container_or_best_effort_pod_never_gets_a_list_of_its_own(node: Node) -> None:
    node.add("lsr", "LSR", GUARANTEED, "0")
    node.add("be", "BE", BEST_EFFORT)
    node.kernel.read(0)
    node.kernel.know(node.pods)
    before = node.kernel.limits()
    for group, value in [("pod/be", "0"), ("pod/lsr", ""), ("pod/lsr", "0-"), ("pod/lsr", 1)]:
        with pytest.raises(CgroupError, match="never written"):
            node.kernel.put(KnobKey(group, "cpus"), value)

    assert node.kernel.limits() == before == Limits(be_cfs_quota_us=None, be_cpuset=list(cpus_of(node)))
