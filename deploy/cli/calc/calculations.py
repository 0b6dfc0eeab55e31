"""Lists the calculations, applies one to a line of input, and formats its arithmetic."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.forms import arguments_in_cases
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.decisions.because import Because

FAMILIES = (
    *("resources", "admission", "prediction", "cpu", "cores", "cores_pools", "evict", "load", "numa"),
    *("queue_quota", "queue_order", "queue_assign", "queue_cycle", "jobs", "kinds"),
)
"""Modules. Each computes a rule by its function ``calc_NAME``, whose docstring describes it."""
PREFIX = "calc_"


@cache
def calculations() -> Mapping[str, Callable[..., Calculated]]:
    """Return the functions of all rules by name."""
    modules = [importlib.import_module(f"{__package__}.{family}") for family in FAMILIES]
    return {name.removeprefix(PREFIX): one for module in modules for name, one in vars(module).items()
            if name.startswith(PREFIX) and one.__module__ == module.__name__}  # fmt: skip


_encoder = msgspec.json.Encoder()
_KEY_IN = "key` in `"
"""Msgspec's text for the key of a map, before the map's path."""
I = TypeVar("I")  # noqa: E741 - the input


class Case(msgspec.Struct, Generic[I], frozen=True):
    """One line."""

    name: str
    input: I
    admit: dict[str, Any] | None = None
    """Of ``kinds``: nodes of each pod set."""


class _Named(msgspec.Struct, frozen=True):
    name: str


@dataclass(frozen=True, slots=True)
class Answered:
    """One line's result."""

    name: str | None
    calculated: Calculated | None
    """None: it could not be computed."""
    line: bytes
    """The result as JSON."""


class Calculation:
    """Computes one decision rule for cases."""

    def __init__(self, name: str, *, explain: bool = False) -> None:
        function = calculations()[name]
        kind, self._calculate = arguments_in_cases(function)
        self._admits = "admit" in inspect.signature(function).parameters
        self._decoder: msgspec.json.Decoder[Case[Any]] = msgspec.json.Decoder(Case[kind])  # type: ignore[valid-type]
        self._explain = explain

    def answer(self, line: str | bytes) -> Answered:
        """Compute one line. It never raises."""
        try:
            case = self._decoder.decode(line)
        except MALFORMED as exc:
            return _failed(_name_in(line), _text_of(exc))
        try:
            more = {"admit": case.admit} if self._admits else {}
            calculated = self._calculate(case.input, "input", **more)
            result: dict[str, object] = {"name": case.name, "output": calculated.output}
            if self._explain:
                result["because"] = calculated.because
            return Answered(case.name, calculated, _encoder.encode(result))
        except SlacktideError as exc:
            return _failed(case.name, str(exc))
        except OverflowError:
            return _failed(case.name, "input: the sum of the amounts is too large")


def _failed(name: str | None, error: str) -> Answered:
    return Answered(name, None, _encoder.encode({"name": name, "error": error}))


def _name_in(line: str | bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Named).name
    except MALFORMED:
        return None


def _text_of(exc: Exception) -> str:
    """Return msgspec's text after the field's path: ``input.node.capacity.cpu_milli: Expected ...``."""
    what, at, path = str(exc).rpartition(" - at `")
    if not at:
        return str(exc)
    of_key = "key: " if path.startswith(_KEY_IN) else ""
    return f"{path.removeprefix(_KEY_IN).strip('$.`')}: {of_key}{what}"


BAR_WIDTH = 40
GIB = 1 << 30


def waterfall(answered: Answered) -> str:
    """Return the case's name, each figure with its terms and the step that bound it, then the output."""
    head = answered.name or "(no name)"
    if answered.calculated is None:
        return f"{head}\n  {answered.line.decode()}\n"
    results = [f"  = {name}: {_encoder.encode(value).decode()}" for name, value in answered.calculated.output.items()]
    return "\n".join([head, *(block(because) for because in answered.calculated.because), *results]) + "\n"


def block(because: Because) -> str:
    """Format one figure. In a sum, each bar starts at the end of the one before it."""
    rows = [f"  {because.of}: {because.bound}"]
    signs = {part[1:]: part[0] for part in because.adds}
    name_width = max(map(len, because.terms), default=0)
    scale = max((because.terms[name] for name, sign in signs.items() if sign == "+"), default=0)
    level: int | float = 0
    for name, value in because.terms.items():
        sign, bar = signs.get(name, " "), ""
        if sign != " ":
            before, level = level, level + value if sign == "+" else level - value
            bar = _bar(before, level, scale)
        elif signs and name == list(because.terms)[-1]:
            bar = _bar(0, value, scale)
        rows.append(f"    {sign} {name:<{name_width}}  {_with_unit(name, value):>22}  {bar}".rstrip())
    return "\n".join(rows)


def _bar(start: float, end: float, scale: float) -> str:
    """Draw a bar: full for added parts, hollow for subtracted parts."""
    if scale <= 0:
        return ""
    low, high = sorted(min(BAR_WIDTH, max(0, round(BAR_WIDTH * each / scale))) for each in (start, end))
    return " " * low + ("█" if end >= start else "░") * (high - low)


def _with_unit(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value / GIB:,.2f} GiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
