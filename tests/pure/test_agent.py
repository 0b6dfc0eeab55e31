"""The agent's core: which answers act, when the guard does, and what each act reports."""

import itertools
import json
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.interfaces import Reading
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.command import Hold, NodeCommand, command_id
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources, revision_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import DEFAULT, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.suppress.cpu_suppress import AHEAD, RULE, TARGET, UNLIMITED, decide, looser
from testbed.lone_agent import SteppedClock, command_on, lone_agent
from testbed.stories import each_story, story
from testbed.virtual.best_effort import VirtualBestEffort

ON = policy_of(Colocation(), ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"))
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
PODS = [
    Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable"),
    Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort"),
]


@dataclass
class MemoryKernel:
    """Holds what it is told and shows the load it is given."""

    ls_milli: int = 500
    held: Limits = UNLIMITED
    holds: list[Limits] = field(default_factory=list)
    refuses: str = ""
    cpu_known: bool = True
    cpus: list[Processor] = field(default_factory=list)
    best_effort: VirtualBestEffort = field(
        default_factory=lambda: VirtualBestEffort(Machine(cpus=4, mem_bytes=CAPACITY.mem_bytes or 0))
    )

    def read(self, mono_ns: int) -> Reading:
        return Reading(
            interval_ms=1_000,
            use=NodeUse(cpu_milli=self.ls_milli + 1_250 if self.cpu_known else None, mem_bytes=1 << 30),
            pod_use=[
                PodUse(uid="ls", cpu_milli=self.ls_milli),
                PodUse(uid="be", cpu_milli=1_000, best_effort_group=True),
            ],
            limits=self.held,
            missing=[],
        )

    def processors(self) -> list[Processor]:
        return self.cpus

    def limits(self) -> Limits:
        return self.held

    def know(self, pods: list[Pod]) -> None:
        """Knobs are not what it is about."""

    def hold(self, limits: Limits) -> None:
        self.holds.append(limits)
        if self.refuses:
            raise CgroupError("kubepods/besteffort/cpu.max", self.refuses)
        self.held = limits


class Bench:
    """An agent on a bench: its kernel, clock and spool within reach."""

    def __init__(
        self,
        spool: MemorySpool | None = None,
        kernel: MemoryKernel | None = None,
        *,
        held_us: int | None = None,
        **settings,
    ) -> None:
        self.clock = SteppedClock()
        self.kernel = kernel or MemoryKernel(held=Limits(be_cfs_quota_us=held_us))
        self.spool = spool or MemorySpool()
        given = {"spool": self.spool, "settings": settings}
        self.agent = lone_agent(self.kernel, self.clock, FACTS, policy=ON, pods=PODS, **given)
        self.samples: list[NodeSample] = []

    def pass_ms(self, ms: int) -> None:
        self.clock.pass_ms(ms)

    def tick(self) -> NodeSample:
        self.pass_ms(1_000)
        return self.take()

    def take(self) -> NodeSample:
        self.samples.append(self.agent.take())
        return self.samples[-1]

    def answer(self, which: str = "honest", times: int = 1) -> None:
        """To the newest sample, as one of ``ANSWERS``."""
        for _ in range(times):
            self.agent.answered(answer_to(self.samples[-1], **ANSWERS[which]))

    def answer_older(self, quota_us: int | None = None) -> None:
        """To the sample before the newest."""
        self.agent.answered(answer_to(self.samples[-2], quota_us))

    def hold(self, **changes: object) -> None:
        """An answer whose hold is an honest one's but for this."""
        sample = self.samples[-1]
        hold = [msgspec.structs.replace(one, **changes) for one in answer_to(sample).hold]
        self.agent.answered(answer_to(sample, hold=hold))

    def name_itself(self, act: str) -> None:
        self.hold(id=act)

    def aim(self, target: str) -> None:
        self.hold(target=target)

    def quota(self, quota_us: int | str, period_us: int = 100_000) -> None:
        limits = Limits(be_cfs_quota_us=int(quota_us), be_cfs_period_us=period_us)
        self.agent.answered(answer_to(self.samples[-1], 1, hold=[hold_of(self.samples[-1], limits)]))

    def bind(self, cpus: str) -> None:
        """To CPUs as in ``[0,1]``; ``null``: it does not name any."""
        self.agent.answered(bound_to(self.samples[-1], json.loads(cpus)))

    def load(self, ls_milli: int) -> None:
        self.kernel.ls_milli = ls_milli

    def use_unknown(self) -> None:
        self.kernel.cpu_known = False

    def refuse(self, *why: str) -> None:
        self.kernel.refuses = " ".join(why)

    def suspend(self, *why: str) -> None:
        self.agent.suspend(" ".join(why))

    def concerns(self, outcome: NodeOutcome) -> bool:
        return True

    def state(self) -> dict[str, object]:
        found = {
            "held": (self.kernel.held.be_cfs_quota_us, self.kernel.held.be_cpuset),
            "writes": len(self.kernel.holds),
            "in charge": self.agent.in_charge,
            "deadline": self.agent.deadline_ns(),
            "keyframe wanted": self.agent.keyframe_wanted,
        }
        if self.samples:
            newest = self.samples[-1]
            carried = [name for name in ("pods", "facts") if getattr(newest, name) is not None]
            found |= {"the sample carries": carried, "its interval": newest.interval_ms}
            acts = {hold_of(newest, UNLIMITED).id: "its limit", answer_to(newest).id: "the answer"}
            found |= {"the last act is named by": acts.get(self.last().command_id) if self.outcomes() else None}
        return found

    def outcomes(self) -> list[NodeOutcome]:
        return [outcome for _, outcome in self.spool.pending(1_000)]

    def last(self) -> NodeOutcome:
        return self.outcomes()[-1]


def hold_of(sample: NodeSample, limits: Limits, policy: Policy = ON, bound: str = "") -> Hold:
    id_ = command_id("node-1", sample.boot_id, sample.seq, RULE, TARGET, policy.version)
    return Hold(id=id_, rule=RULE, target=TARGET, limits=limits, bound=bound)


def answer_to(sample: NodeSample, quota_us: int | None = None, *, policy: Policy = ON, **more) -> NodeCommand:
    """What an honest worker answers; with a quota, what another one might."""
    decision = decide(sample, FACTS, PODS, policy)
    limits = decision.limits if quota_us is None else Limits(be_cfs_quota_us=quota_us)
    answer = decision.answer if quota_us is None else "set"
    hold = hold_of(sample, limits or UNLIMITED, policy, decision.bound)
    command = command_on(sample, policy, answer=answer, reason=decision.reason, hold=[hold] if answer == "set" else [])
    return msgspec.structs.replace(command, **more)


NO_PODS: dict = {"answer": "skipped", "reason": "no pods", "hold": []}
ANSWERS: dict[str, dict] = {
    "honest": {},
    "no_pods": NO_PODS,
    "other_policy": {"policy_version": DEFAULT.version},
    "without_limit": {"hold": []},
    "other_boot": {"boot_id": "000000000006-0badcafe"},
    "foreign": {"node": "node-2"},
    "unknown": {"seq": 99},
}
ALLOWED = Limits(be_cfs_quota_us=(2_600 - 500 - 250) * 100)


@each_story("agent")
def test_what_becomes_of_the_limit(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    make = with_cpus if given.get("cpus") else Bench
    bench = make(**{name: value for name, value in given.items() if name != "cpus"})

    assert story(bench, steps) == snapshot


def with_cpus(**settings) -> Bench:
    """On a node whose best-effort pods can be bound to CPUs, and have all four."""
    cpus = [Processor(cpu=cpu, core=cpu, socket=0, numa_node=0) for cpu in range(4)]
    held = Limits(be_cfs_quota_us=None, be_cpuset=[0, 1, 2, 3])
    return Bench(kernel=MemoryKernel(cpus=cpus, held=held), **settings)


def bound_to(sample: NodeSample, cpuset: list[int] | None) -> NodeCommand:
    hold = answer_to(sample).hold[0]
    limits = msgspec.structs.replace(ALLOWED, be_cpuset=cpuset)
    return answer_to(sample, hold=[msgspec.structs.replace(hold, limits=limits)])


def test_a_sample_says_where_the_nodes_cpus_are() -> None:
    bench = with_cpus()
    sample = bench.tick()

    assert sample.facts is not None
    assert sample.facts.processors == bench.kernel.cpus
    assert sample.facts_revision == revision_of(sample.facts)


@pytest.mark.parametrize("guard", [False, True], ids=["the stream decides", "the guard decides"])
@given(
    steps=st.lists(
        st.tuples(st.integers(200, 1_000), st.integers(0, 4_000), st.integers(0, 300)), min_size=2, max_size=30
    )
)
def test_samples_at_odd_moments_neither_hasten_a_raise_nor_delay_a_cut(guard: bool, steps) -> None:  # noqa: FBT001
    """Samples ahead of their tick: a raise comes 900 ms after the last, a cut as soon as its sample is answered."""
    bench = Bench()
    bench.tick()
    bench.pass_ms(1_000)
    bench.agent.overdue()
    if not guard:
        for _ in range(2):
            bench.agent.answered(answer_to(bench.tick()))
    raised_ns: list[int] = []
    for gap_ms, ls_milli, answer_ms in steps:
        bench.pass_ms(gap_ms)
        before, bench.kernel.ls_milli = bench.kernel.held, ls_milli
        sample = bench.agent.take()
        if not guard:
            bench.pass_ms(answer_ms)
            bench.agent.answered(answer_to(sample))
        held = bench.kernel.held
        if looser(held, before):
            raised_ns.append(bench.clock.now_ns)
        wanted = decide(sample, FACTS, PODS, ON).limits
        assert wanted is not None
        if looser(before, wanted):
            assert held == wanted, "a cut waits for nothing"

    assert all(after - before >= 900_000_000 for before, after in itertools.pairwise(raised_ns))


def rose(bench: Bench, ls_milli: int = 1_500) -> NodeSample:
    """The service rises, and a sample ahead of its tick shows it."""
    bench.pass_ms(300)
    bench.load(ls_milli)
    bench.samples.append(bench.agent.take(early=True))
    return bench.samples[-1]


def test_a_cut_on_an_early_sample_waits_for_no_answer_and_the_answer_confirms_it() -> None:
    bench = Bench()
    bench.agent.answered(answer_to(bench.tick()))
    sample = rose(bench)
    wanted = decide(sample, FACTS, PODS, ON).limits
    assert bench.kernel.held == wanted
    assert (bench.last().result, bench.last().origin) == ("applied", "agent")
    assert bench.last().rule == AHEAD
    writes = len(bench.kernel.holds)
    bench.answer()
    assert (bench.last().result, bench.last().origin, len(bench.kernel.holds)) == ("unchanged", "stream", writes)
    assert bench.agent.in_charge == "stream"


def test_after_it_no_answer_to_an_older_sample_gives_back_what_was_cut() -> None:
    bench = Bench()
    bench.agent.answered(answer_to(bench.tick()))
    bench.tick()
    rose(bench)
    held = bench.kernel.held
    bench.answer_older()
    assert bench.kernel.held == held
    bench.pass_ms(1_000)
    bench.agent.take()
    assert "superseded" in {one.reason for one in bench.outcomes()}


def test_an_early_sample_raises_nothing_and_neither_does_a_tick_cut_before_its_answer() -> None:
    bench = Bench(held_us=50_000)
    bench.agent.answered(answer_to(bench.tick()))
    writes = len(bench.kernel.holds)
    rose(bench, ls_milli=0)
    assert len(bench.kernel.holds) == writes
    bench.answer()
    bench.load(1_500)
    held, _ = bench.kernel.held, bench.tick()
    assert bench.kernel.held == held
    bench.answer()
    assert looser(held, bench.kernel.held)


@given(
    steps=st.lists(
        st.tuples(st.integers(200, 900), st.integers(0, 4_000), st.booleans(), st.booleans()), min_size=2, max_size=30
    )
)
def test_whatever_is_cut_early_the_kernel_ends_at_what_the_newest_answered_sample_wants(steps) -> None:
    """Early or not, answered at once or after the next sample: an answer never loosens what its own sample wants."""
    bench = Bench()
    bench.agent.answered(answer_to(bench.tick()))
    late: list[NodeCommand] = []
    for gap_ms, ls_milli, early, prompt in steps:
        bench.pass_ms(gap_ms)
        bench.load(ls_milli)
        before = bench.kernel.held
        sample = bench.agent.take(early=early)
        assert not looser(bench.kernel.held, before), "no sample raises by itself"
        wanted = decide(sample, FACTS, PODS, ON).limits
        assert wanted is not None
        for command in late:
            bench.agent.answered(command)
        if early and looser(before, wanted):
            assert not looser(bench.kernel.held, wanted), "an older answer gives nothing back"
        late = [] if prompt else [answer_to(sample)]
        if prompt:
            bench.agent.answered(answer_to(sample))
            assert not looser(bench.kernel.held, wanted)


@pytest.mark.parametrize("kept", ["suspended", "a dry run"])
def test_where_nothing_may_be_written_an_early_sample_cuts_nothing(kept: str) -> None:
    bench = Bench()
    bench.agent.answered(answer_to(bench.tick()))
    if kept == "suspended":
        bench.agent.suspend("an operator")
    else:
        threshold = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_dry_run=True)
        bench.agent.policy(policy_of(Colocation(), threshold))
    writes = len(bench.kernel.holds)
    rose(bench)
    assert len(bench.kernel.holds) == writes


def test_pods_and_facts_travel_where_they_changed_and_every_minute() -> None:
    bench = Bench()
    carried = [(sample.pods is not None, sample.facts is not None) for sample in (bench.tick() for _ in range(61))]
    assert [seq for seq, what in enumerate(carried) if what == (True, True)] == [0, 60]

    bench.agent.inventory(FACTS, PODS[:1])
    changed = bench.tick()
    assert (changed.pods, changed.facts) == (PODS[:1], None)


def test_an_act_cut_short_by_the_agents_end_is_settled_at_its_next_start() -> None:
    class Stopped(MemoryKernel):
        def hold(self, limits: Limits) -> None:
            super().hold(limits)
            raise KeyboardInterrupt

    spool, kernel = MemorySpool(), Stopped()
    bench = Bench(spool=spool, kernel=kernel)
    with pytest.raises(KeyboardInterrupt):
        bench.agent.answered(answer_to(bench.tick()))
    assert bench.outcomes() == []

    again = Bench(spool=spool, kernel=kernel)
    assert (again.last().result, again.last().after) == ("applied", ALLOWED)
    assert "next start" in again.last().reason


def test_a_wall_clock_that_jumps_starts_a_new_clock_epoch() -> None:
    bench = Bench()
    before = bench.tick()
    bench.clock.wall_ms = lambda: 1_800_000_000_000  # type: ignore[method-assign]
    after = bench.tick()

    assert (before.clock_epoch, after.clock_epoch) == (0, 1)
    assert after.observed_ms == 1_800_000_000_000
