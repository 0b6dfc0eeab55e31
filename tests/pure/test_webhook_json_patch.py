"""The JSON patch that leads from one value to another."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.webhook.review import difference
from testbed.json_patch import applied

keys = st.text(alphabet="ab/~", max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(alphabet="ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, where true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(before=values, after=values)
def test_applied_to_the_one_it_gives_the_other(before: Any, after: Any) -> None:
    assert same(applied(before, difference(before, after)), after)


@given(value=values)
def test_between_equal_values_there_is_nothing_to_do(value: Any) -> None:
    assert difference(value, copy.deepcopy(value)) == []


def test_only_what_changed_is_written() -> None:
    before = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "x", "cpu": 1}, {"name": "y"}]}}
    after = {"metadata": {"labels": {"a": "1", "k/q": "2"}}, "spec": {"containers": [{"name": "x"}, {"name": "z"}]}}

    assert difference(before, after) == [
        {"op": "add", "path": "/metadata/labels/k~1q", "value": "2"},
        {"op": "remove", "path": "/spec/containers/0/cpu"},
        {"op": "replace", "path": "/spec/containers/1/name", "value": "z"},
    ]


def test_a_boolean_is_no_number() -> None:
    assert difference({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
