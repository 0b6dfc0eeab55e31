"""Examples told step by step in a file of tests/pure/scenarios: what is done, and what that gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

FOLDER = Path(__file__).parents[1] / "pure" / "scenarios"


def scenarios(name: str) -> pytest.MarkDecorator:
    """One test for each example of the file."""
    cases = yaml.load((FOLDER / f"{name}.yaml").read_text(), yaml.CSafeLoader)
    return pytest.mark.parametrize("case", [pytest.param(each, id=each["name"]) for each in cases])


def plain(found: Any) -> Any:
    """As JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(found))


def run(case: dict[str, Any], kind: Callable[..., Any]) -> None:
    """Make one of ``kind`` and call its methods; a last argument that is a map has those that are named."""
    of = kind(**case.get("given", {}))
    for number, step in enumerate(case["steps"], start=1):
        what, given = next(iter(step.items()))
        named = given[-1] if given and isinstance(given[-1], dict) else {}
        found = plain(getattr(of, what)(*given[: len(given) - bool(named)], **named))
        assert found == step.get("gives"), f"step {number}, {what}: {case.get('why', case['name'])}"
