"""The agent's core: which answers act, when the guard does, and what each act reports."""

import itertools
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.agents.node.kernel import Reading
from slacktide.agents.node.spool import MemorySpool
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.command import Hold, NodeCommand, command_id
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources, revision_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import DEFAULT, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET, UNLIMITED, decide, looser
from testbed.virtual.best_effort import VirtualBestEffort

BOOT = "000000000007-0badcafe"
SECOND_NS = 1_000_000_000
ON = policy_of(Colocation(), ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"))
CAPACITY = Resources(cpu_milli=4_000, mem_bytes=8 << 30)
FACTS = NodeFacts(name="node-1", capacity=CAPACITY, allocatable=CAPACITY)
PODS = [
    Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable"),
    Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort"),
]


@dataclass
class SteppedClock:
    """Time that moves when told."""

    now_ns: int = 10 * SECOND_NS

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ns // 1_000_000


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

    def __init__(self, spool: MemorySpool | None = None, kernel: MemoryKernel | None = None, **settings) -> None:
        self.clock = SteppedClock()
        self.kernel = kernel or MemoryKernel()
        self.spool = spool or MemorySpool()
        self.agent = NodeAgent(
            node="node-1",
            boot_id=BOOT,
            kernel=self.kernel,
            spool=self.spool,
            clock=self.clock,
            policy=ON,
            facts=FACTS,
            pods=PODS,
            settings=AgentSettings(**settings),
        )
        self.agent.start()

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ns += ms * 1_000_000

    def tick(self) -> NodeSample:
        self.pass_ms(1_000)
        return self.agent.take()

    def outcomes(self) -> list[NodeOutcome]:
        return [outcome for _, outcome in self.spool.pending(1_000)]

    def last(self) -> NodeOutcome:
        return self.outcomes()[-1]


def answer_to(sample: NodeSample, quota_us: int | None = None, *, policy: Policy = ON, **more) -> NodeCommand:
    """What an honest worker answers; with a quota, what another one might."""
    decision = decide(sample, FACTS, PODS, policy)
    limits = decision.limits if quota_us is None else Limits(be_cfs_quota_us=quota_us)
    answer = decision.answer if quota_us is None else "set"
    hold = Hold(
        id=command_id("node-1", sample.boot_id, sample.seq, RULE, TARGET, policy.version),
        rule=RULE,
        target=TARGET,
        limits=limits or Limits(be_cfs_quota_us=None),
        bound=decision.bound,
    )
    command = NodeCommand(
        id=command_id("node-1", sample.boot_id, sample.seq, "answer", "node-1", policy.version),
        node="node-1",
        boot_id=sample.boot_id,
        seq=sample.seq,
        observed_ms=sample.observed_ms,
        policy_version=policy.version,
        facts_revision=sample.facts_revision,
        pods_revision=sample.pods_revision,
        answer=answer,
        reason=decision.reason,
        hold=[hold] if answer == "set" else [],
    )
    return msgspec.structs.replace(command, **more)


ALLOWED = Limits(be_cfs_quota_us=(2_600 - 500 - 250) * 100)


def test_an_answer_in_time_is_applied_and_reported_with_its_age() -> None:
    bench = Bench()
    sample = bench.tick()
    bench.pass_ms(20)
    bench.agent.answered(answer_to(sample))

    assert bench.kernel.held == ALLOWED
    outcome = bench.last()
    assert (outcome.result, outcome.origin, outcome.age_ms) == ("applied", "stream", 20)
    assert (outcome.before, outcome.after) == (Limits(be_cfs_quota_us=None), ALLOWED)


def test_keep_changes_nothing_and_says_so() -> None:
    bench = Bench(kernel=MemoryKernel(held=ALLOWED))
    sample = bench.tick()
    answer = answer_to(sample)
    bench.agent.answered(answer)

    assert answer.answer == "keep"
    assert bench.kernel.holds == []
    assert (bench.last().result, bench.last().command_id) == ("unchanged", answer.id)


def test_a_tighter_answer_is_taken_and_a_looser_one_is_not() -> None:
    bench = Bench()
    bench.agent.answered(answer_to(bench.tick(), quota_us=10_000))
    assert bench.kernel.held == Limits(be_cfs_quota_us=10_000)

    bench.agent.answered(answer_to(bench.tick(), quota_us=300_000))
    assert bench.kernel.held == Limits(be_cfs_quota_us=50_000), "the agent's own: one step of a tenth of the node"
    assert (bench.last().origin, bench.last().reason) == ("guard", "disagrees")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"answer": "skipped", "reason": "no pods", "hold": []}, "skipped: no pods", id="skipped"),
        pytest.param({"policy_version": DEFAULT.version}, "other policy", id="other policy"),
        pytest.param({"hold": []}, "disagrees", id="a set without a limit"),
    ],
)
def test_an_answer_that_may_not_act_is_replaced_by_the_agents_own(more: dict, reason: str) -> None:
    bench = Bench()
    bench.agent.answered(answer_to(bench.tick(), **more))

    assert bench.kernel.held == ALLOWED
    assert (bench.last().result, bench.last().origin, bench.last().reason) == ("applied", "guard", reason)


