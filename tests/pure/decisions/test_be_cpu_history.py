"""What best-effort pods got of the CPU over the last while."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.agents.node.interfaces import Reading
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow, Limits, NodeUse, PodUse
from slacktide.streams.decisions.evict.be_cpu_history import SPANS_MAX, BeCpuHistory
from testbed.vectors import each_row

SECOND_NS = 1_000_000_000
FACTS = NodeFacts(name="n", capacity=Resources(cpu_milli=8_000), allocatable=Resources(cpu_milli=7_000))
BATCH = Pod(uid="be", namespace="jobs", name="be", qos_label="BE", requests=Resources(batch_cpu_milli=4_000))
ASKED = ResourceThreshold(
    enable=True,
    cpu_evict_be_satisfaction_lower_pct=40,
    cpu_evict_be_satisfaction_upper_pct=80,
    cpu_evict_time_window_s=10,
)
ONE_CPU = Limits(be_cfs_quota_us=100_000)


def reading(used_milli: int | None = 900, limits: Limits | None = ONE_CPU) -> Reading:
    """One of a node that uses three CPUs."""
    return Reading(
        interval_ms=0 if used_milli is None else 1_000,
        use=NodeUse(cpu_milli=None if used_milli is None else 3_000),
        pod_use=[
            PodUse(uid="be", cpu_milli=used_milli, best_effort_group=True),
            PodUse(uid="unknown", cpu_milli=None, best_effort_group=True),
            PodUse(uid="b", cpu_milli=2_000),
        ],
        limits=limits,
        missing=[],
    )


def history(*readings: Reading, pods: tuple[Pod, ...] = (BATCH,)) -> BeCpuHistory:
    """Asked for since its beginning, and fed each second."""
    remembered = BeCpuHistory()
    assert remembered.window(ASKED) is None
    for second, one in enumerate(readings, start=1):
        remembered.saw(second * SECOND_NS, one, FACTS, pods)
    return remembered


def window(*readings: Reading, pods: tuple[Pod, ...] = (BATCH,)) -> BeCpuWindow:
    found = history(*readings, pods=pods).window(ASKED)
    assert found is not None
    return found


def test_one_reading_is_average_and_current() -> None:
    got = BeCpu(usage_milli=900, request_milli=4_000, limit_milli=1_000)

    assert window(reading()) == BeCpuWindow(average=got, current=got, samples=1, interval_s=1, node_usage_milli=3_000)


def test_the_average_is_the_windows_and_the_current_is_the_last() -> None:
    found = window(*[reading(300)] * 5, *[reading(600)] * 5, *[reading(900)] * 5)

    assert (found.average.usage_milli, found.current.usage_milli, found.samples) == (750, 900, 10)


@each_row("limits", "limit_milli")
def test_the_limit_that_is_in_force(limits: Limits, limit_milli: int) -> None:
    assert window(reading(limits=limits)).current.limit_milli == limit_milli


@each_row("more", "request_milli")
def test_whose_requests_count(more: dict, request_milli: int) -> None:
    asked = Resources(batch_cpu_milli=500, cpu_milli=7)
    other = Pod(**{"uid": "b", "namespace": "jobs", "name": "b", "requests": asked} | more)

    assert window(reading(), pods=(BATCH, other)).current.request_milli == request_milli


@pytest.mark.parametrize("unread", [reading(None), reading(limits=None)], ids=["rates", "limits"])
def test_what_could_not_be_read_leaves_a_gap(unread: Reading) -> None:
    """And while it lasts there is no current figure to decide by."""
    assert history(reading(300), unread).window(ASKED) is None

    found = window(reading(300), unread, reading(600))

    assert (found.average.usage_milli, found.samples) == (450, 2)


def test_where_no_rule_asks_nothing_is_said_and_nothing_kept() -> None:
    remembered = history(reading(300))
    assert remembered.window(ResourceThreshold(enable=True)) is None
    assert remembered.window(ASKED) is None, "it begins anew"

    remembered.saw(9 * SECOND_NS, reading(900), FACTS, [BATCH])
    found = remembered.window(ASKED)

    assert found is not None
    assert found.average.usage_milli == 900


@each_row("threshold", "asks")
def test_which_policies_ask_for_it(threshold: dict, *, asks: bool) -> None:
    remembered = BeCpuHistory()
    policy = replace(ASKED, **threshold)
    remembered.window(policy)
    remembered.saw(SECOND_NS, reading(), FACTS, [BATCH])

    assert (remembered.window(policy) is not None) == asks


@given(
    steps_ms=st.lists(st.sampled_from([1, 100, 200, 1_000, 1_700, 10_000]), min_size=1, max_size=60),
    usages=st.lists(st.integers(0, 9_000), min_size=60, max_size=60),
    window_s=st.sampled_from([1, 7, 60, 300, 86_400]),
)
def test_however_often_it_is_sampled_the_average_is_over_time(
    steps_ms: list[int], usages: list[int], window_s: int
) -> None:
    """As far as the window reaches, and never farther than one span beyond it."""
    asked = replace(ASKED, cpu_evict_time_window_s=window_s)
    remembered = BeCpuHistory()
    remembered.window(asked)
    now_ns, measured = SECOND_NS, []
    for step_ms, used_milli in zip(steps_ms, usages, strict=False):
        now_ns += step_ms * 1_000_000
        remembered.saw(now_ns, reading(used_milli), FACTS, [BATCH])
        measured.append((now_ns, step_ms if measured else 1_000, used_milli))
        found = remembered.window(asked)

    assert found is not None
    width_ns = -(-window_s // SPANS_MAX) * SECOND_NS
    oldest = now_ns // width_ns - -(-window_s * SECOND_NS // width_ns) + 1
    within = [(step_ms, used) for at_ns, step_ms, used in measured if at_ns // width_ns >= oldest]
    average = sum(step_ms * used for step_ms, used in within) / sum(step_ms for step_ms, _ in within)
    assert found.average.usage_milli == pytest.approx(average, abs=0.001)
    assert found.samples == min(window_s, round(sum(step_ms for step_ms, _ in within) / 1_000))
    assert (found.average.request_milli, found.average.limit_milli) == (4_000, 1_000), "equal figures, exactly"


def test_a_days_window_stays_small_however_long_it_is_fed() -> None:
    asked = replace(ASKED, cpu_evict_time_window_s=86_400)
    remembered = BeCpuHistory()
    remembered.window(asked)
    one = reading()
    for number in range(50_000):
        remembered.saw(number * 2 * SECOND_NS, one, FACTS, [BATCH])

    assert len(pickle.dumps(remembered)) < 20_000
