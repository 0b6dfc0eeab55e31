"""Cases as data: of each rule, ``tests/vectors/NAME.jsonl`` or ``NAME.jsonl.gz``, and of what calls the rules."""

import gzip
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
import pytest

from testbed.snapshots import cases

Test = TypeVar("Test", bound=Callable[..., object])
Message = TypeVar("Message", bound=msgspec.Struct)

VECTORS = Path(__file__).parent.parent / "vectors"
CASES = Path(__file__).parent.parent / "pure" / "decisions" / "cases"


def lines(name: str) -> list[str]:
    plain, packed = VECTORS / f"{name}.jsonl", VECTORS / f"{name}.jsonl.gz"
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode().splitlines()
    return plain.read_text().splitlines() if plain.exists() else []


def each_row(*arguments: str) -> Callable[[Test], Test]:
    """A test of each row under its name in ``cases/<test module>.yaml``, whose values are read by its types.

    Bytes stand there as their text in UTF-8.
    """

    def value(plain: Any, kind: Any) -> Any:
        return plain.encode() if kind is bytes else msgspec.convert(plain, kind)

    def mark(test: Test) -> Test:
        found = cases(inspect.getfile(test))[test.__name__.removeprefix("test_")]
        named = found.items() if isinstance(found, dict) else ((None, row) for row in found)
        kinds = [get_type_hints(test).get(name, Any) for name in arguments]
        params = [
            pytest.param(*map(value, row if len(arguments) > 1 else [row], kinds), id=fact) for fact, row in named
        ]
        return pytest.mark.parametrize(arguments, params)(test)

    return mark


def changed(message: Message, changes: Mapping[str, Any]) -> Message:
    """The message with what a row says of its fields, which is read by their types."""
    return msgspec.convert(msgspec.to_builtins(message) | changes, type(message))


def stated(name: str) -> Iterator[Any]:
    """Each case of ``cases/NAME.jsonl``, its input and what is expected, for ``parametrize``."""
    for line in (CASES / f"{name}.jsonl").read_text().splitlines():
        case = json.loads(line)
        yield pytest.param(case["input"], case["expected"], id=case["name"])


def stated_test(name: str, *rules: Callable[..., Any]) -> Callable[..., None]:
    """A test of each case of ``cases/NAME.jsonl``, whose ``rule`` is one of these functions of messages."""
    by_name = {rule.__name__: rule for rule in rules}
    cases = [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]

    @pytest.mark.parametrize("case", [pytest.param(one, id=one["name"]) for one in cases])
    def test_case(case: dict[str, Any]) -> None:
        assert json.dumps(_decided(by_name[case["rule"]], case["input"])) == json.dumps(case["expected"])

    return test_case


def _decided(rule: Callable[..., Any], given: dict[str, Any]) -> Any:
    """The result of a function as JSON; its arguments are read by their types."""
    kinds = get_type_hints(rule)
    found = rule(**{name: msgspec.convert(value, kinds[name]) for name, value in given.items()})
    if isinstance(found, Mapping | Iterator):
        found = list(found.items() if isinstance(found, Mapping) else found)
    return json.loads(msgspec.json.encode(found))
