"""The agent reclaims memory of best-effort pods before it evicts: whom it asks, what it reports, when it must not."""

import threading
from collections.abc import Callable, Collection

import pytest

from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.evict.reclaimer import Reclaimer
from slacktide.agents.node.interfaces import Reclaim
from slacktide.agents.node.metrics import RECLAIM_ASKED, RECLAIMED, AgentMetrics
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.policy import Policy
from slacktide.streams.decisions.evict.mem_reclaim import RULE, MemoryLook, PodMemory
from slacktide.streams.decisions.evict.node_evict import audited
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.policies import policy_from
from testbed.virtual.kernel import VirtualKernel

GIB, MIB = 1 << 30, 1 << 20
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=10 * GIB)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
STEP = 10 * GIB // 100
SERVICE = Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
JOB = Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort", priority=5_000)
CLAIMS = Pod(uid="odd", namespace="shop", name="odd", qos_label="LS", kube_qos="Burstable")
QUIET = {"ls_mem": 0, "ls_io": 0, "io_full": 0}


def policy(**more: object) -> Policy:
    said = {"enable": True, "memoryEvictThresholdPercent": 70, "memoryEarlyReclaimThresholdPercent": 60, **more}
    return policy_from(threshold={"clusterStrategy": said})


class Memory:
    """Page cache of pods, which a write frees."""

    def __init__(self) -> None:
        self.trouble = ""
        self.cache = {"ls": 4 * GIB, "be": 4 * GIB, "odd": GIB}
        self.stalls = dict(QUIET)
        self.looked: list[list[str]] = []
        self.written: list[tuple[str, int]] = []
        self.yields_pct = 100
        self.fails = ""
        self.before: Callable[[], object] = lambda: None

    def look(self, uids: Collection[str], now_ns: int) -> MemoryLook:
        self.looked.append(list(uids))
        pods = [PodMemory(uid=uid, inactive_file_bytes=self.cache[uid]) for uid in uids]
        span_ms = 1_000 if len(self.looked) > 1 else 0
        return MemoryLook(
            now_ms=now_ns // 10**6, span_ms=span_ms, free_bytes=100 * MIB, stalls_permille=self.stalls, pods=pods
        )

    def reclaim(self, uid: str, ask_bytes: int, *, in_time: Callable[[], bool]) -> Reclaim:
        assert in_time()
        self.before()
        self.written.append((uid, ask_bytes))
        if self.fails:
            raise CgroupError(uid, self.fails)
        freed = ask_bytes * self.yields_pct // 100
        self.cache[uid] -= freed
        return Reclaim(freed_bytes=freed, swapped_bytes=0, writes=1, tried_bytes=ask_bytes)


class Bench:
    """A node whose guard decides at each sample; steps run at once, unless ``threaded``."""

    def __init__(self, used_pct: int = 65, *, said: Policy | None = None, threaded: bool = False, **settings) -> None:
        self.clock, self.spool, self.memory = SteppedClock(), MemorySpool(), Memory()
        self.machine = Machine(cpus=4, mem_bytes=10 * GIB)
        for pod in (SERVICE, JOB, CLAIMS):
            self.machine.add_pod(pod.uid, pod.kube_qos)
        self.use(used_pct)
        kernel = VirtualKernel(self.machine)
        kernel.best_effort.memory = self.memory
        self.agent: NodeAgent = lone_agent(
            kernel, self.clock, FACTS, spool=self.spool, policy=said or policy(), pods=[SERVICE, JOB, CLAIMS],
            settings=settings,
        )  # fmt: skip
        self.reclaimer: Reclaimer = self.agent._evictor._reclaimer
        if not threaded:
            self.reclaimer._start = lambda work: work()

    def use(self, percent: int) -> None:
        self.machine.pods["ls"].mem_bytes = 10 * GIB * percent // 100

    def ticks(self, count: int, ms: int = 1_000) -> None:
        for _ in range(count):
            self.clock.pass_ms(ms)
            self.machine.step(ms)
            self.agent.take()
            if self.agent.in_charge == "stream":
                self.clock.pass_ms(1_000)
                self.agent.overdue()

    def told(self) -> list[NodeOutcome]:
        return [one for _, one in self.spool.pending(10_000) if one.reclaimed is not None]


def test_only_a_best_effort_pod_is_looked_at_and_asked_a_step_each_second() -> None:
    bench = Bench()
    bench.ticks(5)
    assert {uid for looked in bench.memory.looked for uid in looked} == {"be"}
    assert bench.memory.written == [("be", STEP)] * 4, "the first look has nothing to compare stalls with"
    assert bench.memory.cache["ls"] == 4 * GIB


