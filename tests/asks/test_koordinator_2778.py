"""On cgroup v2, too, a quota that was lent to a container comes back when the node fills up."""

import pytest

from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.message import versioned
from slacktide.schemas.policy.strategies import CpuBurst
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.virtual.kernel import VirtualKernel

LIMIT = Resources(cpu_milli=1_000)
LIMIT_US = 100_000
NODE = Resources(cpu_milli=4_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=NODE, allocatable=NODE)
POD = Pod(
    uid="web",
    namespace="shop",
    name="web",
    qos_label="LS",
    kube_qos="Burstable",
    limits=LIMIT,
    containers=[Container(name="main", limits=LIMIT)],
)


def policy(share_pool_pct: int) -> Policy:
    """Both kinds of burst, as the policy `auto` has them by default."""
    return versioned(Policy(version="", cpu_burst=CpuBurst(policy="auto", share_pool_threshold_pct=share_pool_pct)))


@pytest.mark.parametrize("version", [1, 2])
def test_lent_quota_comes_back_beside_a_burst_buffer_and_no_write_is_refused(version: int) -> None:
    """Linux refuses a quota below the group's burst buffer. So the buffer never exceeds the limit's quota."""
    machine = Machine(cpus=4, mem_bytes=8 << 30, version=version)
    group = machine.add_pod("web", "Burstable", limit_milli=1_000)
    group.demand_milli = 1_700
    clock, spool = SteppedClock(), MemorySpool()
    agent = lone_agent(VirtualKernel(machine), clock, FACTS, spool=spool, policy=policy(50), pods=[POD])

    def pass_s(seconds: int) -> list[int]:
        quotas = []
        for _ in range(seconds):
            machine.step(1_000)
            clock.pass_ms(1_000)
            agent.take()
            assert group.quota_us is not None
            quotas.append(group.quota_us)
        return quotas

    lent = pass_s(20)
    assert max(lent) > LIMIT_US
    assert group.burst_us == LIMIT_US
    agent.policy(policy(10))
    assert pass_s(20)[-1] == LIMIT_US

    written = [one for _, one in spool.pending(1_000) if one.knob is not None]
    assert {one.result for one in written} == {"applied"}, [one.reason for one in written if one.result != "applied"]
