"""Evictions on a node: each victim is asked once, followed to its end, and never without credit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.evict.eviction_api import EvictionRequest, Reply
from slacktide.agents.node.spool import DiskSpool, MemorySpool, Spool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.credit import NO_CREDIT, EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import QUOTA_US_MIN
from testbed.policies import policy_from
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


BY_MEMORY = policy(memoryEvictThresholdPercent=50, memoryEvictLowerPercent=40)
NEVER = policy()


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now_ms = 10_000

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms


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


class Bench:
    """One node in memory whose guard decides at each sample, and its best-effort pods, 1 GiB each."""

    def __init__(
        self, pods: int = 3, *, credit: int = 100, folder: Path | None = None, clustered: bool = False, **settings
    ) -> None:
        self.clustered = clustered
        self.clock = Clock()
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB)
        self.pods = [SERVICE, *map(job, range(pods))]
        self.folder = folder
        self.spool: Spool = MemorySpool() if folder is None else DiskSpool(folder)
        self.settings = AgentSettings(**settings)
        self.boots = 0
        for pod in self.pods:
            self.run(pod)
        self.machine.pods["ls"].mem_bytes = 2 * GIB
        self.start()
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
        self.agent = NodeAgent(
            node="node-1",
            boot_id=self.boot_id,
            kernel=self.kernel,
            spool=self.spool,
            clock=self.clock,
            policy=policy,
            facts=FACTS,
            pods=self.pods,
            settings=self.settings,
            eviction_client=self.cluster,
        )
        self.agent.suspend(suspended)
        self.agent.start()

    def grant(self, granted: int, **more) -> None:
        """Evictions in all since the agent's start."""
        lease = EvictionCredit(
            node="node-1", boot_id=self.boot_id, epoch=3, number=self.clock.now_ms, granted=granted, ttl_ms=10**9
        )
        self.agent.credit(msgspec.structs.replace(lease, **more), self.clock.mono_ns())

    def tick(self, ms: int = SECOND_MS) -> NodeSample:
        """Time passes, a sample is taken, and nobody but the guard answers it."""
        self.clock.now_ms += ms
        self.machine.step(ms)
        sample = self.agent.take()
        if self.agent.in_charge == "stream":
            self.clock.now_ms += SECOND_MS
            self.machine.step(SECOND_MS)
            self.agent.overdue()
        return sample

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.tick()

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

    def said(self) -> list[tuple[str, str, str]]:
        """Of each outcome about a pod: whose, what came of it, its bound."""
        return [(one.target, one.result, one.bound) for one in self.of_pods()]

    def begun(self) -> list[NodeOutcome]:
        return [one for one in self.of_pods() if one.spent is not None and one.result == "applied"]

    def bounds(self) -> list[str]:
        """Of all steps of holding victims back."""
        steps = {"throttled", "frozen", "thawed", "lifted"}
        return [one.bound for _, one in self.spool.pending(10_000) if one.rule == RULE and one.bound in steps]


def of(bench: Bench, uid: str) -> list[NodeOutcome]:
    return [one for one in bench.of_pods() if one.target == f"pod/{uid}"]


def test_a_victim_is_asked_and_followed_to_its_end() -> None:
    bench = Bench(1)
    bench.machine.pods["ls"].mem_bytes = 4 * GIB
    bench.machine.pods["be-0"].linger_ms = 1_500
    bench.ticks(4)
    begin, end = of(bench, "be-0")

    assert (begin.rule, begin.origin, begin.result, begin.bound) == (RULE, "guard", "applied", "formula")
    assert "SIGTERM, and SIGKILL after 30000 ms" in begin.reason
    assert (begin.pod, begin.spent) == (PodName(namespace="batch", name="job-0"), Spent(evictions=1, epoch=3))
    assert begin.terms["used_pct"] == 62
    assert (end.rule, end.result, end.bound, end.spent) == (RULE, "applied", "ended", None)
    assert end.reason == "ended by itself after 2000 ms", "as seen at the next sample"
    assert (end.terms, end.age_ms) == ({"grace_ms": 30_000, "after_ms": 2_000}, 3_000)
    assert "be-0" not in bench.machine.pods


