"""Label selectors as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.selector import matches
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, is_empty, selector_of
from testbed.vectors import each_row


def expression(operator: str, *values: str, key: str = "app") -> Expression:
    return Expression(key=key, operator=operator, values=values)


@each_row("wanted", "labels", "expected")
def test_an_expression_is_about_one_label(wanted: Expression, labels: dict, *, expected: bool) -> None:
    assert matches(selector_of({}, [wanted]), labels) is expected


def test_all_parts_must_hold() -> None:
    both = selector_of({"app": "spark"}, [expression("Exists", key="tier"), expression("NotIn", "x", key="tier")])

    assert matches(both, {"app": "spark", "tier": "a"})
    assert not matches(both, {"app": "spark"})
    assert not matches(both, {"app": "spark", "tier": "x"})
    assert not matches(both, {"app": "web", "tier": "a"})


def test_an_empty_selector_matches_everything() -> None:
    assert is_empty(selector_of({}, []))
    assert not is_empty(selector_of({"app": "spark"}, []))
    assert not is_empty(selector_of({}, [expression("Exists")]))
    assert matches(selector_of({}, []), {})


@each_row("wanted", "why")
def test_an_invalid_expression_is_refused_with_the_reason(wanted: Expression, why: str) -> None:
    assert selector_of({"app": "spark"}, [expression("Exists"), wanted]) == InvalidSelector(why=why)


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        pytest.param("a", True, id="one character"),
        pytest.param("A.b_c-9", True, id="dots, underscores and dashes inside"),
        pytest.param("-a", False, id="a dash in front"),
        pytest.param("a.", False, id="a dot at the end"),
        pytest.param("a b", False, id="a space"),
        pytest.param("ä", False, id="a letter beyond ASCII"),
        pytest.param("a\n", False, id="a line's end"),
        pytest.param("a" * 63, True, id="63 characters"),
        pytest.param("a" * 64, False, id="64 characters"),
        pytest.param("koordinator.sh/qosClass", True, id="a domain in front"),
        pytest.param("Koordinator.sh/qosClass", False, id="a domain has small letters"),
        pytest.param("koordinator..sh/qosClass", False, id="a domain with a gap"),
        pytest.param("-k/a", False, id="a domain's part begins with no dash"),
        pytest.param("k-/a", False, id="nor ends with one"),
        pytest.param("a-1.b/c", True, id="a dash inside a domain"),
        pytest.param("/a", False, id="an empty domain"),
        pytest.param("a/", False, id="a domain alone"),
        pytest.param("a/b/c", False, id="two slashes"),
        pytest.param("b" * 253 + "/a", True, id="a domain of 253 characters"),
        pytest.param("b" * 254 + "/a", False, id="a domain of 254"),
    ],
)
def test_a_key_is_one_that_labels_can_have(key: str, *, valid: bool) -> None:
    assert isinstance(selector_of({key: "x"}, []), InvalidSelector) is not valid
    assert isinstance(selector_of({}, [expression("Exists", key=key)]), InvalidSelector) is not valid


@each_row("value", "valid")
def test_a_value_is_one_that_labels_can_have(value: str, *, valid: bool) -> None:
    assert isinstance(selector_of({"app": value}, []), InvalidSelector) is not valid


@given(st.dictionaries(st.text("ab/.-", max_size=3), st.text("ab -", max_size=3), max_size=3))
def test_a_valid_selector_of_labels_matches_just_those_labels(labels: dict[str, str]) -> None:
    selector = selector_of(labels, [])

    if not isinstance(selector, InvalidSelector):
        assert matches(selector, labels | {"more": "x"})
        assert not any(matches(selector, {k: v for k, v in labels.items() if k != key}) for key in labels)
