"""How much is to be released of what a node uses."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slacktide.streams.decisions.evict.evict_tasks import Release, UsageThreshold, by_usage


def release(
    used: int | None = 950, threshold_pct: int | None = 80, lower_pct: int | None = None, capacity: int = 1000
) -> Release:
    at = UsageThreshold(threshold_pct=threshold_pct, lower_pct=lower_pct)
    return by_usage("F", "mem_bytes", capacity=capacity, used=used, at=at)


@pytest.mark.parametrize(
    ("threshold_pct", "lower_pct", "terms"),
    [
        pytest.param(None, 70, {"lower_pct": 70}, id="no threshold"),
        pytest.param(-1, -2, {"threshold_pct": -1, "lower_pct": -2}, id="a negative threshold"),
        pytest.param(80, 80, {"threshold_pct": 80, "lower_pct": 80}, id="a lower percent at the threshold"),
        pytest.param(80, 81, {"threshold_pct": 80, "lower_pct": 81}, id="a lower percent above it"),
    ],
)
def test_thresholds_that_are_refused(threshold_pct: int | None, lower_pct: int, terms: dict) -> None:
    refused = release(threshold_pct=threshold_pct, lower_pct=lower_pct)

    assert (refused.status, refused.amounts) == ("invalid_config", {})
    assert [(because.of, because.bound, because.terms) for because in refused.because] == [
        ("F", "invalid_config", terms)
    ]


@pytest.mark.parametrize(
    ("case", "amount"),
    [
        pytest.param({}, 170, id="down to two percent below the threshold"),
        pytest.param({"lower_pct": 50}, 450, id="down to the lower percent"),
        pytest.param({"lower_pct": 0}, 950, id="a lower percent of 0 is one"),
        pytest.param({"used": 800}, 20, id="at the threshold"),
        pytest.param({"used": 809}, 20, id="percents are whole: 80"),
        pytest.param({"used": 799}, None, id="percents are whole: 79"),
        pytest.param({"used": None}, None, id="no metric"),
        pytest.param({"threshold_pct": 0, "used": 0}, 20, id="a threshold of 0 releases what nobody uses"),
        pytest.param({"used": 1500, "threshold_pct": 120}, 320, id="more than all"),
        pytest.param({"used": 99, "capacity": 99, "lower_pct": 33}, 66, id="the amount is whole: 66.33"),
    ],
)
def test_how_much(case: dict, amount: int | None) -> None:
    found = release(**case)

    assert found.status == ("nothing_to_release" if amount is None else "release")
    assert found.amounts == ({} if amount is None else {"mem_bytes": amount})


@pytest.mark.parametrize(
    ("used", "bound", "terms"),
    [
        (None, "no_metric", {}),
        (700, "below_threshold", {"used_bytes": 700, "used_pct": 70}),
        (905, "formula", {"used_bytes": 905, "used_pct": 90, "release_bytes": 120}),
    ],
)
def test_the_arithmetic_is_told(used: int | None, bound: str, terms: dict) -> None:
    (because,) = release(used).because

    assert (because.of, because.bound) == ("F/mem_bytes", bound)
    before = {"capacity_bytes": 1000, "threshold_pct": 80, "lower_pct": 78}
    assert list(because.terms.items()) == list((before | terms).items())


def test_cpu_is_in_millicores() -> None:
    at = UsageThreshold(threshold_pct=80, lower_pct=None)
    found = by_usage("F", "cpu_milli", capacity=4000, used=4000, at=at)

    assert found.amounts == {"cpu_milli": 880}
    assert found.because[0].terms["release_milli"] == 880


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 100), st.none() | st.integers(-5, 99))
def test_what_stays_is_near_the_lower_percent(capacity: int, used: int, threshold: int, lower: int | None) -> None:
    """Only the whole percents are lost: less than one percent of the node, and a byte."""
    lower_pct = threshold - 2 if lower is None else lower
    assume(lower_pct < threshold)

    found = release(used, threshold, lower, capacity)

    if 100 * used < threshold * capacity:
        assert found.amounts == {}
    else:
        stays_pct = 100 * (used - found.amounts["mem_bytes"]) / capacity
        assert 0 <= stays_pct - lower_pct < 1 + 100 / capacity
