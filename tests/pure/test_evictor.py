"""Evictions on a node: each victim is asked once, followed to its end, and never without credit."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.evict.eviction_api import EvictionRequest, Reply
from slacktide.agents.node.interfaces import Spool
from slacktide.agents.node.spool import DiskSpool, MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.evict.node_evict import Eviction
from testbed.lone_agent import SteppedClock, lone_agent
from testbed.policies import policy_from
from testbed.stories import each_story, story
from testbed.virtual.best_effort import VirtualBestEffort
from testbed.virtual.kernel import VirtualKernel

GIB = 1 << 30
SECOND_MS = 1_000
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 * GIB)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
SERVICE = Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable")
RULE = "BEMemoryEvict"


def job(number: int, **more) -> Pod:
    return Pod(uid=f"be-{number}", namespace="batch", name=f"job-{number}", qos_label="BE", priority=5_000, **more)


def policy(**said: int | bool) -> Policy:
    return policy_from(
        colocation={"enable": True},
        threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", **said}},
    )


SHORT_OF_MEMORY = {"memoryEvictThresholdPercent": 50, "memoryEvictLowerPercent": 40}
BY_MEMORY = policy(**SHORT_OF_MEMORY)
NEVER = policy()


class Cluster:
    """An API server that grants every eviction of a pod that it knows, and a kubelet that ends it at once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.granted: list[str] = []
        self._waiting: list[Reply] = []

    def ask(self, request: EvictionRequest) -> None:
        there = request.uid in self.machine.pods
        if there:
            self.granted.append(request.uid)
            self.machine.terminate_pod(request.uid)
        self._waiting.append(Reply(uid=request.uid, verdict="evicted" if there else "gone", message="so"))

    def replies(self) -> list[Reply]:
        replies, self._waiting = self._waiting, []
        return replies

    def report(self, outcome: NodeOutcome) -> None:
        """Nobody looks at Events here."""


class Undying(VirtualBestEffort):
    """Their processes wait for the kernel, for ever."""

    def terminate(self, uid: str) -> None:
        self._pod(uid)

    kill = terminate


