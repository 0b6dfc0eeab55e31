"""Formats results as text, JSON and YAML, and parses times and names of the command line."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any

import click
import msgspec

from slacktide.schemas import units

count = units.count
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
CLEAR = "\x1b[H\x1b[2J\x1b[3J"
DAYS_MAX = 10_000
"""Longer ago precedes all clocks."""


class Duration(click.ParamType):
    """A duration such as ``90s``, ``5m``, ``2h`` or ``1d``; parsed to milliseconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Reject a number without a unit."""
        match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a time span such as 90s, 5m, 2h or 1d", param, ctx)
        span_ms = int(match[1]) * _UNITS_MS[match[2]]
        if span_ms > DAYS_MAX * _UNITS_MS["d"]:
            self.fail(f"{value!r} is longer than {DAYS_MAX}d", param, ctx)
        return span_ms


class Name(click.ParamType):
    """A name of a node, pod or key: UTF-8 text."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reject bytes that are not text: no record has such a name."""
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not UTF-8", param, ctx)
        return text


def printable(text: str, *, keep: str = "\n") -> str:
    """Escape unprintable characters, except those to keep, so that text cannot control the terminal.

    Names, reasons and headers in Kafka are untrusted.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)


def show(text: str = "", *, err: bool = False, nl: bool = True, clear: bool = False) -> None:
    """Print text. This and ``show_json`` are the only ways to print, so that no text controls the terminal."""
    click.echo((CLEAR if clear else "") + printable(text), err=err, nl=nl)


def show_json(found: bytes | str) -> None:
    """Print JSON that is equal, with the escapes of JSON: unprintable characters occur only within its strings."""
    text = found if isinstance(found, str) else found.decode()
    escaped = (one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)
    click.echo(text if text.isprintable() else "".join(escaped))


def output_option(*kinds: str, default: str = "", short: bool = True) -> Callable[[Any], Any]:
    """Return the option ``--output`` of a command, by default the first kind; ``short``: also ``-o``."""
    names = ["-o", "--output"] if short else ["--output"]
    return click.option(*names, type=click.Choice(kinds), default=default or kinds[0], show_default=True)


def rendered(result: object, output: str, text: Callable[[], str], *, indent: int = 2) -> str:
    """Return a command's result as ``json`` or ``yaml``, and for any other ``output`` its text.

    Args:
        result: a struct, or plain data.
        output: the chosen kind.
        text: formats the result for people.
        indent: of JSON; 0: on one line.
    """
    if output == "json":
        encoded = msgspec.json.encode(result)
        return (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    return msgspec.yaml.encode(result).decode().rstrip() if output == "yaml" else text()


def show_result(result: object, output: str, text: Callable[[], str], *, indent: int = 2) -> None:
    """Print a command's result, as ``rendered`` formats it."""
    made = rendered(result, output, text, indent=indent)
    show_json(made) if output in {"json", "yaml"} else show(made)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Pad columns to their widest cell, one line per row; numbers are right-aligned."""
    texts = [[printable(str(cell), keep="") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [bool(rows) and all(isinstance(row[index], int | float) for row in rows) for index in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(head), *texts]
    )


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap text without breaking words, so that a path or a command can be copied; ``indent``: of further lines."""
    return wrap(text, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)


def instant(epoch_ms: int) -> str:
    """Format an instant as UTC with milliseconds. A year outside of the calendar gives the bare number."""
    try:
        when = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time; ``ms``: UTC epoch, or milliseconds before the end."""

    ms: int
    before_end: bool

    def at(self, end_ms: int) -> int:
        """Return UTC epoch milliseconds."""
        return max(0, end_ms - self.ms) if self.before_end else self.ms


class MomentType(click.ParamType):
    """``2026-03-01T12:00:00Z`` (UTC unless it has an offset), or ``90s``, ``5m``, ``2h``, ``1d`` before the end."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Parse a moment; reject any other text."""
        text = str(value)
        try:
            when = datetime.fromisoformat(text)
            when = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            pass
        else:
            return Moment(round(when.timestamp() * 1_000), before_end=False)
        try:
            return Moment(Duration().convert(text, param, ctx), before_end=True)
        except click.BadParameter:
            self.fail(f"{text!r} is neither a time such as 2026-03-01T12:00:00Z nor a time span such as 2h", param, ctx)


since_option = click.option(
    "--since",
    type=MomentType(),
    default="7d",
    show_default=True,
    help="Start of the span: a time, or a duration before its end.",
)
