"""Laws of the gate that stops best-effort pods while others wait."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.ahead.ahead import LookedGate
from slacktide.schemas.sample import LOOKS_MAX, PAUSE_MS_MAX, PAUSE_MS_MIN, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import LINE_PERMILLE_MIN, PROOF_LOOKS, Step, fold, step

CAPACITY = 2_000
SPAN_US = 100_000


def look(stall: int = 0, *, be_us: int = 80_000, **more) -> PressureLook:
    """Latency-sensitive pods run for 100 ms of CPU time; ``stall`` is in permille of that."""
    fields = {"span_us": SPAN_US, "ls_cpu_us": 100_000, "be_cpu_us": be_us, "idle_us": 0, "cpu_stall_us": stall * 100}
    return PressureLook(**fields | more)


def cut(stall: int = 2_000, **state) -> Step:
    found = step(PressureGate(**state), look(stall), CAPACITY)
    assert found.bound == "cut"
    return found


def proved(gate: PressureGate, stall: int) -> Step:
    """As the kernel answers a cut: best-effort pods have all but stopped."""
    return fold(LsPressure(gate=gate, looks=[look(stall, be_us=2_000)] * PROOF_LOOKS), CAPACITY)


gates = st.builds(
    PressureGate,
    base_permille=st.integers(0, 5_000),
    closed=st.booleans(),
    closed_ms=st.integers(0, PAUSE_MS_MAX),
    proof_looks=st.integers(0, 1),
    cut_permille=st.integers(0, 5_000),
    be_permille=st.integers(20, 1_000),
    pause_ms=st.integers(PAUSE_MS_MIN, PAUSE_MS_MAX),
    wait_ms=st.integers(0, PAUSE_MS_MAX),
)
looks = st.builds(
    PressureLook,
    span_us=st.integers(0, 300_000),
    ls_cpu_us=st.integers(0, 600_000),
    be_cpu_us=st.integers(0, 600_000),
    idle_us=st.integers(0, 600_000),
    cpu_stall_us=st.integers(0, 600_000),
    mem_stall_us=st.integers(0, 600_000),
    throttled_us=st.integers(0, 600_000),
)


@given(gates, st.lists(looks, max_size=40), st.integers(0, 40))
def test_looks_in_two_samples_come_to_what_they_do_in_one(
    gate: PressureGate, taken: list[PressureLook], at: int
) -> None:
    first = fold(LsPressure(gate=gate, looks=taken[:at]), CAPACITY)
    rest = fold(LsPressure(gate=first.gate, looks=taken[at:]), CAPACITY)
    assert rest.gate == fold(LsPressure(gate=gate, looks=taken), CAPACITY).gate


@given(gates, st.lists(looks, min_size=1, max_size=LOOKS_MAX + 20))
def test_what_a_sample_carries_gives_a_worker_the_agents_gate(gate: PressureGate, taken: list[PressureLook]) -> None:
    agent = LookedGate(gate)
    turns = [agent.looked(one, CAPACITY) for one in taken]
    sample = msgspec.json.decode(msgspec.json.encode(agent.sampled()), type=LsPressure)

    assert fold(sample, CAPACITY).gate == agent.gate
    assert (sum(turns) % 2 == 1) == (agent.gate.closed != gate.closed)
    assert agent.sampled() == LsPressure(gate=agent.gate, looks=[])


@given(gates, st.lists(looks, max_size=60))
def test_pause_and_wait_stay_within_their_bounds(gate: PressureGate, taken: list[PressureLook]) -> None:
    for one in taken:
        gate = step(gate, one, CAPACITY).gate
        assert PAUSE_MS_MIN <= gate.pause_ms <= PAUSE_MS_MAX
        assert 0 <= gate.wait_ms <= PAUSE_MS_MAX
        assert gate.base_permille >= 0
        msgspec.convert(msgspec.to_builtins(gate), PressureGate)


@given(gates, looks, st.integers(0, 100_000))
def test_more_stall_never_keeps_an_open_gate_from_closing(gate: PressureGate, one: PressureLook, more: int) -> None:
    open_gate = msgspec.structs.replace(gate, closed=False)
    worse = msgspec.structs.replace(one, cpu_stall_us=one.cpu_stall_us + more)
    if step(open_gate, one, CAPACITY).gate.closed:
        assert step(open_gate, worse, CAPACITY).gate.closed


@given(gates, looks, st.integers(1, 100_000))
def test_more_throttling_of_their_own_never_closes_it(gate: PressureGate, one: PressureLook, more: int) -> None:
    open_gate = msgspec.structs.replace(gate, closed=False)
    own = msgspec.structs.replace(one, throttled_us=one.throttled_us + more)
    if step(open_gate, own, CAPACITY).gate.closed:
        assert step(open_gate, one, CAPACITY).gate.closed


@given(st.integers(LINE_PERMILLE_MIN + 1, 10_000), st.integers(0, 10_000))
def test_one_look_cuts_and_giving_back_takes_the_proof(stall: int, after: int) -> None:
    closed = cut(stall)
    held = step(closed.gate, look(after, be_us=2_000), CAPACITY)
    assert (held.bound, held.gate.closed) == ("held", True)
    assert not step(held.gate, look(after, be_us=2_000), CAPACITY).gate.closed


def test_a_cut_that_helped_is_given_back_and_the_next_may_come_at_once() -> None:
    opened = proved(cut(2_000, pause_ms=4_000).gate, 1_333)
    assert (opened.bound, opened.gate.pause_ms, opened.gate.wait_ms) == ("helped", PAUSE_MS_MIN, 0)
    assert step(opened.gate, look(2_000), CAPACITY).bound == "cut"


def test_where_stall_did_not_fall_best_effort_was_not_the_cause_and_the_pause_doubles_to_8_s() -> None:
    gate, pauses = PressureGate(), []
    for _ in range(6):
        opened = proved(step(gate, look(2_000), CAPACITY).gate, 1_900)
        assert (opened.bound, opened.gate.closed) == ("not_the_cause", False)
        pauses.append(opened.gate.wait_ms)
        assert step(opened.gate, look(9_000), CAPACITY).bound == "paused"
        gate = PressureGate(pause_ms=opened.gate.pause_ms)  # its wait is over, and nothing was learned

    assert pauses == [500, 1_000, 2_000, 4_000, 8_000, 8_000]


def test_the_pause_ends_after_its_time() -> None:
    gate = PressureGate(wait_ms=250)
    bounds = []
    for _ in range(3):
        found = step(gate, look(2_000), CAPACITY)
        bounds.append(found.bound)
        gate = found.gate
    assert bounds == ["paused", "paused", "cut"]


def test_a_cut_that_never_came_into_force_is_no_proof_and_ends_after_8_s() -> None:
    closed = cut()
    found = fold(LsPressure(gate=closed.gate, looks=[look(2_000)] * 79), CAPACITY)
    assert (found.bound, found.gate.proof_looks) == ("held", 0)
    found = step(found.gate, look(0), CAPACITY)
    assert (found.bound, found.gate.closed, found.gate.wait_ms) == ("unproven", False, PAUSE_MS_MIN)


@pytest.mark.parametrize(
    ("one", "bound"),
    [
        (look(LINE_PERMILLE_MIN), "calm"),
        (look(LINE_PERMILLE_MIN + 1), "cut"),
        (look(2_000, be_us=3_999), "not_running"),
        (look(2_000, be_us=4_000), "cut"),
        (look(2_000, idle_us=SPAN_US), "idle"),
        (look(2_000, idle_us=SPAN_US - 1), "cut"),
        (look(0, idle_us=SPAN_US, mem_stall_us=40_100), "cut"),
        (look(0, idle_us=SPAN_US, mem_stall_us=40_000), "calm"),
        (look(2_000, throttled_us=160_000), "calm"),
        (look(0, ls_cpu_us=0, cpu_stall_us=1_600), "calm"),
        (look(0, ls_cpu_us=0, cpu_stall_us=1_604), "cut"),
    ],
)
def test_what_cuts_at_once_and_what_does_not(one: PressureLook, bound: str) -> None:
    assert step(PressureGate(), one, CAPACITY).bound == bound


def test_what_is_usual_without_best_effort_work_is_learned_and_raises_the_line() -> None:
    gate = PressureGate()
    for _ in range(60):
        gate = step(gate, look(1_000, be_us=0), CAPACITY).gate
    assert 990 <= gate.base_permille <= 1_000
    assert step(gate, look(1_400), CAPACITY).bound == "calm"
    assert step(gate, look(1_600), CAPACITY).bound == "cut"


@given(st.integers(0, 5_000), st.integers(0, 5_000))
def test_looks_beside_best_effort_work_teach_nothing(base: int, stall: int) -> None:
    assert step(PressureGate(base_permille=base), look(stall), CAPACITY).gate.base_permille == base


def test_what_the_next_run_knows_is_the_baseline_and_the_pause() -> None:
    agent = LookedGate(PressureGate(base_permille=300, pause_ms=2_000))
    agent.looked(look(5_000), CAPACITY)
    assert agent.gate.closed
    assert agent.kept() == PressureGate(base_permille=300, pause_ms=2_000)


def test_the_arithmetic_of_a_look_to_the_unit() -> None:
    """Odd figures: each division rounds down, and what was throttled and memory count as the page says."""
    one = PressureLook(
        span_us=100_999, ls_cpu_us=70_001, be_cpu_us=30_003, idle_us=77, cpu_stall_us=59_999, mem_stall_us=12_345,
        throttled_us=3_333,
    )  # fmt: skip
    taken = step(PressureGate(base_permille=667, wait_ms=900), one, CAPACITY)

    assert dict(taken.terms) == {
        "cpu_stall_us": 59_999,
        "throttled_us": 3_333,
        "mem_stall_us": 12_345,
        "ls_run_us": 70_001,
        "stall_permille": 809 + 176,
        "base_permille": 667,
        "line_permille": 1_000,
        "be_permille": 148,
        "idle_us": 77,
        "span_us": 100_999,
    }
    assert all(isinstance(value, int) for value in taken.terms.values())
    assert (taken.bound, taken.gate) == ("calm", PressureGate(base_permille=667, wait_ms=800))


def test_an_idle_service_is_taken_to_run_two_percent_of_the_node() -> None:
    terms = step(PressureGate(), look(ls_cpu_us=0, cpu_stall_us=1_000), CAPACITY).terms
    assert (terms["ls_run_us"], terms["stall_permille"]) == (SPAN_US * 2 // 50, 250)


def test_more_throttling_than_stall_is_no_stall_at_all() -> None:
    assert step(PressureGate(), look(1, throttled_us=101), CAPACITY).terms["stall_permille"] == 0
    assert step(PressureGate(), look(1, throttled_us=101, mem_stall_us=500), CAPACITY).terms["stall_permille"] == 5


@pytest.mark.parametrize(("base", "line"), [(0, 400), (266, 400), (267, 400), (268, 402), (1_000, 1_500)])
def test_the_line_is_half_above_the_baseline_and_never_below_its_least(base: int, line: int) -> None:
    gate = PressureGate(base_permille=base)
    assert step(gate, look(line), CAPACITY).bound == "calm"
    assert step(gate, look(line + 1), CAPACITY).bound == "cut"


def test_a_fifth_of_the_way_is_learned_from_a_look() -> None:
    alone = step(PressureGate(base_permille=100), look(1_104, be_us=0), CAPACITY)
    assert alone.gate.base_permille == 100 + 200
    less = step(PressureGate(base_permille=100), look(0, be_us=0), CAPACITY)
    assert less.gate.base_permille == 100 - 20


def test_a_cut_notes_what_it_was_made_for() -> None:
    taken = cut(2_000, base_permille=300, pause_ms=1_000)
    assert taken.gate == PressureGate(
        base_permille=300, closed=True, closed_ms=0, proof_looks=0, cut_permille=2_000, be_permille=400, pause_ms=1_000
    )


@pytest.mark.parametrize(("be_us", "looks"), [(40_000, 1), (40_199, 1), (40_200, 0)])
def test_a_look_is_proof_where_best_effort_pods_use_half_of_what_they_did(be_us: int, looks: int) -> None:
    taken = step(cut().gate, look(500, be_us=be_us), CAPACITY)
    assert (taken.bound, taken.gate.proof_looks, taken.gate.closed_ms) == ("held", looks, 100)
    assert taken.gate.base_permille == (100 if looks else 0), "and is learned from"
    assert {name: taken.terms[name] for name in ("cut_permille", "proof_looks", "closed_ms")} == {
        "cut_permille": 2_000, "proof_looks": looks, "closed_ms": 100,
    }  # fmt: skip


@pytest.mark.parametrize(("stall", "bound"), [(1_000, "helped"), (1_001, "not_the_cause")])
def test_a_cut_helped_where_stall_fell_by_the_factor(stall: int, bound: str) -> None:
    assert proved(cut(1_500).gate, stall).bound == bound


def test_what_a_cut_that_did_not_help_leaves() -> None:
    taken = proved(cut(2_000, pause_ms=1_000).gate, 2_000)
    assert taken.gate == PressureGate(base_permille=400 + 320, pause_ms=2_000, wait_ms=1_000)
    assert taken.terms["pause_ms"] == 1_000


def test_a_gate_with_more_proof_than_needed_opens() -> None:
    """Of a record that another version wrote."""
    gate = PressureGate(closed=True, proof_looks=7, cut_permille=1_500, be_permille=400)
    assert step(gate, look(1_000, be_us=0), CAPACITY).bound == "helped"
    assert step(gate, look(1_001, be_us=0), CAPACITY).bound == "not_the_cause"


@pytest.mark.parametrize(("closed_ms", "bound"), [(7_899, "held"), (7_900, "unproven"), (7_950, "unproven")])
def test_a_cut_without_proof_ends_with_the_look_that_completes_8_s(closed_ms: int, bound: str) -> None:
    gate = PressureGate(closed=True, closed_ms=closed_ms, cut_permille=2_000, be_permille=400)
    assert step(gate, look(2_000), CAPACITY).bound == bound


@pytest.mark.parametrize(("closed", "bound"), [(True, "held"), (False, "calm")])
def test_without_a_look_the_gate_stays_as_it_is(closed: object, bound: str) -> None:
    gate = PressureGate(base_permille=9, closed=bool(closed))
    assert fold(LsPressure(gate=gate, looks=[]), CAPACITY) == Step(gate=gate, bound=bound, terms={"base_permille": 9})


@pytest.mark.parametrize(
    ("one", "bound"),
    [
        (look(2_000, idle_us=2 * SPAN_US), "idle"),
        (look(1, idle_us=SPAN_US, mem_stall_us=40_000), "idle"),
        (look(1, idle_us=SPAN_US, mem_stall_us=40_100), "cut"),
    ],
)
def test_an_idle_cpu_excuses_stall_but_memory_stall_above_the_line(one: PressureLook, bound: str) -> None:
    assert step(PressureGate(), one, CAPACITY).bound == bound


def test_memory_stall_counts_to_the_unit() -> None:
    assert step(PressureGate(), look(mem_stall_us=99_999), CAPACITY).terms["stall_permille"] == 999


def test_a_long_look_counts_in_full_for_the_pause_and_for_the_cut() -> None:
    second = look(span_us=1_000_000, be_us=800_000)
    assert step(PressureGate(wait_ms=2_000), second, CAPACITY).gate.wait_ms == 1_000
    closed = PressureGate(closed=True, cut_permille=2_000, be_permille=400)
    assert step(closed, second, CAPACITY).gate.closed_ms == 1_000


def test_a_look_of_no_length_is_one_microsecond_on_a_node_of_one() -> None:
    """Two looks at one instant; nothing is divided by 0."""
    one = PressureLook(span_us=0, ls_cpu_us=0, be_cpu_us=1, idle_us=0, cpu_stall_us=1)
    terms = step(PressureGate(), one, CAPACITY).terms
    assert (terms["be_permille"], terms["ls_run_us"], terms["stall_permille"]) == (1_000, 1, 1_000)


def test_in_a_short_look_no_stall_is_no_stall_too() -> None:
    one = PressureLook(span_us=1_000, ls_cpu_us=0, be_cpu_us=0, idle_us=0, cpu_stall_us=0)
    assert step(PressureGate(), one, CAPACITY).terms["stall_permille"] == 0