def test_only_the_best_effort_target_of_a_known_rule_is_ever_held() -> None:
    bench = Bench()
    sample = bench.tick()
    honest = answer_to(sample).hold[0]
    bench.agent.answered(answer_to(sample, hold=[msgspec.structs.replace(honest, target="burstable")]))

    assert bench.last().origin == "guard"
    assert bench.kernel.holds == [ALLOWED]


@pytest.mark.parametrize(
    ("quota_us", "period_us"),
    [(10_000, 0), (10_000, 2_000_000), (500, 100_000), (0, 100_000), (-7, 100_000)],
)
def test_limits_that_no_kernel_holds_are_not_tried(quota_us: int, period_us: int) -> None:
    bench = Bench()
    sample = bench.tick()
    odd = Limits(be_cfs_quota_us=quota_us, be_cfs_period_us=period_us)
    hold = msgspec.structs.replace(answer_to(sample).hold[0], limits=odd)
    bench.agent.answered(answer_to(sample, hold=[hold]))

    assert bench.kernel.holds == [ALLOWED]
    assert bench.last().reason == "disagrees"


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


@pytest.mark.parametrize(
    "cpuset",
    [[], [0, 7], [-1], [1, 0], [0, 0], None],
    ids=["none", "an unknown one", "no CPU", "not ascending", "one twice", "not said"],
)
def test_cpus_that_the_node_has_not_are_not_tried(cpuset: list[int] | None) -> None:
    bench = with_cpus()
    bench.agent.answered(bound_to(bench.tick(), cpuset))

    assert bench.kernel.holds == [msgspec.structs.replace(ALLOWED, be_cpuset=[0, 1, 2, 3])]
    assert bench.last().reason == "disagrees"


def test_fewer_cpus_are_taken_and_given_back_on_exit() -> None:
    bench = with_cpus(restore_on_exit=True)
    bench.agent.answered(bound_to(bench.tick(), [1, 2]))
    held = bench.kernel.held.be_cpuset
    bench.agent.close()

    assert (held, bench.outcomes()[0].origin) == ([1, 2], "stream")
    assert bench.kernel.held == Limits(be_cfs_quota_us=None, be_cpuset=[0, 1, 2, 3])


def test_an_answer_does_not_name_its_own_act() -> None:
    bench = Bench()
    sample = bench.tick()
    claimed = msgspec.structs.replace(answer_to(sample).hold[0], id="made up")
    bench.agent.answered(answer_to(sample, hold=[claimed]))

    assert bench.last().command_id == answer_to(sample).hold[0].id


def test_a_skipped_answer_and_the_agent_skip_for_one_reason_said_once() -> None:
    bench = Bench()
    bench.kernel.cpu_known = False
    bench.agent.answered(answer_to(bench.tick()))

    assert (bench.last().result, bench.last().reason) == ("unchanged", "skipped: the node's CPU use is unknown")


def test_silence_past_the_deadline_puts_the_guard_in_charge() -> None:
    bench = Bench()
    bench.tick()
    bench.pass_ms(999)
    bench.agent.overdue()
    assert bench.kernel.holds == []

    bench.pass_ms(1)
    bench.agent.overdue()
    assert bench.kernel.held == ALLOWED
    assert (bench.last().origin, bench.last().reason) == ("guard", "no answer within 1000 ms")
    assert bench.agent.deadline_ns() is None


def test_the_guard_decides_on_taking_until_two_successive_answers_came_in_time() -> None:
    bench = Bench()
    bench.tick()
    bench.pass_ms(1_000)
    bench.agent.overdue()

    bench.kernel.ls_milli = 1_500
    first = bench.tick()
    assert bench.kernel.held == Limits(be_cfs_quota_us=85_000), "cut on taking, no answer awaited"
    bench.agent.answered(answer_to(first))
    assert bench.agent.in_charge == "guard"
    bench.agent.answered(answer_to(bench.tick()))
    assert bench.agent.in_charge == "stream"

    held = bench.kernel.held
    bench.kernel.ls_milli = 2_000
    sample = bench.tick()
    assert bench.kernel.held == held, "the stream's again: an answer is awaited"
    bench.agent.answered(answer_to(sample))
    assert bench.kernel.held == Limits(be_cfs_quota_us=35_000)


def test_a_gap_between_answers_starts_the_count_anew() -> None:
    bench = Bench()
    bench.tick()
    bench.pass_ms(1_000)
    bench.agent.overdue()
    bench.agent.answered(answer_to(bench.tick()))
    bench.tick()
    bench.agent.answered(answer_to(bench.tick()))

    assert bench.agent.in_charge == "guard"


def test_fast_sampling_does_not_hide_a_silent_stream() -> None:
    """The deadline counts from the oldest unanswered sample, not from the newest."""
    bench = Bench()
    for _ in range(4):
        bench.pass_ms(250)
        bench.agent.take()
    bench.pass_ms(250)
    bench.agent.overdue()

    assert bench.agent.in_charge == "guard"


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


