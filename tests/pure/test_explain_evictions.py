"""What a real agent says of its evictions, explained."""

from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.credit import NO_CREDIT, EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.analysis.explain.evictions import Eviction, eviction_findings, evictions_of
from slacktide.streams.analysis.explain.evidence import logged
from testbed.chains import outcome_record
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.policies import policy_from
from testbed.snapshots import findings, json_text
from testbed.virtual.kernel import VirtualKernel

GIB = 1 << 30
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 * GIB)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
BOOT = "000000000001-0badcafe"
POLICY = policy_from(
    colocation={"enable": True},
    threshold={"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 50, "memoryEvictLowerPercent": 40}},
)
JOBS = [
    Pod(uid=f"be-{name}", namespace="jobs", name=f"etl-{name}", qos_label="BE", priority=5_000, grace_s=1)
    for name in ("x2lqp", "9k4tz", "w7r5c")
]


def evict_for(seconds: int, *, credit: int) -> list[NodeOutcome]:
    """A node whose memory is three quarters full, half of that by best-effort pods; its guard decides."""
    clock, machine, spool = SteppedClock(), Machine(cpus=4, mem_bytes=8 * GIB), MemorySpool()
    for pod in JOBS:
        machine.add_pod(pod.uid, pod.kube_qos).mem_bytes = 2 * GIB
    agent = lone_agent(VirtualKernel(machine), clock, FACTS, spool=spool, boot_id=BOOT, policy=POLICY, pods=JOBS)
    if credit:
        lease = EvictionCredit(node="node-1", boot_id=BOOT, epoch=3, number=1, granted=credit, ttl_ms=10**9)
        agent.credit(lease, clock.mono_ns())
    for _ in range(seconds):
        clock.pass_ms(1_000)
        machine.step(1_000)
        agent.take()
        clock.pass_ms(1_000)
        agent.overdue()
    return [outcome for _, outcome in spool.pending(10_000)]


def explained(outcomes: list[NodeOutcome]) -> list[Eviction]:
    records = [outcome_record(one, offset) for offset, one in enumerate(outcomes)]
    return evictions_of(logged(records, OUTCOME, NodeOutcome), "jobs", "etl-x2lqp")


def test_each_eviction_of_a_real_agent_is_one_with_its_end(snapshot) -> None:
    """75% is used, over the threshold of 50%; each was asked to go once, and went."""
    assert json_text(explained(evict_for(20, credit=10))) == snapshot


def test_without_credit_nobody_of_a_real_agents_victims_counts_as_evicted(snapshot) -> None:
    found = explained(evict_for(10, credit=0))

    assert found
    assert {(one.done, one.reason) for one in found} == {(False, NO_CREDIT)}
    assert findings(eviction_findings(found, "etl-x2lqp", 3_600_000)) == snapshot