def test_early_samples_make_no_steps_of_their_own() -> None:
    bench = Bench()
    bench.ticks(2)
    bench.ticks(8, ms=100)
    assert len(bench.memory.looked) == 2


def test_one_outcome_says_what_five_seconds_freed() -> None:
    bench = Bench()
    bench.ticks(14)
    first, *more = bench.told()
    assert (first.rule, first.target, first.origin, first.result) == (RULE, "pod/be", "agent", "applied")
    assert (first.pod, first.concerns) == (None, PodName(namespace="batch", name="job"))
    assert first.reclaimed.asked_bytes == first.reclaimed.freed_bytes == STEP
    assert [one.reclaimed.freed_bytes for one in more] == [5 * STEP] * 2
    assert first.terms["used_pct"] == 65
    assert not first.about_limit
    assert audited(first)


@pytest.mark.parametrize(
    "said", [policy(enable=False), policy(memoryEarlyReclaimThresholdPercent=None), policy_from(threshold={})]
)
def test_without_the_threshold_nothing_is_read(said: Policy) -> None:
    bench = Bench(said=said)
    bench.ticks(5)
    assert bench.memory.looked == []


@pytest.mark.parametrize("used_pct", [50, 60, 70, 90])
def test_below_its_threshold_and_from_the_line_on_nothing_is_reclaimed(used_pct: int) -> None:
    bench = Bench(used_pct)
    bench.ticks(5)
    assert bench.memory.looked == []


@pytest.mark.parametrize("dry", ["policy", "agent"])
def test_a_dry_run_writes_nothing_and_says_what_it_would_ask(dry: str) -> None:
    bench = Bench(said=policy(memoryEvictDryRun=dry == "policy"), dry_run=dry == "agent")
    bench.ticks(8)
    assert bench.memory.written == []
    told = bench.told()
    assert {(one.result, one.reclaimed.freed_bytes) for one in told} == {("dry-run", 0)}
    assert len(told) == 2
    assert not any(map(audited, told))


def test_a_suspended_node_is_left_alone() -> None:
    bench = Bench()
    bench.agent.suspend("the file")
    bench.ticks(5)
    assert bench.memory.looked == []


def test_a_kernel_that_cannot_is_reported_once() -> None:
    bench = Bench()
    bench.memory.trouble = "cgroup v1 has no memory.reclaim"
    bench.ticks(8)
    (one,) = bench.told()
    assert (one.result, one.bound, one.reason) == ("failed", "lacks", bench.memory.trouble)
    assert bench.memory.looked == []


def test_a_rise_of_stalls_pauses_it_and_the_outcome_says_so() -> None:
    bench = Bench()
    bench.ticks(4)
    bench.memory.stalls = QUIET | {"ls_mem": 50}
    written = len(bench.memory.written)
    bench.ticks(2)
    assert len(bench.memory.written) == written
    assert bench.agent.evicting.reclaim_paused
    assert "paused: ls_mem 0 to 50 permille" in bench.told()[-1].reason


def test_a_pod_that_frees_little_rests() -> None:
    bench = Bench()
    bench.memory.yields_pct = 5
    bench.ticks(9)
    assert len(bench.memory.written) == 1
    (one,) = bench.told()
    assert "rests for 10 s" in one.reason
    bench.ticks(5)
    assert len(bench.memory.written) == 2


def test_a_kernel_that_refuses_is_told_and_ends_nothing() -> None:
    bench = Bench()
    bench.memory.fails = "EACCES (Permission denied)"
    bench.ticks(4)
    (one,) = bench.told()
    assert one.result == "failed"
    assert "EACCES" in one.reason


def test_a_write_that_blocks_holds_up_no_sample_and_no_second_step_begins() -> None:
    bench, goes_on, begun = Bench(threaded=True), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert goes_on.wait(60)

    bench.memory.before = block
    bench.ticks(1)
    while bench.reclaimer._running is not None and not bench.reclaimer._running.done():
        begun.wait(0.01)
    bench.ticks(1)
    assert begun.wait(60)
    bench.ticks(5)
    assert len(bench.memory.looked) == 2
    assert bench.memory.written == []
    running = bench.reclaimer._running
    goes_on.set()
    assert running is not None
    running.result(60)
    bench.agent.close()
    assert [one.reclaimed.freed_bytes for one in bench.told()] == [STEP]


def test_metrics_count_what_outcomes_say() -> None:
    bench, metrics = Bench(), AgentMetrics("reclaiming")
    bench.memory.yields_pct = 50
    bench.ticks(2)
    bench.agent.close()
    for one in bench.told():
        metrics.concluded(one)
    assert RECLAIMED.labels("reclaiming")._value.get() == STEP // 2
    assert RECLAIM_ASKED.labels("reclaiming")._value.get() == STEP
