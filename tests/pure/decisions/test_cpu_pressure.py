"""Laws of the gate that stops best-effort pods while others wait."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.ahead import LookedGate
from slacktide.schemas.sample import LOOKS_MAX, PAUSE_MS_MAX, PAUSE_MS_MIN, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import LINE_PERMILLE_MIN, PROOF_LOOKS, Step, fold, step
from testbed.stalls import GATES, LOOKS

SPAN_US = 100_000


def look(stall: int = 0, *, be_us: int = 80_000, **more) -> PressureLook:
    """Latency-sensitive pods run for 100 ms of CPU time; ``stall`` is in permille of that."""
    fields = {"span_us": SPAN_US, "ls_cpu_us": 100_000, "be_cpu_us": be_us, "idle_us": 0, "cpu_stall_us": stall * 100}
    return PressureLook(**fields | more)


def cut(stall: int = 2_000, **state) -> Step:
    found = step(PressureGate(**state), look(stall))
    assert found.bound == "cut"
    return found


def proved(gate: PressureGate, stall: int) -> Step:
    """As the kernel answers a cut: best-effort pods have all but stopped."""
    return fold(LsPressure(gate=gate, looks=[look(stall, be_us=2_000)] * PROOF_LOOKS))


@given(GATES, st.lists(LOOKS, max_size=40), st.integers(0, 40))
def test_looks_in_two_samples_come_to_what_they_do_in_one(
    gate: PressureGate, taken: list[PressureLook], at: int
) -> None:
    first = fold(LsPressure(gate=gate, looks=taken[:at]))
    rest = fold(LsPressure(gate=first.gate, looks=taken[at:]))
    assert rest.gate == fold(LsPressure(gate=gate, looks=taken)).gate


@given(GATES, st.lists(LOOKS, min_size=1, max_size=LOOKS_MAX + 20))
def test_what_a_sample_carries_gives_a_worker_the_agents_gate(gate: PressureGate, taken: list[PressureLook]) -> None:
    agent = LookedGate(gate)
    turns = [agent.looked(one) for one in taken]
    sample = msgspec.json.decode(msgspec.json.encode(agent.sampled()), type=LsPressure)

    assert fold(sample).gate == agent.gate
    assert (sum(turns) % 2 == 1) == (agent.gate.closed != gate.closed)
    assert agent.sampled() == LsPressure(gate=agent.gate, looks=[])


@given(GATES, st.lists(LOOKS, max_size=60))
def test_pause_and_wait_stay_within_their_bounds(gate: PressureGate, taken: list[PressureLook]) -> None:
    for one in taken:
        gate = step(gate, one).gate
        assert PAUSE_MS_MIN <= gate.pause_ms <= PAUSE_MS_MAX
        assert 0 <= gate.wait_ms <= PAUSE_MS_MAX
        assert gate.base_permille >= 0
        msgspec.convert(msgspec.to_builtins(gate), PressureGate)


@given(GATES, LOOKS, st.integers(0, 100_000))
def test_more_stall_never_keeps_an_open_gate_from_closing(gate: PressureGate, one: PressureLook, more: int) -> None:
    open_gate = msgspec.structs.replace(gate, closed=False)
    worse = msgspec.structs.replace(one, cpu_stall_us=one.cpu_stall_us + more)
    if step(open_gate, one).gate.closed:
        assert step(open_gate, worse).gate.closed


@given(GATES, LOOKS, st.integers(1, 100_000))
def test_more_throttling_of_their_own_never_closes_it(gate: PressureGate, one: PressureLook, more: int) -> None:
    open_gate = msgspec.structs.replace(gate, closed=False)
    own = msgspec.structs.replace(one, throttled_us=one.throttled_us + more)
    if step(open_gate, own).gate.closed:
        assert step(open_gate, one).gate.closed


@given(st.integers(LINE_PERMILLE_MIN + 1, 10_000), st.integers(0, 10_000))
def test_one_look_cuts_and_giving_back_takes_the_proof(stall: int, after: int) -> None:
    closed = cut(stall)
    held = step(closed.gate, look(after, be_us=2_000))
    assert (held.bound, held.gate.closed) == ("held", True)
    assert not step(held.gate, look(after, be_us=2_000)).gate.closed


def test_a_small_service_is_seen_on_a_node_of_any_size() -> None:
    small = look(ls_cpu_us=10_000, cpu_stall_us=9_000, be_us=3_000)
    assert step(PressureGate(), small).bound == "cut"
    assert step(PressureGate(), msgspec.structs.replace(small, be_cpu_us=2_000)).bound == "not_running"


def test_a_cut_that_helped_is_given_back_and_the_next_may_come_at_once() -> None:
    opened = proved(cut(2_000, pause_ms=4_000).gate, 1_333)
    assert (opened.bound, opened.gate.pause_ms, opened.gate.wait_ms) == ("helped", PAUSE_MS_MIN, 0)
    assert step(opened.gate, look(2_000)).bound == "cut"


def test_where_stall_did_not_fall_best_effort_was_not_the_cause_and_the_pause_doubles_to_8_s() -> None:
    gate, pauses = PressureGate(), []
    for _ in range(6):
        opened = proved(step(gate, look(2_000)).gate, 1_900)
        assert (opened.bound, opened.gate.closed) == ("not_the_cause", False)
        pauses.append(opened.gate.wait_ms)
        assert step(opened.gate, look(9_000)).bound == "paused"
        gate = PressureGate(pause_ms=opened.gate.pause_ms)  # its wait is over, and nothing was learned

    assert pauses == [500, 1_000, 2_000, 4_000, 8_000, 8_000]


def test_the_pause_ends_after_its_time() -> None:
    gate = PressureGate(wait_ms=250)
    bounds = []
    for _ in range(3):
        found = step(gate, look(2_000))
        bounds.append(found.bound)
        gate = found.gate
    assert bounds == ["paused", "paused", "cut"]


def test_a_cut_that_never_came_into_force_is_no_proof_and_ends_after_8_s() -> None:
    closed = cut()
    found = fold(LsPressure(gate=closed.gate, looks=[look(2_000)] * 79))
    assert (found.bound, found.gate.proof_looks) == ("held", 0)
    found = step(found.gate, look(0))
    assert (found.bound, found.gate.closed, found.gate.wait_ms) == ("unproven", False, PAUSE_MS_MIN)


def test_what_is_usual_without_best_effort_work_is_learned_and_raises_the_line() -> None:
    gate = PressureGate()
    for _ in range(60):
        gate = step(gate, look(1_000, be_us=0)).gate
    assert 990 <= gate.base_permille <= 1_000
    assert step(gate, look(1_400)).bound == "calm"
    assert step(gate, look(1_600)).bound == "cut"


@given(st.integers(0, 5_000), st.integers(0, 5_000))
def test_looks_beside_best_effort_work_teach_nothing(base: int, stall: int) -> None:
    assert step(PressureGate(base_permille=base), look(stall)).gate.base_permille == base


def test_what_the_next_run_knows_is_the_baseline_and_the_pause() -> None:
    agent = LookedGate(PressureGate(base_permille=300, pause_ms=2_000))
    agent.looked(look(5_000))
    assert agent.gate.closed
    assert agent.kept() == PressureGate(base_permille=300, pause_ms=2_000)
