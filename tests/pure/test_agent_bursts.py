"""A node's agent lets throttled containers burst: by answers, by itself, and never by an answer that says too much."""

import msgspec
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.codec import encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.message import versioned
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.node_decision import answer_of, decide_node, holds, setting_of
from testbed.lone_agent import SteppedClock, command_on, lone_agent
from testbed.stories import each_story, story
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


class Bench:
    """An agent on a virtual machine of four CPUs with one pod, which wants 1.7 CPUs under a limit of one."""

    def __init__(self, policy: Policy = ON, **settings) -> None:
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB, version=1)
        self.group = self.machine.add_pod("web", "Burstable", limit_milli=1_000)
        self.group.demand_milli = 1_700
        self.clock, self.spool = SteppedClock(), MemorySpool()
        kernel = VirtualKernel(self.machine)
        given = {"spool": self.spool, "settings": settings}
        self.agent = lone_agent(kernel, self.clock, FACTS, policy=policy, pods=[WEB], **given)
        self.samples: list[NodeSample] = []

    def tick(self, ms: int = 1_000) -> NodeSample:
        self.machine.step(ms)
        self.clock.pass_ms(ms)
        self.samples.append(self.agent.take())
        return self.samples[-1]

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.tick()

    def answer(self) -> None:
        self.agent.answered(answer_to(self.samples[-1]))

    def answer_older(self) -> None:
        self.agent.answered(answer_to(self.samples[-2]))

    def forge(self, field: str, value: object) -> None:
        """An answer that says something else of its last setting."""
        honest = answer_to(self.samples[-1])
        setting = msgspec.structs.replace(honest.settings[-1], **{field: None if value == "none" else value})
        self.agent.answered(msgspec.structs.replace(honest, settings=[setting]))

    def system_uses(self, milli: int) -> None:
        self.machine.system.demand_milli = milli

    def take_policy_back(self) -> None:
        self.agent.policy(OFF)

    def concerns(self, outcome: NodeOutcome) -> bool:
        return outcome.knob is not None

    def state(self) -> dict[str, object]:
        seen = [(one.quota_us, one.throttled_ratio) for one in self.samples[-1].burst] if self.samples else []
        return {"quota": self.group.quota_us, "the sample saw a quota and throttling of": seen}

    def throttled(self) -> NodeSample:
        """The first sample that can know of it."""
        self.agent.answered(answer_to(self.tick()))
        return self.tick()

    def moved(self) -> list[NodeOutcome]:
        return [one for _, one in self.spool.pending(1_000) if one.knob is not None]


def answer_to(sample: NodeSample, policy: Policy = ON, **more) -> NodeCommand:
    """What an honest worker answers."""
    decision = decide_node(sample, FACTS, [WEB], policy)
    settings = [setting_of(one, sample, policy.version) for one in decision.settings]
    command = command_on(
        sample,
        policy,
        answer=answer_of(decision),
        hold=holds(decision.limits, sample, policy.version),
        settings=settings,
    )
    return msgspec.structs.replace(command, **more)


@each_story("agent_bursts")
def test_what_becomes_of_the_quota(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Bench(**given), steps) == snapshot


def test_a_sample_of_a_calm_node_is_not_longer_for_it() -> None:
    calm, without = Bench(), Bench(OFF)
    for bench in (calm, without):
        bench.group.demand_milli = 500
    samples = [[bench.tick() for _ in range(4)][-1] for bench in (calm, without)]
    lengths = [len(encode(msgspec.structs.replace(one, policy_version=""))) for one in samples]

    assert samples[0].burst == []
    assert lengths[0] == lengths[1]
