"""Which nodes a strategy is for, and whether two strategies are for the same ones."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.selector import Requirement, Selector, matches, overlaps
from testbed.vectors import each_row

POOL_GPU = Selector(match_labels={"pool": "gpu"})


def wants(key: str, operator: str, *values: str) -> Selector:
    return Selector(match_expressions=(Requirement(key=key, operator=operator, values=values),))


@each_row("selector", "labels", "meant")
def test_a_selector_means_what_it_means_in_kubernetes(selector: Selector, labels: dict, *, meant: bool) -> None:
    assert matches(selector, labels) is meant


@each_row("other", "meet")
def test_strategies_meet_where_a_node_with_the_labels_of_one_is_meant_by_both(other: Selector, *, meet: bool) -> None:
    assert any(overlaps([POOL_GPU, other])) is any(overlaps([other, POOL_GPU])) is meet


def test_each_that_meets_is_told_once_with_the_first_it_meets() -> None:
    assert list(overlaps([POOL_GPU, wants("pool", "In", "b"), POOL_GPU, wants("pool", "Exists")])) == [(2, 0), (3, 0)]


KEYS, VALUES = ("a", "b"), ("x", "y")
requirements = st.builds(
    lambda key, operator, values: Requirement(
        key=key, operator=operator, values=tuple(values) if operator.endswith("In") else ()
    ),
    st.sampled_from(KEYS),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
)
selectors = st.builds(
    Selector,
    match_labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
    match_expressions=st.lists(requirements, max_size=2).map(tuple),
)
NODES = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in product([None, *VALUES, "z"], repeat=len(KEYS))
]
"""With a value that no selector names, every way a node can differ."""


@given(selectors, selectors)
def test_a_meeting_is_found_by_trying_all_nodes(one: Selector, other: Selector) -> None:
    def spoken(selector: Selector) -> set[str]:
        return {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}

    met = any(
        matches(one, node) and matches(other, node) and (node.keys() <= spoken(one) or node.keys() <= spoken(other))
        for node in NODES
    )

    assert any(overlaps([one, other])) is met
