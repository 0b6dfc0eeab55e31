"""Which nodes a strategy is for, and whether two strategies are for the same ones."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.selector import Requirement, Selector, matches, overlaps

POOL_GPU = Selector(match_labels={"pool": "gpu"})


def wants(key: str, operator: str, *values: str) -> Selector:
    return Selector(match_expressions=(Requirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "labels", "meant"),
    [
        pytest.param(POOL_GPU, {"pool": "gpu", "zone": "a"}, True, id="more labels do no harm"),
        pytest.param(POOL_GPU, {"pool": "cpu"}, False, id="another value"),
        pytest.param(Selector(match_labels={"pool": ""}), {}, False, id="an empty value is not an absent label"),
        pytest.param(Selector(), {}, True, id="an empty selector means every node"),
        pytest.param(wants("pool", "In", "a", "b"), {"pool": "b"}, True, id="one of them"),
        pytest.param(wants("pool", "In", "a", "b"), {}, False, id="none of them where it is absent"),
        pytest.param(wants("pool", "NotIn", "a"), {}, True, id="not that one where it is absent"),
        pytest.param(wants("pool", "NotIn", "a"), {"pool": "a"}, False, id="that very one"),
        pytest.param(wants("pool", "Exists"), {"pool": ""}, True, id="there, though empty"),
        pytest.param(wants("pool", "DoesNotExist"), {"pool": ""}, False, id="there, and must not be"),
    ],
)
def test_a_selector_means_what_it_means_in_kubernetes(selector: Selector, labels: dict, *, meant: bool) -> None:
    assert matches(selector, labels) is meant


@pytest.mark.parametrize(
    ("other", "meet"),
    [
        pytest.param(Selector(match_labels={"pool": "gpu", "zone": "a"}), True, id="a part of the same nodes"),
        pytest.param(Selector(match_labels={"pool": "cpu"}), False, id="others"),
        pytest.param(Selector(match_labels={"zone": "a"}), False, id="unrelated labels: only the nodes can tell"),
        pytest.param(wants("pool", "In", "cpu", "gpu"), True, id="one value in common"),
        pytest.param(wants("pool", "NotIn", "gpu"), False, id="all but these"),
        pytest.param(wants("zone", "NotIn", "b"), True, id="a node without that label is meant by both"),
        pytest.param(wants("zone", "Exists"), False, id="a label that the one does not speak of"),
        pytest.param(wants("pool", "Exists"), True, id="any value of it"),
        pytest.param(wants("pool", "DoesNotExist"), False, id="those without the label"),
    ],
)
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
