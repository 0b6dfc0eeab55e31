"""A node's agent lets throttled containers burst: by answers, by itself, and never by an answer that says too much."""

import msgspec
import pytest

from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.codec import encode
from slacktide.schemas.command import NodeCommand, Setting, command_id
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.message import versioned
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.burst.node_burst import RULE
from slacktide.streams.decisions.node_decision import answer_of, decide_node, holds, setting_of
from testbed.virtual.kernel import VirtualKernel

GIB = 1 << 30
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 * GIB)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
LIMIT = Resources(cpu_milli=1_000)
WEB = Pod(
    uid="web",
    namespace="shop",
    name="web",
    qos_label="LS",
    kube_qos="Burstable",
    limits=LIMIT,
    containers=[Container(name="main", limits=LIMIT)],
)
ON = versioned(Policy(version="", cpu_burst=CpuBurst(policy="cfsQuotaBurstOnly")))
OFF = versioned(Policy(version=""))
POD, MAIN = "pod/web", "pod/web/main"


class SteppedClock:
    """Time that moves when told."""

    now_ns = 10_000_000_000

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ns // 1_000_000


class Bench:
    """An agent on a virtual machine of four CPUs with one pod, which wants 1.7 CPUs under a limit of one."""

    def __init__(self, policy: Policy = ON, **settings) -> None:
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB, version=1)
        self.group = self.machine.add_pod("web", "Burstable", limit_milli=1_000)
        self.group.demand_milli = 1_700
        self.clock, self.spool = SteppedClock(), MemorySpool()
        self.agent = NodeAgent(
            node="node-1",
            boot_id="000000000007-0badcafe",
            kernel=VirtualKernel(self.machine),
            spool=self.spool,
            clock=self.clock,
            policy=policy,
            facts=FACTS,
            pods=[WEB],
            settings=AgentSettings(**settings),
        )
        self.agent.start()

    def tick(self, ms: int = 1_000) -> NodeSample:
        self.machine.step(ms)
        self.clock.now_ns += ms * 1_000_000
        return self.agent.take()

    def throttled(self) -> NodeSample:
        """The first sample that can know of it."""
        self.agent.answered(answer_to(self.tick()))
        return self.tick()

    def moved(self) -> list[NodeOutcome]:
        return [one for _, one in self.spool.pending(1_000) if one.knob is not None]


def answer_to(sample: NodeSample, policy: Policy = ON, **more) -> NodeCommand:
    """What an honest worker answers."""
    decision = decide_node(sample, FACTS, [WEB], policy)
    command = NodeCommand(
        id=command_id("node-1", sample.boot_id, sample.seq, "answer", "node-1", policy.version),
        node="node-1",
        boot_id=sample.boot_id,
        seq=sample.seq,
        observed_ms=sample.observed_ms,
        policy_version=policy.version,
        facts_revision=sample.facts_revision,
        pods_revision=sample.pods_revision,
        answer=answer_of(decision),
        hold=holds(decision.limits, sample, policy.version),
        settings=[setting_of(one, sample, policy.version) for one in decision.settings],
    )
    return msgspec.structs.replace(command, **more)


def test_an_answer_raises_the_quota_and_each_knob_has_its_outcome() -> None:
    bench = Bench()
    bench.agent.answered(answer_to(bench.throttled()))

    assert bench.group.quota_us == 120_000
    [first, *_] = bench.moved()
    assert (first.rule, first.target, first.origin, first.result) == (RULE, POD, "stream", "applied")
    assert (first.knob.before, first.knob.after) == (100_000, 120_000)


def test_an_answer_to_a_sample_of_before_the_quota_moved_moves_it_no_further() -> None:
    """Two samples are under way; both saw the limit, and both answers say what shall hold, not how much more."""
    bench = Bench()
    first = bench.throttled()
    second = bench.tick(950)
    bench.agent.answered(answer_to(first))
    bench.agent.answered(answer_to(second))

    assert [one.quota_us for one in (*first.burst, *second.burst)] == [100_000, 100_000]
    assert bench.group.quota_us == 120_000


def test_what_such_an_answer_leaves_too_high_the_next_one_takes_back() -> None:
    bench = Bench()
    first = bench.throttled()
    bench.machine.system.demand_milli = 3_000
    second = bench.tick(950)
    bench.agent.answered(answer_to(first))
    bench.agent.answered(answer_to(second))
    assert bench.group.quota_us == 120_000, "the second saw nothing to take back"
    bench.agent.answered(answer_to(bench.tick()))

    assert bench.group.quota_us == 100_000


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"value": 300_000}, id="more than the rule gives"),
        pytest.param({"value": 50_000}, id="less than the limit"),
        pytest.param({"value": None}, id="no quota at all"),
        pytest.param({"group": "pod/other/main"}, id="another pod"),
        pytest.param({"knob": "cfs_burst_us"}, id="another knob"),
    ],
)
def test_an_answer_that_says_anything_else_does_not_act(forged: dict) -> None:
    bench = Bench()
    sample = bench.throttled()
    honest = answer_to(sample)
    settings: list[Setting] = [msgspec.structs.replace(honest.settings[-1], **forged)]
    bench.agent.answered(msgspec.structs.replace(honest, settings=settings))

    assert bench.group.quota_us == 120_000
    assert {(one.origin, one.reason) for one in bench.moved()} == {("guard", "disagrees")}


def test_with_nobody_to_answer_the_guard_lets_it_burst() -> None:
    bench = Bench()
    quotas_us = [bench.group.quota_us for _ in range(8) if bench.tick()]

    assert quotas_us[-1] == 172_800
    assert {one.origin for one in bench.moved()} == {"guard"}


def test_the_quota_goes_back_with_the_policy_and_at_the_end_where_asked_to() -> None:
    left, back, off = Bench(), Bench(restore_on_exit=True), Bench()
    for bench in (left, back, off):
        for _ in range(6):
            bench.tick()
        assert bench.group.quota_us > 140_000
    off.agent.policy(OFF)
    off.tick()
    left.agent.close()
    back.agent.close()

    assert off.group.quota_us == back.group.quota_us == 100_000
    assert left.group.quota_us > 140_000
    assert back.moved()[-1].reason == "the agent stops"


def test_a_dry_run_writes_nothing_and_says_once_what_it_would() -> None:
    bench = Bench(dry_run=True)
    for _ in range(6):
        bench.tick()
    bench.agent.close()

    assert bench.group.quota_us == 100_000
    assert [(one.result, one.target) for one in bench.moved()] == [("dry-run", POD), ("dry-run", MAIN)]


def test_a_sample_of_a_calm_node_is_not_longer_for_it() -> None:
    calm, without = Bench(), Bench(OFF)
    for bench in (calm, without):
        bench.group.demand_milli = 500
    samples = [[bench.tick() for _ in range(4)][-1] for bench in (calm, without)]
    lengths = [len(encode(msgspec.structs.replace(one, policy_version=""))) for one in samples]

    assert samples[0].burst == []
    assert lengths[0] == lengths[1]
