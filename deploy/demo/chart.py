"""Draws the node's CPU over time as a stacked chart of block characters. Pure.

One column is one sample. From the bottom: use of the service, batch work and system; dots mark reclaimable unused CPU.
Lines: capacity, the policy's ceiling, the service's request, and the limit of batch work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slacktide.deploy.demo.conditions import Name
from slacktide.deploy.demo.story import Point

EIGHTHS = " ▁▂▃▄▅▆▇█"
# After Okabe and Ito: colour-blind safe.
LS, BE, SYSTEM, RECLAIMABLE = "#d55e00", "#0072b2", "#6c6c6c", "#56b4e9"
BE_TEXT = "#3a9bdc"
"""The colour of text on black. The fill colour is too dark."""
CAPACITY, CEILING, REQUEST, ALLOWANCE = "#e4e4e4", "#f0e442", "#b0b0b0", "#8fd3ff"
GOOD, FAIR, BAD = "#009e73", "#e69f00", "#d55e00"
RIBBON: dict[Name | None, str] = {
    "alone": "white on #4a4a4a",
    "uncontrolled": "white on #9c3d00",
    "weights": "white on #8a6100",
    "controlled": "white on #006b4f",
    None: "",
}
Run = tuple[str, str]
"""Text and its rich style."""
Rows = list[list[Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The levels of the chart's lines, millicores."""

    capacity_milli: int
    ceiling_milli: int
    request_milli: int


def stack(points: Sequence[Point], scale: Scale, width: int, height: int) -> Rows:
    """Draw the stack chart: ``height`` rows of ``width`` cells, oldest on the left."""
    shown = points[-width:]
    step = scale.capacity_milli / height
    rows = []
    for row in reversed(range(height)):
        cells = [_cell(point, scale, row * step, step) for point in shown]
        cells += [_line(scale, row * step, step) or (" ", "")] * (width - len(shown))
        rows.append(runs(cells))
    return rows


def _cell(point: Point, scale: Scale, low: float, step: float) -> Run:
    """Return the cell of a point between two levels: up to two layers, or a line over a layer."""
    tops = ((point.ls_milli, LS), (point.ls_milli + point.be_milli, BE),
            (point.ls_milli + point.be_milli + point.system_milli, SYSTEM))  # fmt: skip
    below = next((colour for top, colour in tops if top > low), "")
    middle = next((colour for top, colour in tops if top > low + step / 2), "")
    allowed = None if point.allowance_milli is None else point.ls_milli + point.allowance_milli
    if allowed is not None and low <= allowed < low + step:
        return "━", _style(ALLOWANCE, middle)
    if line := _line(scale, low, step):
        return line[0], _style(line[1], middle)
    if not below:
        reclaimable = point.ls_milli + (point.reclaimable_milli or 0)
        return ("·", RECLAIMABLE) if reclaimable > low + step / 2 else (" ", "")
    top = next(top for top, colour in tops if colour == below)
    above = next((colour for top, colour in tops if top >= low + step), "")
    if above == below:
        return "█", below
    eighth = max(1, min(8, round((top - low) / step * 8)))
    return EIGHTHS[eighth], _style(below, next((c for t, c in tops if t > top + step / 16), ""))


def _line(scale: Scale, low: float, step: float) -> Run | None:
    for level, mark, colour in ((scale.ceiling_milli, "─", CEILING), (scale.request_milli, "╌", REQUEST)):
        if low <= level < low + step:
            return mark, colour
    return None


def labels(scale: Scale, height: int) -> list[Run]:
    """Return the left margin of each row, top first: CPUs, in the colour of the line at that level."""
    step = scale.capacity_milli / height
    margin: list[Run] = [("", "")] * height
    margin[-1] = ("0.0", CAPACITY)
    top = height - 1
    for milli, colour in (
        (scale.request_milli, REQUEST),
        (scale.ceiling_milli, CEILING),
        (scale.capacity_milli, CAPACITY),
    ):
        margin[top - min(top, int(milli / step))] = (f"{milli / 1000:.1f}", colour)
    return margin


def legend() -> list[Run]:
    """Return the legend of the chart."""
    return [
        ("█ ", LS), ("service  ", ""), ("█ ", BE), ("batch  ", ""), ("█ ", SYSTEM), ("system  ", ""),
        ("· ", RECLAIMABLE), ("reclaimable  ", ""), ("━ ", ALLOWANCE), ("batch may use  ", ""),
        ("─ ", CEILING), ("ceiling  ", ""), ("╌ ", REQUEST), ("requested", ""),
    ]  # fmt: skip


def ribbon(points: Sequence[Point], width: int) -> list[Run]:
    """Return the condition of each column, with as much of its name as fits."""
    spans: list[tuple[Name | None, int]] = []
    for point in points[-width:]:
        if spans and spans[-1][0] == point.condition:
            spans[-1] = (point.condition, spans[-1][1] + 1)
        else:
            spans.append((point.condition, 1))
    drawn = [((name or "")[:length].center(length), RIBBON[name]) for name, length in spans]
    return [*drawn, (" " * (width - sum(len(text) for text, _ in drawn)), "")]


def bars(
    values: Sequence[float | None], width: int, height: int, *, full: float, colour: Callable[[float], str]
) -> Rows:
    """Draw a bar for each value (0 to ``full``). None is an empty column."""
    shown = values[-width:]
    rows = []
    for row in reversed(range(height)):
        cells = []
        for value in shown:
            eighth = 0 if value is None else round(value / full * height * 8) - row * 8
            cells.append((EIGHTHS[max(0, min(8, eighth))], "" if value is None else colour(value)))
        rows.append(runs([*cells, *[(" ", "")] * (width - len(shown))]))
    return rows


def runs(cells: Sequence[Run]) -> list[Run]:
    """Join neighbours of the same style."""
    joined: list[Run] = []
    for text, style in cells:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return joined


def _style(front: str, back: str) -> str:
    return f"{front} on {back}" if back else front
