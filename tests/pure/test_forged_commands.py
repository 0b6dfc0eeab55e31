"""An actuator that is lied to: 100,000 forged answers, and the node does what it would have done without any.

Two nodes live through the same hours: the same machine, load and honest answers. One of them hears forged answers
before and after each honest one. Afterwards, and at each step, both machines are the same to the last counter.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import Evict, Hold, NodeCommand, Setting, command_id
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND, SAMPLE
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET, quota_rate
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker
from testbed.lone_agent import BOOT, SteppedClock, lone_agent
from testbed.policies import policy_from
from testbed.samples import policy_record
from testbed.virtual.kernel import VirtualKernel

pytestmark = pytest.mark.exhaustive

FORGED = 100_000
STEPS = 1_000
GIB = 2**30
NODE = "node-1"
SHORT = {"memoryEvictThresholdPercent": 60, "memoryEvictLowerPercent": 50}
POLICY = policy_from(
    colocation={"enable": True},
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"} | SHORT},
    burst={"clusterStrategy": {"policy": "auto"}},
)
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=16 * GIB)
FACTS = NodeFacts(name=NODE, capacity=CAPACITY, allocatable=CAPACITY)
LS_LIMIT = Resources(cpu_milli=2_500, mem_bytes=4 * GIB)
LS = Pod(
    uid="ls-1",
    namespace="shop",
    name="front",
    qos_label="LS",
    kube_qos="Burstable",
    limits=LS_LIMIT,
    containers=[Container(name="main", id="c1", limits=LS_LIMIT)],
)


def batch_pod(number: int) -> Pod:
    """One of three at a time; whoever is evicted is followed by another one."""
    batch = Resources(batch_cpu_milli=1_500, batch_mem_bytes=8 * GIB)
    return Pod(
        uid=f"be-{number}",
        namespace="jobs",
        name=f"batch-{number}",
        qos_label="BE",
        priority=5_000 + number % 7,
        requests=batch,
        limits=batch,
    )


UIDS = ["ls-1", "be-0", "be-1", "be-2", "", ".", "..", "../../burstable/podls-1", "be-0/../../..", "/", "be-9", "\0"]
PATHS = ["besteffort", "burstable", "kubepods", "", "..", "../.."]
PATHS += ["besteffort/../burstable", "/sys/fs/cgroup", "pod/ls-1"]
GROUPS = [*(f"pod/{uid}" for uid in UIDS), "tier/burstable", "tier/besteffort", "../cpu", "pod/be-0/../../x", "tier/.."]
KNOBS: list[Any] = ["cfs_quota_us", "cpu_shares", "mem_limit_bytes", "cfs_burst_us", "cpu_idle", "mem_min_bytes"]


@dataclass
class Life:
    """A machine with its agent, and the honest worker that answers it."""

    machine: Machine = field(default_factory=lambda: Machine(cpus=4, mem_bytes=16 * GIB))
    clock: SteppedClock = field(default_factory=SteppedClock)
    heard: list[NodeOutcome] = field(default_factory=list)
    unreadable: int = 0

    def __post_init__(self) -> None:
        self.machine.add_pod("ls-1", "Burstable", request_milli=2_000)
        self.batch = [batch_pod(number) for number in range(3)]
        for pod in self.batch:
            self.machine.add_pod(pod.uid, "BestEffort")
        self.started = len(self.batch)
        self.worker = Worker("honest")
        self.worker.policy(policy_record(POLICY))
        self.agent = lone_agent(
            VirtualKernel(self.machine),
            self.clock,
            FACTS,
            policy=POLICY,
            pods=[LS, *self.batch],
            concluded=self.heard.append,
        )
        lease = EvictionCredit(node=NODE, boot_id=BOOT, epoch=1, number=1, granted=10**6, ttl_ms=10**9)
        self.agent.credit(lease, self.clock.now_ns)

    def second(self, ls_milli: int, be_milli: int, be_mem_bytes: int) -> NodeSample:
        """A second passes under this load; then a sample is taken."""
        self.machine.pods["ls-1"].demand_milli = ls_milli
        for index, pod in enumerate(self.batch):
            if pod.uid not in self.machine.pods:
                self.batch[index] = batch_pod(self.started)
                self.started += 1
                self.machine.add_pod(self.batch[index].uid, "BestEffort")
                self.agent.inventory(FACTS, [LS, *self.batch])
            group = self.machine.pods[self.batch[index].uid]
            group.demand_milli, group.mem_bytes = be_milli, be_mem_bytes
        self.machine.step(1_000)
        self.clock.pass_ms(1_000)
        return self.agent.take()

    def honest(self, sample: NodeSample) -> NodeCommand:
        """The worker's answer."""
        record = Record(topic=SAMPLE.name, partition=0, offset=sample.seq, timestamp_ms=sample.observed_ms,
                        key=NODE.encode(), value=encoded(sample, self.agent.pods), headers=[])  # fmt: skip
        outs = self.worker.samples([record], sample.observed_ms)
        [answer] = [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]
        return answer

    def receive(self, body: bytes) -> None:
        """As the agent's loop does: what does not decode is laid aside."""
        try:
            command = decode(body, NodeCommand)
        except BadMessageError:
            self.unreadable += 1
            return
        self.agent.answered(command)