class Bench:
    """One node in memory whose guard decides at each sample, and its best-effort pods, 1 GiB each."""

    def __init__(
        self,
        pods: int = 3,
        *,
        credit: int = 100,
        folder: Path | None = None,
        clustered: bool = False,
        notice_s: int = 0,
        **settings,
    ) -> None:
        self.clustered = clustered
        self.taken: NodeSample | None = None
        self.clock = SteppedClock()
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB)
        self.pods = [SERVICE, *map(job, range(pods))]
        self.folder = folder
        self.spool: Spool = MemorySpool() if folder is None else DiskSpool(folder)
        self.settings = settings
        self.boots = 0
        for pod in self.pods:
            self.run(pod)
        self.machine.pods["ls"].mem_bytes = 2 * GIB
        self.start()
        if notice_s:
            self.agent.policy(policy(**SHORT_OF_MEMORY, evictNoticeSeconds=notice_s))
        if credit:
            self.grant(credit)

    @property
    def best_effort(self):
        return self.kernel.best_effort

    def run(self, pod: Pod, mem_bytes: int = GIB) -> None:
        self.machine.add_pod(pod.uid, pod.kube_qos)
        self.machine.pods[pod.uid].mem_bytes = mem_bytes
        self.machine.pods[pod.uid].demand_milli = 500

    def start(self, policy: Policy = BY_MEMORY, *, suspended: str = "") -> None:
        """A new process; the node and the spool are as the last one left them."""
        self.boots += 1
        self.boot_id = f"{self.boots:012d}-0badcafe"
        self.kernel = VirtualKernel(self.machine)
        self.cluster = Cluster(self.machine) if self.clustered else None
        self.agent = lone_agent(
            self.kernel,
            self.clock,
            FACTS,
            spool=self.spool,
            boot_id=self.boot_id,
            policy=policy,
            pods=self.pods,
            settings=self.settings,
            suspended=suspended,
            eviction_client=self.cluster,
        )

    def grant(self, granted: int, **more) -> None:
        """Evictions in all since the agent's start."""
        lease = EvictionCredit(
            node="node-1", boot_id=self.boot_id, epoch=3, number=self.clock.wall_ms(), granted=granted, ttl_ms=10**9
        )
        self.agent.credit(msgspec.structs.replace(lease, **more), self.clock.mono_ns())

    def tick(self, ms: int = SECOND_MS) -> NodeSample:
        """Time passes, a sample is taken, and nobody but the guard answers it."""
        self.clock.pass_ms(ms)
        self.machine.step(ms)
        self.taken = self.agent.take()
        if self.agent.in_charge == "stream":
            self.clock.pass_ms(SECOND_MS)
            self.machine.step(SECOND_MS)
            self.agent.overdue()
        return self.taken

    def ticks(self, count: int, ms: int = SECOND_MS) -> None:
        for _ in range(count):
            self.tick(ms)

    def use(self, uid: str, gib: int) -> None:
        self.machine.pods[uid].mem_bytes = gib * GIB

    def linger(self, uid: str, ms: int | str) -> None:
        """How long it takes to end by itself; ``forever``: it does not listen."""
        self.machine.pods[uid].linger_ms = None if ms == "forever" else int(ms)

    def asks_for_grace(self, number: int, seconds: int) -> None:
        """A pod that does comes."""
        self.pods.append(job(number, grace_s=seconds))
        self.run(self.pods[-1], 4 * GIB)
        self.agent.inventory(FACTS, self.pods)

    def undying(self) -> None:
        self.kernel.best_effort = self.agent._evictor._victims._best_effort = Undying(self.machine)

    def no_freezer(self) -> None:
        self.best_effort.freeze_trouble = "the freezer controller is not mounted"

    def spare(self, namespace: str) -> None:
        self.grant(9, spared_namespaces=[namespace])

    def evict_nobody(self) -> None:
        self.agent.policy(NEVER)

    def restart_and_evict_nobody(self) -> None:
        self.start(NEVER)

    def suspend(self, *why: str) -> None:
        self.agent.suspend(" ".join(why))

    def concerns(self, outcome: NodeOutcome) -> bool:
        return outcome.pod is not None or outcome.bound in {"throttled", "lifted"}

    def state(self) -> dict[str, object]:
        """Before the first sample nothing is known of dying pods."""
        evict = self.taken and self.taken.evict
        return {
            "pods": sorted(self.machine.pods),
            "frozen": sorted(self.best_effort.frozen()),
            "throttled": self.agent.evicting.throttled,
            "can freeze": self.agent.evicting.freezes,
            "best-effort quota": self.kernel.limits().be_cfs_quota_us,
            "credit spent": self.agent.credit_account.spent,
            "since an eviction by memory, by CPU": evict and (evict.since_mem_ms, evict.since_cpu_ms),
            "dying": evict and evict.dying,
            "stuck": evict and evict.stuck,
            "begun, not concluded": len(self.spool.interrupted()),
        }

    def reopened(self) -> Spool:
        """The spool as the next process finds it."""
        if self.folder is not None:
            self.spool.close()
            return DiskSpool(self.folder)
        for name in ("intend", "conclude"):
            delattr(self.spool, name)
        return self.spool

    def of_pods(self) -> list[NodeOutcome]:
        return [one for _, one in self.spool.pending(10_000) if one.pod is not None]

    def bounds(self) -> list[str]:
        """Of all steps of holding victims back."""
        steps = {"throttled", "frozen", "thawed", "lifted"}
        return [one.bound for _, one in self.spool.pending(10_000) if one.rule == RULE and one.bound in steps]

    def begun(self) -> list[NodeOutcome]:
        return [one for one in self.of_pods() if one.spent is not None and one.result == "applied"]


def of(bench: Bench, uid: str) -> list[NodeOutcome]:
    return [one for one in bench.of_pods() if one.target == f"pod/{uid}"]


@each_story("evictor")
def test_what_becomes_of_victims(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Bench(**given), steps) == snapshot


