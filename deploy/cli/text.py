"""Words for people: tables, durations, instants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DAYS_MAX = 10_000
"""Longer ago lies before all clocks."""


class Duration(click.ParamType):
    """A time span such as ``90s``, ``5m``, ``2h`` or ``1d``; milliseconds once read."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Refuse what has no unit: a bare number could mean anything."""
        match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a time span such as 90s, 5m, 2h or 1d", param, ctx)
        span_ms = int(match[1]) * _UNITS_MS[match[2]]
        if span_ms > DAYS_MAX * _UNITS_MS["d"]:
            self.fail(f"{value!r} is longer than {DAYS_MAX}d", param, ctx)
        return span_ms


class Name(click.ParamType):
    """What the log calls a node, a pod, a key: text in UTF-8."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse bytes that are no text: no record is named by them."""
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not UTF-8", param, ctx)
        return text


def printable(text: str, *, keep: str = "\n") -> str:
    """Text that cannot steer a terminal: what is not printable is escaped, but for the characters to keep.

    Names, reasons and headers in Kafka are whatever their writers put there.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)


def show(text: str) -> None:
    """Print text for people."""
    click.echo(printable(text))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns padded to their widest cell, one line a row; numbers stand to the right."""
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


def count(number: int, noun: str) -> str:
    """So many of them, in the singular where it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def instant(epoch_ms: int) -> str:
    """UTC, to the millisecond; the bare number of a year that no calendar has: a clock may show anything."""
    try:
        when = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