class Forger:
    """Makes answers that must not act, out of honest ones."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.past: list[NodeCommand] = []
        self.kinds: Counter[str] = Counter()
        self.ways: dict[str, Callable[[NodeCommand], NodeCommand]] = {
            "another node": lambda honest: self.looser(honest, node=f"node-{self.rng.randint(2, 99)}"),
            "another boot": lambda honest: self.looser(honest, boot_id=f"{self.rng.randint(0, 9**9):012d}-0badcafe"),
            "a sample to come": lambda honest: self.looser(honest, seq=honest.seq + self.rng.randint(1, 10**6)),
            "expired": lambda honest: self.looser(honest, seq=self.rng.randint(0, max(0, honest.seq - 65))),
            "another policy": lambda honest: self.looser(honest, policy_version=f"{self.rng.getrandbits(48):012x}"),
            "replayed": self.replayed,
            "looser": self.looser,
            "unlimited": lambda honest: self.held(honest, None),
            "another target": self.elsewhere,
            "an eviction": self.evicting,
            "a setting": self.setting,
        }

    def forged(self, honest: NodeCommand) -> bytes:
        """One body, now and then damaged on the way."""
        kind = self.rng.choice(list(self.ways))
        self.kinds[kind] += 1
        body = bytearray(encode(self.ways[kind](honest)))
        if self.rng.random() < 0.05:
            body[self.rng.randrange(len(body))] ^= 1 << self.rng.randrange(8)
            # Damage may have made it honest again, or merely tighter: that is another matter.
            if self._harmless(bytes(body), honest):
                return b"{"
        return bytes(body)

    def _harmless(self, body: bytes, honest: NodeCommand) -> bool:
        try:
            command = decode(body, NodeCommand)
        except BadMessageError:
            return False
        return (command.node, command.boot_id, command.policy_version) == (NODE, BOOT, honest.policy_version)

    def held(self, honest: NodeCommand, quota_us: int | None, **claims: Any) -> NodeCommand:
        """An answer that wants this quota held."""
        id_ = command_id(NODE, BOOT, honest.seq, RULE, TARGET, honest.policy_version)
        hold = Hold(id=id_, rule=RULE, target=TARGET, limits=Limits(be_cfs_quota_us=quota_us), bound="forged")
        return msgspec.structs.replace(honest, answer="set", hold=[hold], **claims)

    def looser(self, honest: NodeCommand, **claims: Any) -> NodeCommand:
        """More for best-effort pods than was decided, by a little or by much."""
        least = 400_000 if not honest.hold else quota_rate(honest.hold[0].limits) * 100_000
        if least == float("inf"):
            return self.elsewhere(honest, **claims)
        return self.held(honest, int(least) + self.rng.choice([1, 50, 10_000, 10**6, 2**40]), **claims)

    def replayed(self, honest: NodeCommand) -> NodeCommand:
        """What was true once, with its own seq."""
        older = [one for one in self.past[-200:] if one.seq < honest.seq]
        return self.rng.choice(older) if older else self.looser(honest, boot_id="")

    def elsewhere(self, honest: NodeCommand, **claims: Any) -> NodeCommand:
        """A limit for what is not best-effort, or not even a group."""
        target = self.rng.choice([path for path in PATHS if path != TARGET])
        limits = Limits(
            be_cfs_quota_us=self.rng.choice([1, 1_000, 50_000, None]), be_cpuset=self.rng.choice([None, [0]])
        )
        hold = Hold(
            id=honest.id, rule=self.rng.choice([RULE, "", "../x"]), target=target, limits=limits, bound="forged"
        )
        return msgspec.structs.replace(honest, answer="set", hold=[hold], **claims)

    def evicting(self, honest: NodeCommand) -> NodeCommand:
        """Pods that nobody decided to evict, among them such as are not best-effort, or paths."""
        evict = [
            Evict(id=honest.id, rule="BEMemoryEvict", uid=uid, namespace="shop", name="front", bound="forged")
            for uid in self.rng.sample(UIDS, self.rng.randint(1, 3))
        ]
        return msgspec.structs.replace(honest, answer="set", evict=[*honest.evict, *evict])

    def setting(self, honest: NodeCommand) -> NodeCommand:
        """Knobs that nobody decided to set."""
        settings = [
            Setting(
                id=honest.id,
                rule="be_isolation",
                group=self.rng.choice(GROUPS),
                knob=self.rng.choice(KNOBS),
                value=self.rng.choice([None, -1, 0, 1, 1_000, 2**40]),
                bound="forged",
            )
        ]
        return msgspec.structs.replace(honest, answer="set", settings=[*honest.settings, *settings])


@pytest.fixture(scope="module")
def lives() -> tuple[Life, Life, Forger]:
    """A life without forgeries, one with them, and the forger; compared at each step."""
    rng = random.Random(20)
    plain, lied_to, forger = Life(), Life(), Forger(rng)
    ls_milli = 500
    for _ in range(STEPS):
        ls_milli = rng.choice([ls_milli, ls_milli, rng.randrange(0, 3_500)])
        be_milli = rng.choice([200, 1_500, 4_000])
        be_mem_bytes = rng.choice([GIB, GIB, GIB, 5 * GIB])
        samples = [life.second(ls_milli, be_milli, be_mem_bytes) for life in (plain, lied_to)]
        assert samples[0] == samples[1]
        honest = plain.honest(samples[0])
        plain.receive(encode(honest))
        forgeries = [forger.forged(honest) for _ in range(FORGED // STEPS)]
        before = rng.choice([0, 0, 1, 50])
        for body in [*forgeries[:before], encode(honest), *forgeries[before:]]:
            lied_to.receive(body)
        forger.past.append(honest)
        assert lied_to.machine.root == plain.machine.root
    return plain, lied_to, forger


def test_a_node_that_hears_100000_forged_answers_does_what_it_would_have_done_without(lives) -> None:
    plain, lied_to, forger = lives

    assert forger.kinds.total() == FORGED
    assert min(forger.kinds.values()) > FORGED / 20
    assert lied_to.machine.root == plain.machine.root
    moved = {(outcome.after or Limits(be_cfs_quota_us=None)).be_cfs_quota_us for outcome in plain.heard}
    assert len(moved) > 100  # the limit really moved all the time,
    assert plain.started > 50  # pods were evicted,
    assert {outcome.knob.knob for outcome in plain.heard if outcome.knob} >= {"cfs_quota_us", "cfs_burst_us"}  # and set


def test_each_forged_answer_is_accounted_for(lives) -> None:
    """As unreadable, as refused with its cause, or as the reason why the agent decided by itself."""
    _, lied_to, _ = lives
    lied_to.agent.close()
    refused = sum((Counter({one.reason: one.count}) for one in lied_to.heard if one.result == "refused"), Counter())
    own = Counter(one.reason for one in lied_to.heard if (one.origin, one.rule) == ("guard", RULE))

    assert set(refused) == {"foreign", "other boot", "unknown sample", "expired", "repeated", "older", "superseded"}
    # The first sample has no rates yet: nobody can decide it.
    assert set(own) <= {"disagrees", "other policy", "skipped: the node's CPU use is unknown"}
    # Each sample is settled once, by the honest answer or, where a forged one came first, by the agent itself.
    settled = sum(one.result in {"applied", "unchanged"} and one.rule == RULE for one in lied_to.heard)
    assert settled == STEPS
    assert lied_to.unreadable + refused.total() + settled == FORGED + STEPS