def test_only_best_effort_pods_end_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(0)
    bench.tick()
    taken = bench.agent._protocol.newest
    assert taken is not None
    asked = Eviction(pod=SERVICE, rule=RULE, bound="formula", terms={})
    bench.agent._evictor.carry_out([asked], taken, "stream", "")
    bench.tick()

    assert "ls" in bench.machine.pods
    assert bench.agent.credit_account.spent == 0
    (outcome,) = of(bench, "ls")
    assert outcome.result == "refused"
    assert outcome.reason.endswith("not the cgroup of a best-effort pod: never changed")


class CrashError(Exception):
    """The agent's process is gone."""


class Crashing:
    """Lets the n-th step of acts be the agent's last, wherever it is."""

    def __init__(self, bench: Bench, steps: int) -> None:
        self.left = steps
        acts = [(bench.spool, name) for name in ("intend", "conclude")]
        acts += [(bench.best_effort, name) for name in ("terminate", "kill", "freeze", "thaw")]
        acts += [(bench.agent.credit_account, name) for name in ("spend", "reserve", "settle")]
        acts += [(bench.cluster, name) for name in ("ask", "report") if bench.cluster is not None]
        for owner, name in acts:
            setattr(owner, name, self._stepping(getattr(owner, name)))

    def _stepping(self, act):
        def stepping(*given, **named):
            self._step()
            done = act(*given, **named)
            self._step()
            return done

        return stepping

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise CrashError


def crashed(make: Callable[[int], Bench], ticks: int) -> Iterator[tuple[int, Bench]]:
    """Benches of which each lived through a crash at a later step, and a new agent after it; more than twenty."""
    for steps in itertools.count(1):
        bench = make(steps)
        whole = Crashing(bench, steps)
        for tick in range(ticks):
            try:
                bench.tick()
            except CrashError:
                bench.spool = bench.reopened()
                bench.start()
                bench.grant(100)
                bench.ticks(ticks - tick)
                yield steps, bench
                break
        else:
            assert whole.left > 0
            assert steps > 21
            return


@pytest.mark.parametrize("way", ["in memory", "on disk", "through the API"])
def test_a_crash_at_any_step_evicts_nobody_twice_and_tells_of_each_once(tmp_path: Path, way: str) -> None:
    """Who is gone before the next agent asks the API once more has been evicted by somebody, for all that it knows."""

    def make(steps: int) -> Bench:
        if way == "through the API":
            return Bench(clustered=True)
        bench = Bench(folder=tmp_path / str(steps) if way == "on disk" else None, grace_ms_max=2_000)
        bench.machine.pods["be-1"].linger_ms = None
        return bench

    results = {"applied", "unchanged"} if way == "through the API" else {"applied"}
    for steps, bench in crashed(make, 12):
        gone = {"be-0", "be-1", "be-2"} - bench.machine.pods.keys()
        begun = [one.target for one in bench.of_pods() if one.spent and one.result in results]
        ends = [one.target for one in bench.of_pods() if one.bound in {"ended", "killed"}]

        assert bench.spool.interrupted() == [], f"at step {steps}"
        assert len(gone) == 2, f"as many as without a crash: at step {steps}"
        assert sorted(begun) == sorted(ends) == [f"pod/{uid}" for uid in sorted(gone)], f"at step {steps}"


def test_a_dry_run_thaws_the_pods_that_the_agent_before_it_froze() -> None:
    bench = Bench(credit=0)
    bench.ticks(6)
    assert bench.best_effort.frozen()
    bench.settings = {"dry_run": True}
    bench.start()
    bench.ticks(6)
    assert bench.best_effort.frozen() == frozenset()
    assert len(bench.machine.pods) == 4, "and evicts nobody"


def test_a_crash_at_any_step_leaves_nobody_frozen() -> None:
    for steps, bench in crashed(lambda _: Bench(credit=0), 8):
        bench.use("ls", 0)
        bench.ticks(6)
        outcomes = bench.of_pods()
        frozen, thawed = ({one.target for one in outcomes if one.bound == bound} for bound in ("frozen", "thawed"))

        assert bench.spool.interrupted() == [], f"at step {steps}"
        assert bench.best_effort.frozen() == frozenset(), f"at step {steps}"
        assert frozen <= thawed