def test_the_next_decision_knows_who_is_dying_and_how_long_ago_it_was() -> None:
    bench = Bench()
    bench.machine.pods["be-0"].linger_ms = 1_500
    samples = [bench.tick() for _ in range(6)]

    assert [sample.evict.since_mem_ms for sample in samples] == [None, 1_000, 2_000, 3_000, 4_000, 5_000]
    assert [sample.evict.since_cpu_ms for sample in samples] == [1_000, 3_000, 4_000, 5_000, 6_000, 7_000]
    assert [sample.evict.dying for sample in samples] == [[], ["be-0"], [], [], [], []]
    assert len(bench.begun()) == 2, "2 of 3 GiB were enough, and nobody went after them"


def test_one_that_does_not_listen_is_killed_when_its_grace_is_over() -> None:
    bench = Bench(1, grace_ms_max=4_000)
    bench.machine.pods["ls"].mem_bytes = 4 * GIB
    bench.machine.pods["be-0"].linger_ms = None
    bench.ticks(4)
    assert "be-0" in bench.machine.pods
    bench.ticks(2)

    assert "be-0" not in bench.machine.pods
    assert [(one.bound, one.reason) for one in of(bench, "be-0")[1:]] == [("killed", "killed after 4000 ms")]


def test_a_pod_may_ask_for_less_grace_than_there_is_at_most() -> None:
    bench = Bench(0)
    bench.pods.append(job(0, grace_s=2))
    bench.run(bench.pods[-1], 4 * GIB)
    bench.machine.pods["be-0"].linger_ms = None
    bench.agent.inventory(FACTS, bench.pods)
    bench.ticks(4)

    assert of(bench, "be-0")[-1].reason == "killed after 2000 ms"


class Undying(VirtualBestEffort):
    """Their processes wait for the kernel, for ever."""

    def terminate(self, uid: str) -> None:
        self._pod(uid)

    kill = terminate


def test_who_cannot_be_ended_is_said_once_and_holds_nobody_up() -> None:
    bench = Bench(2, grace_ms_max=2_000)
    bench.machine.pods["be-0"].mem_bytes = 2 * GIB
    bench.kernel.best_effort = bench.agent._evictor._victims._best_effort = Undying(bench.machine)
    bench.ticks(12)
    assert [one.pod.name for one in bench.begun() if one.pod] == ["job-0"], "it counts as released"
    bench.ticks(6)
    stuck = [one for one in bench.of_pods() if one.bound == "stuck"]

    assert [one.target for one in stuck][:1] == ["pod/be-0"]
    assert stuck[0].reason == "1 processes are left after SIGKILL: they wait in the kernel, or are being restarted"
    assert [one.pod.name for one in bench.begun() if one.pod] == ["job-0", "job-1"]
    assert "be-0" in bench.tick().evict.stuck
    bench.machine.remove_pod("be-0")
    bench.ticks(1)
    assert of(bench, "be-0")[-1].bound == "killed"
    assert "be-0" not in bench.tick().evict.stuck


def refused(bench: Bench) -> list[tuple[str, int]]:
    return [(one.reason, one.count) for one in bench.of_pods() if one.result == "refused"]


def test_without_credit_nobody_goes_and_the_governor_hears_of_it_once_a_second() -> None:
    bench = Bench(credit=0)
    bench.tick()
    assert refused(bench) == [(NO_CREDIT, 1)], "at once"
    for _ in range(8):
        bench.tick(250)

    assert refused(bench) == [(NO_CREDIT, 1), (NO_CREDIT, 8), (NO_CREDIT, 8)], "two victims, four times a second"
    assert bench.of_pods()[0].spent == Spent(evictions=0, epoch=0)
    assert len(bench.machine.pods) == 4


