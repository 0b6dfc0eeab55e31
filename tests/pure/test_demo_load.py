"""The demo's load: arrivals, spikes, the order of the conditions, the queue of a virtual service."""

from itertools import accumulate, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.demo.conditions import BLOCKS, HIGH_PART, LOW_PART, ROOM_S, Load, conditions, spiky
from slacktide.deploy.demo.figures import percentile
from slacktide.deploy.demo.ls_worker import REQUEST_CPU_MS, arrivals
from slacktide.deploy.demo.virtual import Queue

seeds = st.integers(0, 2**32)


@given(seeds, st.lists(st.tuples(st.floats(0, 5), st.floats(0, 200)), max_size=6))
def test_arrivals_are_the_same_for_a_seed_and_lie_within_the_phases(seed, phases):
    """The load can be had again, ascends, and ends with its phases."""
    drawn = list(arrivals(seed, phases))

    assert drawn == list(arrivals(seed, phases))
    assert drawn == sorted(drawn)
    assert all(0 <= at_s <= sum(seconds for seconds, _ in phases) for at_s in drawn)


def test_arrivals_come_at_the_rate_of_their_phase():
    """100 a second for 100 s, nothing for a while, then 20 a second."""
    drawn = list(arrivals(7, [(100, 100.0), (50, 0.0), (100, 20.0)]))

    assert sum(at_s < 100 for at_s in drawn) == pytest.approx(10_000, rel=0.05)
    assert not any(100 <= at_s < 150 for at_s in drawn)
    assert sum(at_s >= 150 for at_s in drawn) == pytest.approx(2_000, rel=0.1)


@given(seeds, st.floats(2, 60))
def test_spikes_come_every_two_to_three_seconds_and_leave_room_for_an_answer(seed, seconds):
    """Random phase, a known distance, none so late that it could not be answered."""
    load = spiky(seed, seconds)

    assert all(2.0 <= later - earlier <= 3.0 for earlier, later in pairwise(load.steps_s))
    assert all(at_s <= seconds - ROOM_S + 1e-9 for at_s in load.steps_s)
    begins = accumulate((seconds for seconds, _ in load.phases), initial=0.0)
    steps = [at_s for at_s, (_, part) in zip(begins, load.phases, strict=False) if part == HIGH_PART]
    assert load.steps_s == pytest.approx(steps)
    assert sum(span for span, _ in load.phases) >= seconds


def test_a_minute_in_three_blocks_has_more_than_twenty_steps():
    """Enough for a median and its spread, whichever block."""
    counts = [
        sum(len(spiky(seed * 1_000, 20.0).steps_s) for seed in range(first, first + BLOCKS)) for first in range(50)
    ]

    assert min(counts) >= 20


def test_a_load_becomes_requests_a_second_for_each_worker():
    """15% of two CPUs is 300 ms of CPU a second: 60 requests of 5 ms, shared by two workers."""
    load = Load(phases=[(1.0, LOW_PART)], steps_s=[])

    assert load.rates(2000, workers=2) == [(1.0, pytest.approx(0.15 * 2000 / REQUEST_CPU_MS / 2))]


def test_conditions_are_interleaved_three_times_with_one_load_a_block():
    """A slow drift of the machine meets all conditions alike, and like is compared with like."""
    plan = conditions(60)

    assert [condition.name for condition in plan] == ["alone", "uncontrolled", "weights", "controlled"] * 3
    assert all(len({condition.seed for condition in plan if condition.block == block}) == 1 for block in range(BLOCKS))
    assert sum(condition.measured_s for condition in plan if condition.limited) == 60
    assert {condition.measured_s for condition in plan if not condition.limited} == {5.0}


def test_the_memory_scenario_has_plain_pods_under_weights_and_limited_ones_under_control():
    """Plain best-effort pods request nothing, so nothing limits their memory."""
    plan = conditions(60, blocks=1, scenario="memory")

    assert [(one.name, one.batch) for one in plan] == [
        ("alone", "none"),
        ("weights", "plain"),
        ("controlled", "besteffort"),
    ]


def test_a_virtual_service_slows_down_most_beside_equals_and_least_when_the_batch_is_held_back():
    """The order of the conditions is that of a real machine."""

    def p99_ms(part, share):
        due = list(islice(arrivals(3, [(30.0, 400.0)]), 8_000))
        return percentile([ms for _, ms in Queue(8, 1).serve(due, batch_part=part, batch_share=share)], 99)

    alone, uncontrolled, weights, controlled = p99_ms(0, 0), p99_ms(0.85, 0.5), p99_ms(0.85, 0.01), p99_ms(0.3, 0.01)

    assert alone < controlled < weights < uncontrolled


def test_a_request_that_finds_all_servers_busy_waits():
    """Three at once on two CPUs: the third begins when the first is done."""
    latencies = [ms for _, ms in Queue(2, 1).serve([1.0, 1.0, 1.0], batch_part=0.0, batch_share=0.0)]

    assert latencies == pytest.approx([5.0, 5.0, 10.0])
