"""How much batch CPU is to be released where best-effort pods get too little of what they requested."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.cpu_evict import by_satisfaction
from slacktide.streams.decisions.evict.evict_tasks import Release

STARVED = BeCpu(usage_milli=9_500, request_milli=40_000, limit_milli=10_000)
"""A quarter of what was requested, and all but 5% of it used."""
WINDOW = BeCpuWindow(average=STARVED, current=STARVED, samples=60, interval_s=1)
POLICY = ResourceThreshold(
    cpu_evict_be_satisfaction_lower_pct=40, cpu_evict_be_satisfaction_upper_pct=80, cpu_evict_time_window_s=60
)
RELEASE_MILLI = 22_000
"""40,000 x (80% - 25%)."""


def release(window: BeCpuWindow = WINDOW, sold: int | None = None, **policy: object) -> Release:
    return by_satisfaction("F", window=window, allocatable_milli=sold, policy=replace(POLICY, **policy))


def both(**changes: float) -> BeCpuWindow:
    be = replace(STARVED, **changes)
    return replace(WINDOW, average=be, current=be)


def ending(found: Release) -> tuple[int | None, str]:
    """The amount, and the step that fixed it."""
    return found.amounts.get("batch_cpu_milli"), found.because[-1].bound


@pytest.mark.parametrize(
    ("lower_pct", "upper_pct", "valid"),
    [
        (None, 80, False),
        (40, None, False),
        (0, 80, False),
        (1, 80, True),
        (60, 80, True),
        (61, 80, False),
        (26, 26, True),
        (41, 40, False),
        (40, 99, True),
        (40, 100, False),
        (40, 101, False),
        (-1, 0, False),
    ],
)
def test_the_percents_that_are_taken(lower_pct: int | None, upper_pct: int | None, *, valid: bool) -> None:
    found = release(cpu_evict_be_satisfaction_lower_pct=lower_pct, cpu_evict_be_satisfaction_upper_pct=upper_pct)

    assert (found.status == "invalid_config") == (not valid)
    if not valid:
        given_pct = {"lower_pct": lower_pct, "upper_pct": upper_pct}
        assert (found.because[0].of, found.because[0].bound) == ("F", "invalid_config")
        assert found.because[0].terms == {name: pct for name, pct in given_pct.items() if pct is not None}


@pytest.mark.parametrize(
    ("samples", "interval_s", "window_s", "enough"),
    [
        pytest.param(20, 1, 60, True, id="a third of the window"),
        pytest.param(19, 1, 60, False, id="less"),
        pytest.param(20, 1, 62, True, id="the third is rounded down: 20"),
        pytest.param(20, 1, 63, False, id="not of 21"),
        pytest.param(7, 3, 63, True, id="samples count for their interval"),
        pytest.param(6, 3, 63, False, id="and no longer"),
        pytest.param(1, 30, 20, True, id="the window is no shorter than the interval"),
        pytest.param(0, 30, 2, False, id="also where that is all of it"),
        pytest.param(1, 1, None, True, id="no window: the interval"),
        pytest.param(0, 2, None, True, id="of which a third is nothing"),
    ],
)
def test_how_many_samples_it_takes(samples: int, interval_s: int, window_s: int | None, *, enough: bool) -> None:
    found = release(replace(WINDOW, samples=samples, interval_s=interval_s), cpu_evict_time_window_s=window_s)

    assert ending(found) == ((RELEASE_MILLI, "formula") if enough else (None, "too_few_samples"))


@pytest.mark.parametrize(
    ("window", "policy", "expected"),
    [
        pytest.param(WINDOW, {}, (RELEASE_MILLI, "formula"), id="starved and busy"),
        pytest.param(both(usage_milli=9_000), {}, (RELEASE_MILLI, "formula"), id="90% used is busy"),
        pytest.param(both(usage_milli=8_999), {}, (None, "average_not_busy"), id="less is not"),
        pytest.param(
            both(usage_milli=5_000),
            {"cpu_evict_be_usage_threshold_pct": 50},
            (RELEASE_MILLI, "formula"),
            id="busy at 50",
        ),
        pytest.param(both(limit_milli=999, usage_milli=0), {}, (31_001, "formula"), id="below a core: busy anyhow"),
        pytest.param(both(limit_milli=1_000, usage_milli=0), {}, (None, "average_not_busy"), id="not so with one"),
        pytest.param(both(limit_milli=0), {}, (None, "average_unlimited"), id="no limit"),
        pytest.param(both(limit_milli=-1), {}, (None, "average_unlimited"), id="unlimited"),
        pytest.param(both(request_milli=0), {}, (None, "average_no_request"), id="nothing requested"),
        pytest.param(both(request_milli=-1), {}, (None, "average_no_request"), id="less than nothing requested"),
        pytest.param(
            both(request_milli=4, limit_milli=1),
            {"cpu_evict_be_satisfaction_upper_pct": 50},
            (1, "formula"),
            id="a millicore is something",
        ),
        pytest.param(both(limit_milli=0.5, request_milli=0.5), {}, (None, "average_satisfied"), id="half a millicore"),
        pytest.param(both(request_milli=25_000), {}, (10_000, "formula"), id="satisfied just at the lower percent"),
        pytest.param(both(request_milli=24_999), {}, (None, "average_satisfied"), id="above it"),
        pytest.param(
            both(request_milli=4, limit_milli=1),
            {"cpu_evict_be_satisfaction_upper_pct": 40},
            (None, "average_satisfied"),
            id="less than a millicore is nothing",
        ),
        pytest.param(
            replace(WINDOW, current=replace(STARVED, request_milli=30_000)), {}, (14_000, "capped"), id="less by now"
        ),
        pytest.param(
            replace(WINDOW, current=replace(STARVED, request_milli=50_000)),
            {},
            (RELEASE_MILLI, "formula"),
            id="more by now",
        ),
        pytest.param(
            replace(WINDOW, current=replace(STARVED, usage_milli=0)), {}, (None, "current_not_busy"), id="idle by now"
        ),
        pytest.param(
            replace(WINDOW, current=replace(STARVED, limit_milli=20_000, usage_milli=20_000)),
            {},
            (None, "current_satisfied"),
            id="satisfied by now",
        ),
    ],
)
def test_how_much(window: BeCpuWindow, policy: dict, expected: tuple[int | None, str]) -> None:
    found = release(window, **policy)

    assert ending(found) == expected
    assert found.status == ("nothing_to_release" if expected[0] is None else "release")


@pytest.mark.parametrize(
    ("sold", "expected"),
    [
        pytest.param(10_000, (RELEASE_MILLI, "formula"), id="what is sold is the limit, whatever the real one"),
        pytest.param(0, (31_999, "formula"), id="sold out: next to nothing"),
        pytest.param(None, (None, "average_unlimited"), id="not sold at all"),
    ],
)
def test_what_is_sold_may_be_the_limit(sold: int | None, expected: tuple[int | None, str]) -> None:
    assert ending(release(both(limit_milli=40_000), sold, cpu_evict_policy="evictByAllocatable")) == expected


def test_a_limit_of_what_is_not_sold_is_shown_as_none_is_in_cgroups() -> None:
    (because,) = release(WINDOW, None, cpu_evict_policy="evictByAllocatable").because

    assert repr(because.terms["average_limit_milli"]) == "-1"


def test_what_is_sold_does_not_matter_by_real_limit() -> None:
    assert ending(release(WINDOW, 40_000, cpu_evict_policy="anything else")) == (RELEASE_MILLI, "formula")


def test_the_arithmetic_is_told() -> None:
    current = replace(STARVED, request_milli=50_000, usage_milli=10_000)

    (because,) = release(replace(WINDOW, current=current, samples=20)).because

    assert because.of == "F/batch_cpu_milli"
    assert list(because.terms.items()) == [
        ("window_s", 60),
        ("sampled_s", 20),
        ("lower_pct", 40),
        ("upper_pct", 80),
        ("busy_pct", 90),
        ("average_usage_milli", 9_500),
        ("average_request_milli", 40_000),
        ("average_limit_milli", 10_000),
        ("average_satisfied_ratio", 0.25),
        ("average_release_milli", 22_000),
        ("current_usage_milli", 10_000),
        ("current_request_milli", 50_000),
        ("current_limit_milli", 10_000),
        ("current_satisfied_ratio", 0.2),
        ("current_release_milli", 30_000),
        ("release_milli", 22_000),
    ]


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_requests_less_what_is_released_are_satisfied_to_the_upper_percent_of_all(
    usage: float, request: float, limit: float
) -> None:
    found = release(both(usage_milli=usage, request_milli=request, limit_milli=limit))

    if found.amounts:
        gap = 0.8 * request - limit
        assert gap - 1 - 1e-6 <= found.amounts["batch_cpu_milli"] <= gap + 1e-6
