"""Parses a point in time on the command line: absolute, or relative to the end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from slacktide.deploy.runtime.text import Duration


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
