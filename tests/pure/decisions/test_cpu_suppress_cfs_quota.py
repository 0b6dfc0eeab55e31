"""The next CFS quota of the best-effort group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import QUOTA_US_MIN, QuotaStep, next_cfs_quota
from testbed.cpu_cases import answered


def step(allowed_milli: int, current_us: int | None, capacity_milli: int = 10_000) -> QuotaStep:
    """On ten CPUs a raise is at most 100 ms, and less than 10 ms is no change."""
    return next_cfs_quota(allowed_milli=allowed_milli, current_us=current_us, capacity_milli=capacity_milli)


@pytest.mark.parametrize(
    ("allowed_milli", "current_us", "quota_us", "bound"),
    [
        pytest.param(5_000, None, 500_000, "target", id="the first one has no step"),
        pytest.param(30, None, 3_000, "target", id="a small first one is no exception"),
        pytest.param(20, None, 2_000, "floored", id="nor is the smallest"),
        pytest.param(-9_000, None, 2_000, "floored", id="nothing is allowed"),
        pytest.param(5_000, 900_000, 500_000, "target", id="a cut is done at once"),
        pytest.param(5_000, 510_000, 500_000, "target", id="a cut by a hundredth of the node"),
        pytest.param(5_000, 509_999, 509_999, "bypassed", id="a smaller cut is left"),
        pytest.param(5_000, 490_000, 500_000, "target", id="a raise by a hundredth"),
        pytest.param(5_000, 490_001, 490_001, "bypassed", id="a smaller raise is left"),
        pytest.param(5_000, 500_000, 500_000, "bypassed", id="there already"),
        pytest.param(5_000, 400_000, 500_000, "target", id="a raise by a tenth"),
        pytest.param(5_000, 399_999, 499_999, "stepped", id="a larger raise is cut to a tenth"),
        pytest.param(-1, 9_000, 2_000, "floored", id="the floor is gone to however near it is"),
        pytest.param(20, 9_000, 2_000, "floored", id="also where it is the very target"),
        pytest.param(21, 9_000, 9_000, "bypassed", id="what is just above it is not"),
    ],
)
def test_the_next_quota(allowed_milli: int, current_us: int | None, quota_us: int, bound: str) -> None:
    result = step(allowed_milli, current_us)

    assert (result.quota_us, result.bound) == (quota_us, bound)


@pytest.mark.parametrize(
    ("capacity_milli", "quota_us"),
    [
        pytest.param(9_001, 300_000, id="a part of a CPU counts as one"),
        pytest.param(9_000, 290_000, id="nine are nine"),
        pytest.param(0, 200_000, id="a node without CPUs raises nothing"),
    ],
)
def test_steps_are_of_whole_cpus(capacity_milli: int, quota_us: int) -> None:
    assert step(9_000, 200_000, capacity_milli).quota_us == quota_us


@pytest.mark.parametrize(
    ("allowed_milli", "current_us", "terms"),
    [
        pytest.param(5_000, None, {"allowed_milli": 5_000, "target_us": 500_000}, id="first"),
        pytest.param(
            5_000, 600_000, {"allowed_milli": 5_000, "target_us": 500_000, "current_us": 600_000}, id="target"
        ),
        pytest.param(
            5_000,
            500_001,
            {"allowed_milli": 5_000, "target_us": 500_000, "current_us": 500_001, "bypass_below_us": 10_000},
            id="bypassed",
        ),
        pytest.param(
            5_000,
            100_000,
            {"allowed_milli": 5_000, "target_us": 500_000, "current_us": 100_000, "step_us_max": 100_000},
            id="stepped",
        ),
    ],
)
def test_the_terms_are_the_arithmetic(allowed_milli: int, current_us: int | None, terms: dict) -> None:
    assert step(allowed_milli, current_us).terms == terms


allowances = st.integers(-5_000, 200_000)
currents = st.integers(QUOTA_US_MIN, 20_000_000)
capacities = st.integers(0, 128_000)


@given(allowances, currents, capacities)
def test_a_cut_is_never_limited(allowed_milli: int, current_us: int, capacity_milli: int) -> None:
    """Whatever is below the quota by a hundredth of the node or more is gone to at once."""
    target_us = max(allowed_milli * 100, QUOTA_US_MIN)
    quota_us = step(allowed_milli, current_us, capacity_milli).quota_us

    if target_us <= current_us - -(-capacity_milli // 1000) * 1_000:
        assert quota_us == target_us


@given(allowances, currents, capacities)
def test_a_raise_is_never_above_a_tenth_of_the_node_nor_above_the_target(
    allowed_milli: int, current_us: int, capacity_milli: int
) -> None:
    quota_us = step(allowed_milli, current_us, capacity_milli).quota_us

    if quota_us > current_us:
        assert quota_us <= max(allowed_milli * 100, QUOTA_US_MIN)
        assert quota_us - current_us <= -(-capacity_milli // 1000) * 10_000


@given(allowances, st.none() | currents, capacities)
def test_there_is_always_a_quota_of_at_least_the_floor(
    allowed_milli: int, current_us: int | None, capacity_milli: int
) -> None:
    quota_us = step(allowed_milli, current_us, capacity_milli).quota_us

    assert isinstance(quota_us, int)
    assert quota_us >= QUOTA_US_MIN


@given(st.integers(0, 10_000), currents)
def test_steps_come_to_rest_within_a_hundredth_of_the_target(allowed_milli: int, current_us: int) -> None:
    for _ in range(12):
        current_us = step(allowed_milli, current_us).quota_us

    assert abs(current_us - max(allowed_milli * 100, QUOTA_US_MIN)) < 10_000
    assert step(allowed_milli, current_us).quota_us == current_us


def test_in_a_case_an_unset_quota_is_minus_one() -> None:
    case = {"be_allowed_cpu_milli": 50, "current_be_cfs_quota_us": -1, "node_capacity_cpu_milli": 10_000}

    assert answered("cpu_suppress_cfs_quota", case) == {"output": {"be_cfs_quota_us": 5_000}}