def test_victims_without_credit_are_throttled_then_frozen_one_a_second_and_let_go_in_reverse() -> None:
    bench = Bench(credit=0)
    bench.tick()
    assert bench.kernel.limits().be_cfs_quota_us == QUOTA_US_MIN
    assert (bench.bounds(), bench.agent.evicting.throttled) == (["throttled"], True)
    bench.ticks(3)
    assert bench.best_effort.frozen() == frozenset(), "little CPU may be enough"
    frozen = []
    for _ in range(3):
        bench.tick()
        frozen.append(sorted(bench.best_effort.frozen()))
    assert frozen == [["be-0"], ["be-0", "be-1"], ["be-0", "be-1"]], "two are wanted, of three"
    bench.machine.pods["ls"].mem_bytes = 0
    bench.ticks(2)
    assert bench.agent.evicting.frozen == 2, "who was wanted a moment ago may be wanted again"
    bench.ticks(1)

    assert bench.best_effort.frozen() == frozenset()
    assert [one.target for one in bench.of_pods() if one.bound == "thawed"] == ["pod/be-1", "pod/be-0"]
    assert bench.bounds()[-3:] == ["thawed", "thawed", "lifted"]
    held_us = bench.kernel.limits().be_cfs_quota_us
    assert held_us is None or held_us > QUOTA_US_MIN
    assert bench.spool.interrupted() == []


def test_what_is_decided_meanwhile_holds_no_more_than_the_throttle() -> None:
    bench = Bench(credit=0)
    bench.ticks(4)
    limits = [one for _, one in bench.spool.pending(1_000) if one.rule == "cpu_suppress"]

    assert [one.bound for one in limits[1:]] == ["throttled"] * 3
    assert {one.after.be_cfs_quota_us for one in limits[1:] if one.after} == {QUOTA_US_MIN}


def test_when_credit_comes_the_frozen_are_evicted_and_the_others_let_go() -> None:
    bench = Bench(credit=0)
    bench.ticks(7)
    assert bench.agent.evicting.frozen == 2
    bench.grant(1)
    bench.tick()

    assert [one.target for one in bench.begun()] == ["pod/be-0"]
    assert bench.agent.evicting.frozen == 1, "there is none for the other"
    bench.grant(2)
    bench.ticks(6)
    assert bench.best_effort.frozen() == frozenset()
    assert bench.agent.evicting.throttled is False
    assert sorted(one.target for one in bench.begun()) == ["pod/be-0", "pod/be-1"]
    assert bench.spool.interrupted() == []


def test_a_policy_that_evicts_nobody_any_more_lets_all_go() -> None:
    bench = Bench(credit=0)
    bench.ticks(7)
    bench.agent.policy(NEVER)
    bench.ticks(3)

    assert (bench.best_effort.frozen(), bench.agent.evicting.throttled) == (frozenset(), False)


def test_a_spared_namespace_keeps_its_pods() -> None:
    bench = Bench(credit=0)
    bench.grant(9, spared_namespaces=["batch"])
    bench.tick()

    assert (bench.begun(), refused(bench)) == ([], [(NO_CREDIT, 1)])


def test_an_agent_that_stops_lets_all_go() -> None:
    bench = Bench(credit=0)
    bench.ticks(6)
    assert bench.best_effort.frozen()
    bench.agent.close()

    assert bench.best_effort.frozen() == frozenset()
    assert bench.bounds()[-2:] == ["thawed", "lifted"]
    assert bench.kernel.limits().be_cfs_quota_us != QUOTA_US_MIN
    assert bench.spool.interrupted() == []


def test_a_new_agent_lets_those_go_whom_the_last_one_froze_and_nobody_elses() -> None:
    bench = Bench(credit=0)
    bench.best_effort.freeze("be-2")
    bench.ticks(7)
    assert bench.best_effort.frozen() == {"be-0", "be-1", "be-2"}
    bench.start(NEVER)

    assert bench.best_effort.frozen() == {"be-2"}
    assert [one.reason for one in bench.of_pods() if one.bound == "thawed"] == ["the agent starts"] * 2
    assert bench.spool.interrupted() == []


def test_somebody_elses_frozen_pod_is_left_alone() -> None:
    bench = Bench(credit=0)
    bench.best_effort.freeze("be-0")
    bench.ticks(9)
    bench.machine.pods["ls"].mem_bytes = 0
    bench.ticks(5)

    assert bench.best_effort.frozen() == {"be-0"}
    assert [one.reason for one in of(bench, "be-0") if one.bound == "frozen"] == ["another process has frozen it"]
    assert [one.bound for one in of(bench, "be-1") if one.bound in {"frozen", "thawed"}] == ["frozen", "thawed"]