def refusals(bench: Bench) -> list[tuple[str, int]]:
    bench.pass_ms(1_000)
    bench.agent.take()
    return [(outcome.reason, outcome.count) for outcome in bench.outcomes() if outcome.result == "refused"]


def test_late_repeated_older_foreign_and_unknown_answers_are_refused_by_name() -> None:
    bench = Bench()
    older = bench.tick()
    bench.pass_ms(300)
    sample = bench.agent.take()
    bench.agent.answered(answer_to(sample))
    held = list(bench.kernel.holds)
    bench.agent.answered(answer_to(sample))
    bench.agent.answered(answer_to(older))
    bench.agent.answered(answer_to(sample, boot_id="000000000006-0badcafe"))
    bench.agent.answered(answer_to(sample, node="node-2"))
    bench.agent.answered(answer_to(sample, seq=99))

    assert bench.kernel.holds == held
    assert refusals(bench) == [
        ("repeated", 1),
        ("older", 1),
        ("other boot", 1),
        ("foreign", 1),
        ("unknown sample", 1),
    ]


def test_what_comes_after_the_guard_acted_is_superseded() -> None:
    bench = Bench()
    sample = bench.tick()
    bench.pass_ms(1_200)
    bench.agent.answered(answer_to(sample))

    assert bench.agent.in_charge == "guard"
    assert [outcome.origin for outcome in bench.outcomes()] == ["guard"]
    assert refusals(bench) == [("superseded", 1)]


def test_refusals_of_one_cause_share_one_counted_outcome_a_second() -> None:
    bench = Bench()
    sample = bench.tick()
    bench.agent.answered(answer_to(sample))
    for _ in range(500):
        bench.agent.answered(answer_to(sample))

    assert refusals(bench) == [("repeated", 500)]


def test_an_answer_to_a_sample_of_before_the_last_act_does_not_undo_it() -> None:
    """Two samples are under way; the answer to the second was decided before the first one's cut."""
    bench = Bench(kernel=MemoryKernel(held=ALLOWED))
    first = bench.tick()
    bench.pass_ms(300)
    second = bench.agent.take()
    bench.agent.answered(answer_to(first, quota_us=20_000))
    assert answer_to(second).answer == "keep"
    bench.agent.answered(answer_to(second))

    assert bench.kernel.held == Limits(be_cfs_quota_us=60_000), "one step up from 20 ms, not back to what was"
    assert bench.last().reason == "disagrees"


def test_a_missing_pod_list_is_answered_by_a_keyframe_at_once_but_not_for_ever() -> None:
    bench = Bench()
    assert bench.tick().pods == PODS
    lean = bench.tick()
    assert lean.pods is None
    bench.agent.answered(answer_to(lean, answer="skipped", reason="no pods", hold=[]))
    assert bench.agent.keyframe_wanted

    bench.pass_ms(5)
    keyframe = bench.agent.take()
    assert (keyframe.pods, keyframe.facts, keyframe.interval_ms) == (PODS, FACTS, 5)
    bench.agent.answered(answer_to(keyframe, answer="skipped", reason="no pods", hold=[]))
    assert not bench.agent.keyframe_wanted


def test_pods_and_facts_travel_where_they_changed_and_every_minute() -> None:
    bench = Bench()
    carried = [(sample.pods is not None, sample.facts is not None) for sample in (bench.tick() for _ in range(61))]
    assert [seq for seq, what in enumerate(carried) if what == (True, True)] == [0, 60]

    bench.agent.inventory(FACTS, PODS[:1])
    changed = bench.tick()
    assert (changed.pods, changed.facts) == (PODS[:1], None)


def test_a_refused_write_is_a_failed_outcome_and_is_tried_again() -> None:
    bench = Bench(kernel=MemoryKernel(refuses="Invalid argument"))
    bench.agent.answered(answer_to(bench.tick()))
    assert bench.last().result == "failed"
    assert "Invalid argument" in bench.last().reason

    bench.kernel.refuses = ""
    bench.agent.answered(answer_to(bench.tick()))
    assert bench.last().result == "applied"


def test_a_dry_run_writes_nothing_and_reports_what_it_would() -> None:
    bench = Bench(dry_run=True)
    bench.agent.answered(answer_to(bench.tick()))

    assert bench.kernel.holds == []
    assert (bench.last().result, bench.last().bound) == ("dry-run", "target")


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


def test_restore_on_exit_lifts_the_limit_and_reports_it() -> None:
    bench = Bench(restore_on_exit=True)
    bench.agent.answered(answer_to(bench.tick()))
    bench.agent.close()

    assert bench.kernel.held == Limits(be_cfs_quota_us=None)
    assert (bench.last().rule, bench.last().origin, bench.last().result) == ("restore", "agent", "applied")


def test_a_wall_clock_that_jumps_starts_a_new_clock_epoch() -> None:
    bench = Bench()
    before = bench.tick()
    bench.clock.wall_ms = lambda: 1_800_000_000_000  # type: ignore[method-assign]
    after = bench.tick()

    assert (before.clock_epoch, after.clock_epoch) == (0, 1)
    assert after.observed_ms == 1_800_000_000_000
