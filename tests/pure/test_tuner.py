"""The agent sets knobs of groups, keeps them without a fight, and gives back what nobody wants any more."""

from __future__ import annotations

import msgspec
import pytest

from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.knobs.standoff import Standoff
from slacktide.agents.node.knobs.tuned import Tuned
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import Container, NodeFacts, Pod, Resources
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.resource_qos import CpuQos, MemoryQos, QosClass, QosPolicies, ResourceQos
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold
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


PODS = [pod("be", "BestEffort", BATCH), pod("ls", "Burstable", NATIVE)]


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now_ns = 10 * SECOND_NS

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ns // 1_000_000


class Bench:
    """One agent without a stream: its guard answers each sample itself."""

    def __init__(self, version=2, policy=ON, machine=None, tuned=None, spool=None, pods=PODS, **settings) -> None:
        if machine is None:
            machine = Machine(cpus=4, mem_bytes=8 << 30, version=version)
            for one in pods:
                machine.add_pod(one.uid, one.kube_qos, limit_milli=one.limits.cpu_milli)
        self.machine, self.clock, self.spool = machine, Clock(), spool or MemorySpool()
        self.kernel = VirtualKernel(machine)
        self.agent = NodeAgent(
            node="n",
            boot_id="000000000001-aa",
            kernel=self.kernel,
            spool=self.spool,
            clock=self.clock,
            policy=policy,
            facts=FACTS,
            pods=pods,
            tuned=tuned,
            settings=AgentSettings(**settings),
        )
        self.agent.start()
        self.samples = []
        self.pass_s(3)

    def pass_s(self, seconds):
        """Let time pass, a sample each second; unanswered, the guard decides."""
        for _ in range(seconds):
            self.clock.now_ns += SECOND_NS
            self.samples.append(self.agent.take())

    def outcomes(self, result=None):
        """What was done to knobs."""
        found = [one for _, one in self.spool.pending(10_000) if one.knob is not None]
        return [one for one in found if result in {None, one.result}]

    def held(self, *keys):
        return dict(self.kernel.held(keys).values)


@pytest.mark.parametrize("version", [1, 2])
def test_pods_get_what_their_spec_bought_and_each_act_says_so(version) -> None:
    bench = Bench(version)

    assert bench.held(*BE_KEYS) == {key: bench.kernel.as_reads_back(key.knob, value) for key, value in BE_KEYS.items()}
    done = {(one.target, one.knob.knob): one for one in bench.outcomes()}
    assert done.keys() == set(BE_KEYS)
    quota = done["pod/be", "cfs_quota_us"]
    assert (quota.result, quota.rule, quota.knob.before, quota.knob.after) == ("applied", "BEIsolation", None, 150_000)
    assert (quota.pod.namespace, quota.pod.name, quota.terms["limit_milli"]) == ("shop", "name-be", 1500)


def test_what_holds_what_it_shall_costs_no_word() -> None:
    bench = Bench()
    before = len(bench.outcomes())
    bench.pass_s(30)

    assert len(bench.outcomes()) == before
    assert bench.samples[-1].drift == []


def test_a_policy_taken_back_gives_the_knobs_back_and_touches_no_others() -> None:
    bench = Bench()
    bench.machine.pods["ls"].burst_us = 7_000  # somebody else's
    bench.agent.policy(OFF)
    bench.pass_s(15)

    assert bench.held(*BE_KEYS) == dict(zip(BE_KEYS, (2, None, None), strict=True))
    assert {one.rule for one in bench.outcomes()[3:]} == {"released"}
    assert bench.machine.pods["ls"].burst_us == 7_000


def test_what_an_earlier_run_set_is_given_back_by_the_next(tmp_path) -> None:
    first = Bench(tuned=Tuned(tmp_path))
    second = Bench(machine=first.machine, policy=OFF, tuned=Tuned(tmp_path))
    second.pass_s(15)

    assert second.held(*BE_KEYS) == dict(zip(BE_KEYS, (2, None, None), strict=True))
    assert Tuned(tmp_path).keys == set()


def test_a_damaged_memory_is_begun_anew(tmp_path) -> None:
    (tmp_path / "knobs.json").write_text("[[")

    assert Tuned(tmp_path).keys == set()


def test_what_nobody_of_us_set_is_never_given_back() -> None:
    bench = Bench(policy=OFF)
    bench.machine.pods["be"].knobs["mem_limit_bytes"] = MIB
    bench.pass_s(15)

    assert (bench.outcomes(), bench.machine.pods["be"].knobs["mem_limit_bytes"]) == ([], MIB)


def test_a_new_pod_is_isolated_with_the_next_sample() -> None:
    bench = Bench(pods=PODS[1:])
    bench.machine.add_pod("be", "BestEffort")
    bench.agent.inventory(FACTS, PODS)
    bench.pass_s(1)

    assert {(one.target, one.knob.knob) for one in bench.outcomes("applied")} == set(BE_KEYS)


def test_a_change_of_somebody_elses_is_answered_once_and_within_ten_seconds() -> None:
    bench = Bench()
    bench.machine.pods["be"].knobs["mem_limit_bytes"] = None
    bench.pass_s(11)

    assert bench.machine.pods["be"].knobs["mem_limit_bytes"] == 64 * MIB
    assert len(bench.outcomes()) == 4


