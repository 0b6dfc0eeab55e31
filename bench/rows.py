"""One line of the table: a figure, its target, what was measured. Pure."""

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

HEAD = ("figure", "target", "measured", "n", "verdict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure as it is printed, and its numbers for ``--json``."""

    figure: str
    target: str = ""
    measured: str
    n: str = ""
    verdict: Literal["ok", "over", "info"] = "info"
    values: dict[str, Any] = field(default_factory=dict)


def judged(figure: str, target: str, measured: str, *, met: bool, n: object = "", **values: Any) -> Row:
    """A row of a figure that has a target."""
    return Row(
        figure=figure, target=target, measured=measured, n=str(n), verdict="ok" if met else "over", values=values
    )


def told(figure: str, measured: str, *, n: object = "", **values: Any) -> Row:
    """A row of a figure without a target."""
    return Row(figure=figure, measured=measured, n=str(n), values=values)


def table(rows: Sequence[Row]) -> str:
    """All rows under one head; the measured column wraps to the terminal."""
    cells = [(row.figure, row.target, row.measured, row.n, row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in [HEAD, *cells]) for column in range(len(HEAD))]
    room = shutil.get_terminal_size((140, 24)).columns - sum(widths) + widths[2] - 2 * (len(HEAD) - 1)
    widths[2] = min(widths[2], max(24, room))
    lines = []
    for line in [HEAD, tuple("-" * width for width in widths), *cells]:
        wrapped = textwrap.wrap(line[2], widths[2]) or [""]
        for number, part in enumerate(wrapped):
            shown = (*line[:2], part, *line[3:]) if number == 0 else ("", "", part, "", "")
            lines.append("  ".join(text.ljust(width) for text, width in zip(shown, widths, strict=True)).rstrip())
    return "\n".join(lines)


def ms(value: float | None) -> str:
    """Milliseconds, or a dash where nothing was measured."""
    return "-" if value is None else f"{value:.0f} ms"


def seconds(value: float | None) -> str:
    """Seconds, or a dash where nothing was measured."""
    return "-" if value is None else f"{value:.2f} s"
