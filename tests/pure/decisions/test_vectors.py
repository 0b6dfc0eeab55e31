"""The decision core, as ``slacktide calc`` calls it, against the reference implementation (koordinator a7a1b76b).

Cases of ``pod_placement`` and those named ``own/`` have no reference: they were reckoned by hand. A case with
``because`` states the arithmetic too; one that is refused expects an ``error``.
"""

import json
from functools import cache

import pytest

from slacktide.deploy.cli.calc.calculations import Calculation, calculations
from testbed.vectors import lines


@cache
def calculation(name, *, explain):
    return Calculation(name, explain=explain)


def bare(value):
    """In a pod, what is absent, null or empty is the same; the text of an annotation is free."""
    if isinstance(value, dict):
        kept = {key: bare(one) for key, one in value.items() if key != "extended_resource_spec_annotation_text"}
        return {key: one for key, one in kept.items() if one not in (None, {}, [])}
    return [bare(one) for one in value] if isinstance(value, list) else value


def complaint(name, line):
    """What is wrong with the answer to a case, or ""."""
    case = json.loads(line)
    because, expected = case.get("because"), case["expected"]
    answered = json.loads(calculation(name, explain=because is not None).answer(line).line)
    output = {"error": answered["error"]} if "error" in answered else answered["output"]
    if name == "webhook_colocation_profile" and "error" not in answered:
        output, expected = bare(output), bare(expected)
    if output != expected:
        return f"{case['name']}: expected {expected}, not {output}"
    if json.dumps(answered.get("because")) != json.dumps(because):
        return f"{case['name']}: expected because {because}, not {answered.get('because')}"
    return ""


@pytest.mark.parametrize("name", [name for name in calculations() if lines(name)])
def test_the_results_are_the_references(name: str) -> None:
    """All cases of a rule in one test: of thousands, each would cost four times what it computes."""
    found = [complaint(name, line) for line in lines(name)]
    wrong = [one for one in found if one]

    assert not wrong, f"{len(wrong)} of {len(found)} cases, the first: {wrong[0]}"
