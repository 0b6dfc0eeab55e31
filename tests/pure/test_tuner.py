"""The agent sets knobs of groups, keeps them without a fight, and gives back what nobody wants any more."""

import msgspec
import pytest

from slacktide.agents.node.knobs import Standoff, Tuned
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.resource_qos import CpuQos, MemoryQos, QosClass, QosPolicies, ResourceQos
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.stories import each_story, story
from testbed.virtual.kernel import VirtualKernel

MIB = 1 << 20
SECOND_NS = 1_000_000_000
AMOUNT = Resources(cpu_milli=4000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="n", capacity=AMOUNT, allocatable=AMOUNT)
OFF = Policy(version="off")
ON = Policy(version="on", colocation=Colocation(enable=True))
BATCH = (
    Resources(batch_cpu_milli=1500, batch_mem_bytes=64 * MIB),
    Resources(batch_cpu_milli=750, batch_mem_bytes=32 * MIB),
)
NATIVE = (Resources(cpu_milli=500, mem_bytes=64 * MIB), Resources(cpu_milli=250, mem_bytes=32 * MIB))
BE_KEYS = {KnobKey("pod/be", knob): value for knob, value in
           (("cpu_shares", 1536), ("cfs_quota_us", 150_000), ("mem_limit_bytes", 64 * MIB))}  # fmt: skip


def pod(uid, kube_qos, amounts):
    """Two containers, each with half of it; on a virtual machine they have no groups of their own."""
    whole, half = amounts
    return Pod(
        uid=uid,
        namespace="shop",
        name=f"name-{uid}",
        kube_qos=kube_qos,
        requests=whole,
        limits=whole,
        containers=[Container(name=name, requests=half, limits=half) for name in ("main", "side")],
    )


THRESHOLD = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=1)
IDLE = QosClass(cpu=CpuQos(enable=True, sched_idle=1))
POLICIES = {
    "off": OFF,
    "on": ON,
    "bursts": msgspec.structs.replace(OFF, version="b", cpu_burst=CpuBurst(policy="auto")),
    "suppress": msgspec.structs.replace(ON, resource_threshold=THRESHOLD),
    "lifted": msgspec.structs.replace(ON, version="lifted"),
    "protect": msgspec.structs.replace(
        ON, resource_qos=ResourceQos(ls=QosClass(mem=MemoryQos(enable=True, min_limit_pct=50)))
    ),
    "idle tier": Policy(version="i", resource_qos=ResourceQos(policies=QosPolicies(cpu="coreSched"), be=IDLE)),
    "idle pods": msgspec.structs.replace(
        ON, version="i", resource_qos=ResourceQos(policies=QosPolicies(cpu="podIdle"), be=IDLE)
    ),
}
PODS = [pod("be", "BestEffort", BATCH), pod("ls", "Burstable", NATIVE)]


class Bench:
    """One agent without a stream: its guard answers each sample itself; the first three have been taken."""

    def __init__(self, version=2, policy=ON, machine=None, tuned=None, spool=None, pods=PODS, **settings) -> None:
        if machine is None:
            machine = Machine(cpus=4, mem_bytes=8 << 30, version=version)
            for one in pods:
                machine.add_pod(one.uid, one.kube_qos, limit_milli=one.limits.cpu_milli)
        self.machine, self.clock, self.spool = machine, SteppedClock(), spool or MemorySpool()
        self.kernel = VirtualKernel(machine)
        self.agent = lone_agent(
            self.kernel,
            self.clock,
            FACTS,
            spool=self.spool,
            policy=policy if isinstance(policy, Policy) else POLICIES[policy],
            pods=pods,
            tuned=tuned,
            settings=settings,
        )
        self.samples = []
        self.pass_s(3)

    def pass_s(self, seconds):
        """Let time pass, a sample each second; unanswered, the guard decides."""
        for _ in range(seconds):
            self.clock.pass_ms(1_000)
            self.samples.append(self.agent.take())

    def insist(self, seconds, mib):
        """Somebody else sets a memory limit each second."""
        for _ in range(seconds):
            self.knob("be", "mem_limit_bytes", mib * MIB)
            self.pass_s(1)

    def policy(self, name):
        self.agent.policy(POLICIES[name])

    def knob(self, uid, knob, value):
        """Set by somebody else."""
        self.machine.pods[uid].knobs[knob] = None if value == "none" else value

    def burst(self, us):
        self.machine.pods["ls"].burst_us = us

    def quota(self, uid, us):
        self.machine.pods[uid].quota_us = us

    def weight(self, uid, weight):
        self.machine.pods[uid].weight = weight

    def come(self):
        """Both pods are there."""
        self.machine.add_pod("be", "BestEffort")
        self.agent.inventory(FACTS, PODS)

    def suspend(self, *why):
        self.agent.suspend(" ".join(why))

    def concerns(self, outcome):
        return outcome.knob is not None

    def state(self):
        groups = {"tier": self.machine.best_effort} | self.machine.pods
        shown = {
            f"{name}: weight, quota, burst, knobs": (one.weight, one.quota_us, one.burst_us, one.knobs.copy())
            for name, one in groups.items()
        }
        lacking = {"lacking": self.agent.knobs_lacking.copy(), "drift": self.samples[-1].drift if self.samples else []}
        return shown | lacking

    def outcomes(self):
        """What was done to knobs."""
        return [one for _, one in self.spool.pending(10_000) if one.knob is not None]

    def held(self, *keys):
        return dict(self.kernel.held(keys).values)


