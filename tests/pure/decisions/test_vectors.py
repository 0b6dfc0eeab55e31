"""The decision core, as ``slacktide calc`` calls it, against the reference implementation (koordinator a7a1b76b).

``pod_placement`` has no reference: its cases were reckoned by hand.
"""

import json
from functools import cache

import pytest

from slacktide.deploy.cli.calc.calculations import CALCULATIONS, Calculation
from testbed.vectors import lines

calculation = cache(Calculation)


def cases():
    for name in CALCULATIONS:
        for line in lines(name):
            case = json.loads(line)
            yield pytest.param(name, line, case["expected"], id=f"{name}-{case['name']}")


def bare(value):
    """In a pod, what is absent, null or empty is the same; the text of an annotation is free."""
    if isinstance(value, dict):
        kept = {key: bare(one) for key, one in value.items() if key != "extended_resource_spec_annotation_text"}
        return {key: one for key, one in kept.items() if one not in (None, {}, [])}
    return [bare(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "line", "expected"), list(cases()))
def test_the_result_is_the_references(name: str, line: str, expected: dict) -> None:
    answered = json.loads(calculation(name).answer(line).line)

    assert "error" not in answered, answered["error"]
    if name == "webhook_colocation_profile":
        assert bare(answered["output"]) == bare(expected)
    else:
        assert answered["output"] == expected