def test_where_nothing_can_be_frozen_it_is_said_once_and_the_throttle_stays() -> None:
    bench = Bench(credit=0)
    bench.best_effort.freeze_trouble = "the freezer controller is not mounted"
    bench.ticks(9)
    failed = [(one.bound, one.reason) for one in bench.of_pods() if one.result == "failed"]

    assert failed == [("frozen", "the freezer controller is not mounted")]
    assert bench.kernel.limits().be_cfs_quota_us == QUOTA_US_MIN
    assert bench.agent.evicting.freezes is False


def test_a_dry_run_says_whom_it_would_evict_and_does_nothing() -> None:
    bench = Bench(dry_run=True)
    bench.ticks(2)

    assert [one.result for one in bench.of_pods()] == ["dry-run"] * 4
    assert (len(bench.machine.pods), bench.agent.credit_account.spent) == (4, 0)
    assert bench.best_effort.frozen() == frozenset()


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


def lived(bench: Bench, steps: int, ticks: int) -> bool:
    """Let time pass with a crash in it, and a new agent after it; whether there was none."""
    whole = Crashing(bench, steps)
    for tick in range(ticks):
        try:
            bench.tick()
        except CrashError:
            bench.spool = bench.reopened()
            bench.start()
            bench.grant(100)
            bench.ticks(ticks - tick)
            return False
    assert whole.left > 0
    return True


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_a_crash_at_any_step_evicts_nobody_twice_and_tells_of_each_once(tmp_path: Path, *, on_disk: bool) -> None:
    crashes = 0
    while True:
        bench = Bench(folder=tmp_path / str(crashes) if on_disk else None, grace_ms_max=2_000)
        bench.machine.pods["be-1"].linger_ms = None
        if lived(bench, crashes + 1, ticks=12):
            break
        crashes += 1
        gone = {"be-0", "be-1", "be-2"} - bench.machine.pods.keys()
        begun = [one.target for one in bench.begun()]
        ends = [one.target for one in bench.of_pods() if one.bound in {"ended", "killed"}]

        assert len(gone) == 2, "as many as without a crash"
        assert sorted(begun) == sorted(ends) == [f"pod/{uid}" for uid in sorted(gone)], f"at step {crashes}"
        assert bench.spool.interrupted() == []
    assert crashes > 20


def test_through_the_api_a_crash_at_any_step_evicts_as_many_and_tells_of_each_once() -> None:
    """Who is gone before the next agent asks once more has been evicted, for all that this one knows, by somebody."""
    crashes = 0
    while True:
        bench = Bench(clustered=True)
        if lived(bench, crashes + 1, ticks=12):
            break
        crashes += 1
        gone = {"be-0", "be-1", "be-2"} - bench.machine.pods.keys()
        begun = [one.target for one in bench.of_pods() if one.spent and one.result in {"applied", "unchanged"}]
        ends = [one.target for one in bench.of_pods() if one.bound == "ended"]

        assert len(gone) == 2, f"as many as without a crash: at step {crashes}"
        assert sorted(begun) == sorted(ends) == [f"pod/{uid}" for uid in sorted(gone)], f"at step {crashes}"
        assert bench.spool.interrupted() == []
    assert crashes > 20


def test_a_crash_at_any_step_leaves_nobody_frozen() -> None:
    crashes = 0
    while True:
        bench = Bench(credit=0)
        if lived(bench, crashes + 1, ticks=8):
            break
        crashes += 1
        bench.machine.pods["ls"].mem_bytes = 0
        bench.ticks(6)

        assert bench.best_effort.frozen() == frozenset(), f"at step {crashes}"
        assert bench.spool.interrupted() == []
        frozen, thawed = (
            [one.target for one in bench.of_pods() if one.bound == bound] for bound in ("frozen", "thawed")
        )
        assert set(frozen) <= set(thawed)
    assert crashes > 20
