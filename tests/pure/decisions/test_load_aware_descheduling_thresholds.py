"""Thresholds of load-aware descheduling: what counts as over and as room, per node and resource."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_classify import (
    Band,
    average_used,
    node_limits,
    watched_resources,
    with_unit,
)
from testbed.vectors import each_row


def test_every_resource_that_any_threshold_names_is_watched_in_both_views() -> None:
    node = Band(low={"b": 1}, high={"a": 1})
    prod = Band(low={"d": 1}, high={"c": 1})

    assert watched_resources(node, prod) == ("a", "b", "c", "d", "memory")


def test_the_average_is_over_the_nodes_and_one_without_the_resource_counts_as_idle() -> None:
    loads = [({"cpu": 300}, {"cpu": 1_000}), ({"cpu": 600}, {"cpu": 1_000}), ({"cpu": 600}, {"memory": 5})]

    assert average_used(["cpu", "memory"], loads) == {"cpu": 30.0, "memory": 0.0}
    assert average_used(["cpu"], loads[:1]) == {"cpu": 30.0}
    assert average_used(["cpu"], []) == {"cpu": 0.0}


@each_row("resource", "named")
def test_terms_name_the_unit(resource: str, named: str) -> None:
    assert with_unit(resource) == named


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