def test_who_insists_is_told_of_once_and_left_alone_for_longer_and_longer() -> None:
    bench = Bench()
    group = bench.machine.pods["be"]
    for _ in range(600):
        group.knobs["mem_limit_bytes"] = 32 * MIB
        bench.pass_s(1)
    fights = bench.outcomes("refused")
    writes = [one for one in bench.outcomes("applied") if one.knob.knob == "mem_limit_bytes"]

    assert [one.reason for one in fights] == [
        "another process reset mem_limit_bytes of pod/be to 33554432: not written for a while"
    ]
    # At the start, in answer to the first change, and after a minute, two, and four.
    assert len(writes) == 5
    assert group.knobs["mem_limit_bytes"] == 32 * MIB
    bench.pass_s(600)  # they went away
    assert group.knobs["mem_limit_bytes"] == 64 * MIB


def test_what_a_kernel_lacks_is_said_once_and_the_rest_works() -> None:
    strategy = ResourceQos(ls=QosClass(mem=MemoryQos(enable=True, min_limit_pct=50)))
    policy = msgspec.structs.replace(ON, resource_qos=strategy)
    bench = Bench(version=1, policy=policy)
    bench.pass_s(60)

    assert [one.reason for one in bench.outcomes("failed")] == [
        "the kernel lacks mem_min_bytes: cgroup v1 does not have it"
    ]
    assert bench.agent.knobs_lacking == {"mem_min_bytes": 3}
    assert len(bench.outcomes("applied")) == len(BE_KEYS)


def test_what_a_kernel_refuses_is_tried_again_with_growing_pauses() -> None:
    """Linux takes no burst above the quota."""
    bench = Bench(policy=OFF)
    bench.machine.pods["ls"].quota_us = 20_000  # somebody cut it
    bench.agent.policy(msgspec.structs.replace(OFF, version="b", cpu_burst=CpuBurst(policy="auto")))
    bench.pass_s(90)

    failed = bench.outcomes("failed")
    assert 3 <= len(failed) <= 5
    assert "burst 50000 us over a quota of 20000 us" in failed[0].reason


def test_a_dry_run_says_once_what_it_would_do_and_does_nothing() -> None:
    bench = Bench(dry_run=True)
    bench.pass_s(30)

    assert len(bench.outcomes("dry-run")) == len(bench.outcomes()) == len(BE_KEYS)
    assert bench.held(*BE_KEYS) == dict(zip(BE_KEYS, (2, None, None), strict=True))


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


def test_restore_on_exit_gives_all_knobs_back() -> None:
    bench = Bench(restore_on_exit=True)
    bench.agent.close()

    assert bench.held(*BE_KEYS) == dict(zip(BE_KEYS, (2, None, None), strict=True))


def test_under_suppress_a_pods_own_quota_waits_and_comes_back_with_the_raise() -> None:
    """On v1 the kernel takes no pod above the best-effort group: the isolation's quota is what it gets back."""
    threshold = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=1)
    bench = Bench(version=1, policy=msgspec.structs.replace(ON, resource_threshold=threshold))
    told = len(bench.outcomes())
    bench.pass_s(30)

    assert bench.machine.pods["be"].quota_us == bench.machine.best_effort.quota_us == 4_000
    assert len(bench.outcomes()) == told == len(BE_KEYS)  # what is cut to fit is not somebody else's change
    bench.agent.policy(msgspec.structs.replace(ON, version="lifted"))
    bench.pass_s(3)
    assert (bench.machine.best_effort.quota_us, bench.machine.pods["be"].quota_us) == (None, 150_000)


def test_idle_given_back_leaves_the_kubelets_weight() -> None:
    idle = ResourceQos(policies=QosPolicies(cpu="coreSched"), be=QosClass(cpu=CpuQos(enable=True, sched_idle=1)))
    bench = Bench(version=1, policy=Policy(version="i", resource_qos=idle))

    assert bench.machine.best_effort.knobs["cpu_idle"] == 1
    bench.agent.policy(OFF)
    bench.pass_s(2)
    assert (bench.machine.best_effort.knobs["cpu_idle"], bench.machine.best_effort.weight) == (0, 2)


def test_an_idle_pod_has_no_weight_and_has_what_it_bought_again_afterwards() -> None:
    """The kernel refuses a weight of an idle group."""
    idle = ResourceQos(policies=QosPolicies(cpu="podIdle"), be=QosClass(cpu=CpuQos(enable=True, sched_idle=1)))
    bench = Bench(version=1, policy=msgspec.structs.replace(ON, version="i", resource_qos=idle))
    group = bench.machine.pods["be"]
    group.weight = 3  # the kernel's of an idle group
    bench.pass_s(30)

    assert (group.knobs["cpu_idle"], group.weight, bench.machine.best_effort.knobs["cpu_idle"]) == (1, 3, 0)
    assert [one.target for one in bench.outcomes("applied") if one.knob.knob == "cpu_idle"] == ["pod/be"]
    bench.agent.policy(msgspec.structs.replace(ON, version="on"))
    bench.pass_s(30)
    assert (group.knobs["cpu_idle"], group.weight) == (0, 1536)
    assert bench.outcomes("failed") == []


def test_a_sample_names_a_bounded_number_of_knobs_and_the_rest_follows() -> None:
    pods = [pod(f"be{number:03}", "BestEffort", BATCH) for number in range(100)]
    bench = Bench(pods=pods)

    assert max(len(sample.drift) for sample in bench.samples) == 200
    bench.pass_s(2)
    assert len(bench.outcomes("applied")) == 300


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