@each_story("tuner")
def test_what_becomes_of_knobs(given, steps, snapshot):
    pods = PODS[-given.get("pods", 2) :]

    assert story(Bench(**given | {"pods": pods}), steps) == snapshot


def test_what_an_earlier_run_set_is_given_back_by_the_next(tmp_path) -> None:
    first = Bench(tuned=Tuned(tmp_path))
    second = Bench(machine=first.machine, policy=OFF, tuned=Tuned(tmp_path))
    second.pass_s(15)

    assert second.held(*BE_KEYS) == dict(zip(BE_KEYS, (2, None, None), strict=True))
    assert Tuned(tmp_path).keys == set()


def test_a_damaged_memory_is_begun_anew(tmp_path) -> None:
    (tmp_path / "knobs.json").write_text("[[")

    assert Tuned(tmp_path).keys == set()


def test_an_act_cut_short_is_told_by_what_the_kernel_holds() -> None:
    spool = MemorySpool()
    bench = Bench(spool=spool, policy=OFF)

    class StoppedError(Exception):
        pass

    def stop(*_):
        raise StoppedError

    bench.kernel.put, put = stop, bench.kernel.put
    bench.agent.policy(ON)
    with pytest.raises(StoppedError):
        bench.pass_s(1)
    bench.kernel.put = put
    again = Bench(machine=bench.machine, spool=spool)

    told = [one for one in again.outcomes() if "stopped before the result was known" in one.reason]
    assert [one.result for one in told] == ["failed"]
    assert spool.interrupted() == []
    assert again.held(*BE_KEYS)[KnobKey("pod/be", "cfs_quota_us")] == 150_000


def test_a_sample_names_a_bounded_number_of_knobs_and_the_rest_follows() -> None:
    pods = [pod(f"be{number:03}", "BestEffort", BATCH) for number in range(100)]
    bench = Bench(pods=pods)

    assert max(len(sample.drift) for sample in bench.samples) == 200
    bench.pass_s(2)
    assert len(bench.outcomes()) == 300


def test_knobs_are_read_at_a_steady_pace_a_twentieth_with_each_sample() -> None:
    pods = [pod(f"be{number:03}", "BestEffort", BATCH) for number in range(50)]
    bench = Bench(pods=pods)
    bench.pass_s(3)
    read, held = [], bench.kernel.held

    def counting(keys):
        read.append(list(keys))
        return held(read[-1])

    bench.kernel.held = counting
    bench.pass_s(20)

    groups = [{key.group for key in keys} for keys in read]
    assert max(len(one) for one in groups) <= 8 + 1  # of 150, two containers a pod among them
    assert len(set.union(*groups)) == 150


KEY = KnobKey("pod/x", "mem_limit_bytes")


def test_changes_to_ever_other_values_are_a_fight_at_the_third() -> None:
    standoff, now_ns, moves = Standoff(), 0, []
    for value in range(1, 6):
        standoff.left(KEY, 0, now_ns)
        now_ns += SECOND_NS
        moves.append(standoff.sees(KEY, value, now_ns))

    assert moves == ["set", "set", "fight", "wait", "wait"]


def test_a_change_an_hour_after_the_last_is_no_fight() -> None:
    standoff = Standoff()
    moves = []
    for hour in range(5):
        now_ns = hour * 3_600 * SECOND_NS
        moves.append(standoff.sees(KEY, 1, now_ns))
        standoff.left(KEY, 0, now_ns)

    assert set(moves) == {"set"}
