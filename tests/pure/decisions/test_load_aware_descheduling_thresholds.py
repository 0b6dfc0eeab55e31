"""Thresholds of load-aware descheduling: what counts as over and as room, per node and resource."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_classify import (
    Band,
    average_used,
    complete_band,
    node_limits,
    watched_resources,
    with_unit,
)

NODE = {"cpu": 96_000, "memory": 1 << 39}


def limits(low: dict, high: dict, capacity: dict = NODE, average: dict | None = None) -> dict:
    """Resource -> (low, high) on a node."""
    band = Band(low=low, high=high)
    complete = complete_band(band, watched_resources(band), deviation=average is not None)
    figured = node_limits("nodes/a/whole", complete, capacity, average)
    return {name: (figured.low[name], figured.high[name]) for name in figured.low}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(
            {"cpu": 30, "memory": 30}, {"cpu": 60, "memory": 70}, (28_800, 57_600), id="percents of the capacity"
        ),
        pytest.param({"cpu": 30.5}, {"cpu": 60}, (29_280, 57_600), id="parts of a percent"),
        pytest.param({"cpu": 29}, {"cpu": 57}, (27_839, 54_720), id="by doubles, the percent made a share first"),
        pytest.param({"cpu": 0}, {"cpu": 0}, (0, 0), id="nothing at all"),
        pytest.param({"cpu": 110}, {"cpu": 250}, (105_600, 240_000), id="more than the capacity"),
        pytest.param({"cpu": -10}, {"cpu": -1}, (-9_600, -960), id="less than nothing"),
        pytest.param({"cpu": 0.001}, {"cpu": -0.001}, (0, 0), id="parts of a unit are dropped"),
        pytest.param({"cpu": 30}, {}, (28_800, 0), id="a low one alone: the high one is 0"),
        pytest.param({}, {"cpu": 60}, (96_000, 96_000), id="a high one alone does not count"),
        pytest.param({}, {}, None, id="what no threshold names is not watched"),
    ],
)
def test_thresholds_are_percents_of_the_capacity(low: dict, high: dict, expected: tuple | None) -> None:
    assert limits(low, high).get("cpu") == expected


@pytest.mark.parametrize(
    ("low", "high", "average", "expected"),
    [
        pytest.param(10, 20, 50.0, (40_000, 70_000), id="below and above the average"),
        pytest.param(10, 20, 5.0, (0, 25_000), id="not below nothing"),
        pytest.param(10, 20, 90.0, (80_000, 100_000), id="not above the capacity"),
        pytest.param(10, 20, 120.0, (100_000, 100_000), id="nor on average"),
        pytest.param(-30, -60, 50.0, (80_000, 0), id="the wrong way round"),
        pytest.param(0, 20, 50.0, (100_000, 100_000), id="no distance below: no threshold at all"),
        pytest.param(0.5, 0, 50.0, (49_500, 50_000), id="less than one percent below"),
        pytest.param(None, 20, 50.0, (100_000, 100_000), id="a high one alone does not count"),
        pytest.param(10, None, 50.0, (40_000, 50_000), id="a low one alone: the average is the high one"),
    ],
)
def test_thresholds_may_be_distances_to_the_average(
    low: float | None, high: float | None, average: float, expected: tuple
) -> None:
    bands = [{} if percent is None else {"cpu": percent} for percent in (low, high)]

    assert limits(*bands, capacity={"cpu": 100_000}, average={"cpu": average, "memory": 0.0})["cpu"] == expected


def test_memory_is_watched_even_where_no_threshold_names_it() -> None:
    assert limits({}, {})["memory"] == (1 << 39, 1 << 39)
    assert limits({}, {}, average={"memory": 50.0})["memory"] == (1 << 39, 1 << 39)


def test_every_resource_that_any_threshold_names_is_watched_in_both_views() -> None:
    node = Band(low={"b": 1}, high={"a": 1})
    prod = Band(low={"d": 1}, high={"c": 1})

    assert watched_resources(node, prod) == ("a", "b", "c", "d", "memory")


def test_a_resource_the_node_lacks_has_thresholds_of_nothing() -> None:
    assert limits({"example.com/gpu": 30}, {"example.com/gpu": 100})["example.com/gpu"] == (0, 0)


def test_the_average_is_over_the_nodes_and_one_without_the_resource_counts_as_idle() -> None:
    loads = [({"cpu": 300}, {"cpu": 1_000}), ({"cpu": 600}, {"cpu": 1_000}), ({"cpu": 600}, {"memory": 5})]

    assert average_used(["cpu", "memory"], loads) == {"cpu": 30.0, "memory": 0.0}
    assert average_used(["cpu"], loads[:1]) == {"cpu": 30.0}
    assert average_used(["cpu"], []) == {"cpu": 0.0}


@pytest.mark.parametrize(
    ("resource", "named"),
    [
        ("cpu", "cpu_milli"),
        ("memory", "memory_bytes"),
        ("kubernetes.io/batch-cpu", "kubernetes.io/batch-cpu_milli"),
        ("kubernetes.io/mid-memory", "kubernetes.io/mid-memory_bytes"),
        ("example.com/gpu", "example.com/gpu_count"),
    ],
)
def test_terms_name_the_unit(resource: str, named: str) -> None:
    assert with_unit(resource) == named


@pytest.mark.parametrize(
    ("band", "average", "bound", "terms"),
    [
        pytest.param(
            Band(low={"cpu": 30.0}, high={"cpu": 60.0}),
            None,
            "percent",
            {"capacity_cpu_milli": 1_000, "low_pct": 30, "high_pct": 60, "low_cpu_milli": 300, "high_cpu_milli": 600},
            id="percents",
        ),
        pytest.param(
            Band(low={"cpu": 10.0}, high={"cpu": 20.0}),
            {"cpu": 50.0},
            "deviation",
            {
                "capacity_cpu_milli": 1_000,
                "average_pct": 50,
                "below_pct": 10,
                "above_pct": 20,
                "low_pct": 40,
                "high_pct": 70,
                "low_cpu_milli": 400,
                "high_cpu_milli": 700,
            },
            id="distances",
        ),
        pytest.param(
            Band(low={"cpu": 0.0}, high={"cpu": 20.0}),
            {"cpu": 50.0},
            "unlimited",
            {
                "capacity_cpu_milli": 1_000,
                "low_pct": 100,
                "high_pct": 100,
                "low_cpu_milli": 1_000,
                "high_cpu_milli": 1_000,
            },
            id="no distance",
        ),
    ],
)
def test_the_reason_tells_the_arithmetic_in_order(band: Band, average: dict | None, bound: str, terms: dict) -> None:
    (because,) = node_limits("nodes/a/whole", band, {"cpu": 1_000}, average).because

    assert (because.of, because.bound) == ("nodes/a/whole/cpu", bound)
    assert list(because.terms.items()) == list(terms.items())


loads = st.lists(
    st.tuples(
        st.fixed_dictionaries({"cpu": st.integers(0, 1 << 53)}), st.fixed_dictionaries({"cpu": st.integers(0, 1 << 53)})
    ),
    min_size=2,
    max_size=8,
)


@given(loads, st.randoms())
def test_the_order_of_nodes_does_not_change_the_average_by_a_digit(loads: list, random) -> None:
    shuffled = random.sample(loads, len(loads))

    assert average_used(["cpu"], shuffled) == average_used(["cpu"], loads)


@given(st.integers(0, 1 << 53), st.floats(0, 100), st.floats(0, 100), st.floats(0, 100) | st.none())
def test_low_is_never_above_high(capacity: int, low: float, more: float, average: float | None) -> None:
    averages = None if average is None else {"cpu": average}
    band = Band(low={"cpu": low}, high={"cpu": low + more})

    figured = node_limits("", band, {"cpu": capacity}, averages)

    assert 0 <= figured.low["cpu"] <= figured.high["cpu"]
