"""Reclaim before eviction: how much of whom, and the brake; by its laws and by single examples."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.evict.mem_reclaim import (
    ASK_BYTES_MIN,
    FREED_PCT_MIN,
    PAUSE_MS_MAX,
    PAUSE_MS_MIN,
    REST_MS_MAX,
    REST_MS_MIN,
    RISES_PERMILLE,
    STALE_MS,
    STEP_PCT,
    Ask,
    Freed,
    MemoryLines,
    MemoryLook,
    PodMemory,
    ReclaimState,
    Rest,
    learned,
    next_step,
    wants,
)

MIB = 1 << 20
CAPACITY = 10_000 * MIB
STEP = 100 * MIB
LINES = MemoryLines(capacity_bytes=CAPACITY, used_bytes=6_700 * MIB, threshold_pct=65, evict_pct=70)
"""Wanted free: 500 MiB. Above the threshold: 200 MiB."""
QUIET = {"ls_mem": 1, "ls_io": 2, "io_full": 3}
CALM = ReclaimState(calm_permille=QUIET)


def pod(uid: str, file_mib: int = 0, swap_mib: int = 0) -> PodMemory:
    return PodMemory(uid=uid, inactive_file_bytes=file_mib * MIB, swappable_bytes=swap_mib * MIB)


def look(*pods: PodMemory, free_mib: int | None = 50, now_ms: int = 100_000, **more: Any) -> MemoryLook:
    free = None if free_mib is None else free_mib * MIB
    given = {"span_ms": 1_000, "stalls_permille": QUIET} | more
    return MemoryLook(now_ms=now_ms, free_bytes=free, pods=pods, **given)


def asked(step) -> dict[str, int]:
    return {ask.uid: ask.ask_bytes // MIB for ask in step.asks}


@pytest.mark.parametrize(
    ("used_pct", "bound"),
    [(64.9, "below_threshold"), (65, "below_threshold"), (65.1, "reclaims"), (69.9, "reclaims"), (70, "evicts"),
     (95, "evicts")],
)  # fmt: skip
def test_it_acts_between_the_thresholds_only(used_pct: float, bound: str) -> None:
    lines = replace(LINES, used_bytes=round(CAPACITY * used_pct / 100))
    assert wants(lines) == bound
    assert next_step(look(pod("a", 500)), lines, CALM).bound == bound


@pytest.mark.parametrize("unknown", [{"capacity_bytes": None}, {"capacity_bytes": 0}, {"used_bytes": None}])
def test_what_is_unknown_is_left_alone(unknown: dict[str, Any]) -> None:
    assert next_step(look(pod("a", 500)), replace(LINES, **unknown), CALM).bound == "unknown"
    assert next_step(look(pod("a", 500), free_mib=None), LINES, CALM).bound == "unknown"


def test_the_pod_with_most_unused_page_cache_gives_first_and_at_most_a_step() -> None:
    step = next_step(look(pod("small", 30), pod("large", 80), pod("other", 40)), LINES, CALM)
    assert asked(step) == {"large": 80, "other": 20}
    assert step.terms["wanted_free_bytes"] == 500 * MIB
    assert step.terms["asked_bytes"] == STEP


@pytest.mark.parametrize(("free_mib", "wanted"), [(450, {"a": 50}), (499, {"a": 1}), (500, {}), (5_000, {})])
def test_it_stops_where_enough_is_free(free_mib: int, wanted: dict[str, int]) -> None:
    step = next_step(look(pod("a", 400), free_mib=free_mib), LINES, CALM)
    assert asked(step) == wanted
    assert step.bound == ("reclaims" if wanted else "enough_free")


def test_page_cache_lowers_no_use_so_a_node_without_swap_keeps_it_once_enough_is_free() -> None:
    found = next_step(look(pod("a", 400, 400), free_mib=600), LINES, CALM)
    assert found.bound == "enough_free"
    swaps = next_step(look(pod("a", 400, 400), free_mib=600, swap_free_bytes=60 * MIB), LINES, CALM)
    assert swaps.asks == (Ask(uid="a", ask_bytes=60 * MIB, swap_bytes=60 * MIB),)


def test_the_sizes_are_those_that_the_page_states() -> None:
    assert (STEP_PCT, ASK_BYTES_MIN, FREED_PCT_MIN, STALE_MS) == (1, MIB, 10, 5_000)
    assert RISES_PERMILLE == {"ls_mem": 5, "ls_io": 20, "io_full": 20}
    assert (PAUSE_MS_MIN, PAUSE_MS_MAX, REST_MS_MIN, REST_MS_MAX) == (2_000, 64_000, 10_000, 640_000)


def test_what_is_absent_counts_as_nothing() -> None:
    assert ReclaimState() == ReclaimState(paused_until_ms=0, pause_ms=0, paused_by="", calm_permille=None, rests={})
    assert Freed(uid="a", freed_bytes=1).swapped_bytes == pod("a").swappable_bytes == 0
    assert MemoryLook(now_ms=0, span_ms=0, free_bytes=1) == MemoryLook(
        now_ms=0, span_ms=0, free_bytes=1, swap_free_bytes=0, stalls_permille={}, pods=()
    )
    assert PodMemory(uid="a", inactive_file_bytes=1).swappable_bytes == 0


def test_the_terms_are_the_arithmetic() -> None:
    lines = replace(LINES, used_bytes=6_999 * MIB)
    assert next_step(look(pod("a", 500), swap_free_bytes=7 * MIB), lines, CALM).terms == {
        "capacity_bytes": CAPACITY,
        "used_pct": 69,
        "threshold_pct": 65,
        "evict_pct": 70,
        "wanted_free_bytes": 500 * MIB,
        "free_bytes": 50 * MIB,
        "above_bytes": 499 * MIB,
        "swap_free_bytes": 7 * MIB,
        "step_bytes": STEP,
        "asked_bytes": STEP,
    }


def test_a_byte_that_is_lacking_is_a_need_but_not_worth_a_write() -> None:
    assert next_step(replace(look(pod("a", 500)), free_bytes=500 * MIB - 1), LINES, CALM).bound == "nobody"
    now = look(pod("a", 500, 500), free_mib=500, swap_free_bytes=1)
    assert next_step(now, LINES, CALM).bound == "nobody"
    exact = look(pod("a", 1), free_mib=500 - 1)
    assert asked(next_step(exact, LINES, CALM)) == {"a": 1}


@pytest.mark.parametrize("span_ms", [1, STALE_MS, STALE_MS + 1])
def test_stalls_over_a_longer_time_are_those_before_a_first_step(span_ms: int) -> None:
    high = dict.fromkeys(RISES_PERMILLE, 300)
    step = next_step(look(pod("a", 500), stalls_permille=high, span_ms=span_ms), LINES, CALM)
    assert step.bound == ("reclaims" if span_ms > STALE_MS else "paused")


def test_of_equal_pods_the_one_with_more_to_swap_and_then_the_first_by_uid_gives() -> None:
    now = look(pod("b", 60), pod("a", 60), pod("c", 60, 9), free_mib=450)
    assert asked(next_step(now, LINES, CALM)) == {"c": 50}
    assert asked(next_step(replace(now, pods=now.pods[:2]), LINES, CALM)) == {"a": 50}


def test_the_pods_share_both_needs_whatever_their_order() -> None:
    now = look(pod("little", 0, 10), pod("a", 10, 30), pod("b", 20, 30), free_mib=480, swap_free_bytes=50 * MIB)
    step = next_step(now, LINES, CALM)
    assert [(ask.uid, ask.ask_bytes // MIB, ask.swap_bytes // MIB) for ask in step.asks] == [
        ("b", 50, 30),
        ("a", 20, 20),
    ]
    more = next_step(replace(now, free_bytes=0, swap_free_bytes=CAPACITY), LINES, CALM)
    told = [(ask.uid, ask.ask_bytes // MIB, ask.swap_bytes // MIB) for ask in more.asks]
    assert told == [("b", 50, 30), ("a", 40, 30), ("little", 10, 10)], "together a step"


def test_three_pods_give_one_step_together() -> None:
    now = look(pod("a", 30, 400), pod("b", 20, 400), pod("c", 10, 400), free_mib=0, swap_free_bytes=CAPACITY)
    told = [(ask.uid, ask.ask_bytes // MIB, ask.swap_bytes // MIB) for ask in next_step(now, LINES, CALM).asks]
    assert told == [("a", 70, 40), ("b", 20, 0), ("c", 10, 0)]
    small = look(pod("a", 30, 20), pod("b", 20, 10), pod("c", 10, 400), free_mib=0, swap_free_bytes=CAPACITY)
    told = [(ask.uid, ask.ask_bytes // MIB, ask.swap_bytes // MIB) for ask in next_step(small, LINES, CALM).asks]
    assert told == [("a", 50, 20), ("b", 30, 10), ("c", 20, 10)]


def test_a_stall_that_was_not_read_before_is_no_brake() -> None:
    state = ReclaimState(calm_permille={"io_full": 3})
    assert next_step(look(pod("a", 500), stalls_permille=QUIET | {"ls_mem": 900}), LINES, state).asks


def test_rests_and_pauses_end_when_they_are_over_and_not_before() -> None:
    state = replace(CALM, rests={"a": Rest(100_000, 10_000)})
    for now_ms, asks in ((99_999, False), (100_000, True), (100_001, True)):
        assert bool(next_step(look(pod("a", 500), now_ms=now_ms), LINES, state).asks) is asks
    assert learned(state, (), (), 100_001 + REST_MS_MAX).rests == {}
    paused = replace(CALM, paused_until_ms=100_000, pause_ms=4_000)
    assert next_step(look(pod("a", 500), now_ms=100_500), LINES, paused).state.pause_ms == 4_000
    much = [Freed(uid="a", freed_bytes=STEP)]
    assert learned(state, [Ask(uid="a", ask_bytes=STEP, swap_bytes=0)], much, 0).rests == {}


def test_an_old_rest_is_forgotten_so_that_the_next_one_is_short() -> None:
    state = replace(CALM, rests={"a": Rest(1_000, 80_000), "b": Rest(1_000 + 1, 80_000)})
    kept = learned(state, (), (), 1_000 + REST_MS_MAX)
    assert kept.rests == {"b": Rest(1_001, 80_000)}


def test_what_is_little_is_not_worth_a_write() -> None:
    assert next_step(look(pod("a", 0)), LINES, CALM).bound == "nobody"
    assert next_step(look(), LINES, CALM).bound == "nobody"


@pytest.mark.parametrize("name", RISES_PERMILLE)
def test_a_stall_that_rises_is_the_brake_and_the_pause_doubles(name: str) -> None:
    state, now_ms, pauses = CALM, 100_000, []
    for _ in range(8):
        stalls = QUIET | {name: QUIET[name] + RISES_PERMILLE[name] + 1}
        step = next_step(look(pod("a", 500), now_ms=now_ms, stalls_permille=stalls), LINES, state)
        assert step.bound == "paused"
        assert name in step.state.paused_by
        pauses.append(step.state.paused_until_ms - now_ms)
        # The stall goes, as is learned in the pause.
        state = next_step(look(pod("a", 500), now_ms=now_ms + 1_000), LINES, step.state).state
        now_ms = step.state.paused_until_ms
    assert pauses == [min(PAUSE_MS_MIN << each, PAUSE_MS_MAX) for each in range(8)]


def test_a_stall_that_was_there_before_is_no_brake() -> None:
    high = dict.fromkeys(RISES_PERMILLE, 300)
    assert next_step(look(pod("a", 500), stalls_permille=high), LINES, ReclaimState(calm_permille=high)).asks
    assert next_step(look(pod("a", 500), stalls_permille=high), LINES, CALM).bound == "paused"


def test_without_pressure_there_is_no_brake_and_no_step() -> None:
    assert next_step(look(pod("a", 500), stalls_permille={}), LINES, CALM).bound == "no_stalls"
    assert next_step(look(pod("a", 500), span_ms=0), LINES, CALM).bound == "no_stalls"
    assert next_step(look(pod("a", 500)), LINES, ReclaimState()).asks, "the second look can compare"


def test_after_a_long_calm_the_pause_is_short_again() -> None:
    state = replace(CALM, paused_until_ms=100_000, pause_ms=32_000)
    assert next_step(look(pod("a", 500), now_ms=100_000 + PAUSE_MS_MAX), LINES, state).state.pause_ms == 32_000
    assert next_step(look(pod("a", 500), now_ms=100_001 + PAUSE_MS_MAX), LINES, state).state.pause_ms == 0


def test_a_pod_that_frees_little_rests_ever_longer_and_the_others_give() -> None:
    asks, state, now_ms, rests = (Ask(uid="a", ask_bytes=STEP, swap_bytes=0),), CALM, 0, []
    for _ in range(8):
        state = learned(state, asks, [Freed(uid="a", freed_bytes=STEP // 10 - 1)], now_ms)
        rests.append(state.rests["a"].rest_ms)
        step = next_step(look(pod("a", 500), pod("b", 30), now_ms=now_ms), LINES, state)
        assert asked(step) == {"b": 30}
        now_ms = state.rests["a"].until_ms
    assert rests == [min(REST_MS_MIN << each, REST_MS_MAX) for each in range(8)]
    assert asked(next_step(look(pod("a", 500), now_ms=now_ms), LINES, state)) == {"a": 100}
    state = learned(state, asks, [Freed(uid="a", freed_bytes=STEP // 10)], now_ms)
    assert state.rests == {}


def test_page_cache_that_was_freed_where_swap_was_wanted_counts_as_little() -> None:
    asks = (Ask(uid="a", ask_bytes=STEP, swap_bytes=STEP),)
    got = Freed(uid="a", freed_bytes=STEP, swapped_bytes=STEP // 10 - 1)
    assert learned(CALM, asks, [got], 0).rests == {"a": Rest(REST_MS_MIN, REST_MS_MIN)}
    assert learned(CALM, asks, [replace(got, swapped_bytes=STEP // 10)], 0).rests == {}
    in_time = [Ask(uid="a", ask_bytes=STEP // 2, swap_bytes=STEP)]
    assert "a" in learned(CALM, in_time, [Freed(uid="a", freed_bytes=STEP // 2)], 0).rests, "half was tried"


bytes_ = st.integers(0, CAPACITY)
stalls = st.dictionaries(st.sampled_from(sorted(RISES_PERMILLE)), st.integers(0, 1_100))
pods = st.lists(
    st.builds(PodMemory, uid=st.sampled_from("abcdef"), inactive_file_bytes=bytes_, swappable_bytes=bytes_),
    unique_by=lambda one: one.uid,
    max_size=6,
)
looks = st.builds(
    MemoryLook,
    now_ms=st.integers(0, 500_000),
    span_ms=st.integers(0, 10_000),
    free_bytes=st.none() | bytes_,
    swap_free_bytes=bytes_,
    stalls_permille=stalls,
    pods=pods,
)
lines_ = st.builds(
    MemoryLines,
    capacity_bytes=st.none() | st.integers(0, CAPACITY),
    used_bytes=st.none() | bytes_,
    threshold_pct=st.integers(0, 69),
    evict_pct=st.integers(70, 100),
)
states = st.builds(
    ReclaimState,
    calm_permille=st.none() | stalls,
    paused_until_ms=st.integers(0, 500_000),
    pause_ms=st.sampled_from([0, 2_000, 64_000]),
    rests=st.dictionaries(st.sampled_from("abcdef"), st.builds(Rest, st.integers(0, 500_000), st.just(10_000))),
)


@given(looks, lines_, states)
def test_the_laws_of_a_step(now: MemoryLook, lines: MemoryLines, state: ReclaimState) -> None:
    step = next_step(now, lines, state)
    by_uid = {one.uid: one for one in now.pods}
    assert bool(step.asks) == (step.bound == "reclaims")
    assert len({ask.uid for ask in step.asks}) == len(step.asks)
    for ask in step.asks:
        held = by_uid[ask.uid]  # so nobody is named beside those that the agent looked at
        assert ASK_BYTES_MIN <= ask.ask_bytes <= held.inactive_file_bytes + held.swappable_bytes
        assert 0 <= ask.swap_bytes <= min(ask.ask_bytes, held.swappable_bytes)
        assert ask.uid not in state.rests or now.now_ms >= state.rests[ask.uid].until_ms
    if step.asks:
        assert wants(lines) == "reclaims"
        assert now.stalls_permille
        assert now.now_ms >= step.state.paused_until_ms
        assert sum(ask.ask_bytes for ask in step.asks) <= (lines.capacity_bytes or 0) // 100
        assert sum(ask.swap_bytes for ask in step.asks) <= now.swap_free_bytes
    assert step == next_step(now, lines, state)


@given(looks, lines_, states, st.lists(st.builds(Freed, uid=st.sampled_from("abcdef"), freed_bytes=bytes_)))
def test_after_a_step_each_pod_that_was_asked_is_judged(
    now: MemoryLook, lines: MemoryLines, state: ReclaimState, freed: list[Freed]
) -> None:
    step = next_step(now, lines, state)
    after = learned(step.state, step.asks, freed, now.now_ms)
    for ask in step.asks:
        rest = after.rests.get(ask.uid)
        assert rest is None or REST_MS_MIN <= rest.rest_ms <= REST_MS_MAX
        if all(one.uid != ask.uid for one in freed):
            assert rest is not None
            assert rest.until_ms > now.now_ms
