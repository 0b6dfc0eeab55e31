"""Text formatting: tables, durations, timestamps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

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


def instant(epoch_ms: int) -> str:
    """Format an instant as UTC with milliseconds. A year outside of the calendar gives the bare number."""
    try:
        when = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
