"""Renders a frame as a live terminal view of any size, for rich.

Lines consist of segments with cached styles, which is ten times cheaper than rich's texts and tables. The view runs on
the measured machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log10

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from slacktide.deploy.demo import chart
from slacktide.deploy.demo.chart import Run, Scale
from slacktide.deploy.demo.conditions import BLOCKS, MEANINGS, NAMES, Condition
from slacktide.deploy.demo.report import Report, slowdowns
from slacktide.deploy.demo.story import NodeStory, Point, Story
from slacktide.schemas.outcome import NodeOutcome

MARGIN, PANEL = 6, 34
"""Cells to the left and right of the chart."""
PANEL_FROM = 96
"""Narrower terminals hide the figures beside the chart."""
LATENCY_ROWS = 3
PANEL_ROWS = 16
LATENCY_MS = (5.0, 1_000.0)
DECISIONS = 8
DIM, STRONG, HEAD = "#9a9a9a", "bold", "bold #c8c8c8"
BY = {"stream": chart.GOOD, "guard": chart.FAIR}
Runs = Sequence[Run]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The state of the demo at one moment."""

    mode: str
    why: str
    """Why the nodes are real or virtual."""
    takes_s: float
    """Approximate duration of the demo."""
    console: str
    """The console's address, or why there is none; "": not yet, or disabled."""
    now_ms: int
    story: Story
    scale: Scale
    condition: Condition | None
    """None: the processes are starting."""
    stage: str
    """The pending step; "" while measuring."""
    left_s: float
    """Seconds left of the condition."""
    done_part: float
    """Progress of the demo, 0 to 1."""
    report: Report
    """The figures so far."""

    @property
    def node(self) -> str:
        """Return the node on the chart."""
        return min(self.story.nodes, default="")

    @property
    def node_story(self) -> NodeStory:
        """Return that node's records; empty before the first sample."""
        return self.story.nodes.get(self.node) or NodeStory()

    @property
    def point(self) -> Point | None:
        """Return that node's newest sample."""
        points = self.node_story.points
        return points[-1] if points else None


def plain_line(frame: Frame) -> str:
    """Format one second as ``key=value`` pairs."""
    condition, point, node = frame.condition, frame.point, frame.node_story
    words: dict[str, object] = {
        "mode": frame.mode,
        "condition": condition.name if condition else "starting",
        "block": condition.block + 1 if condition else 0,
        "stage": "measuring" if condition and not frame.stage else "settling" if condition else "starting",
        "left_s": f"{frame.left_s:.0f}",
    }
    if point is not None:
        limit = point.allowance_milli
        words |= {
            "node": frame.node,
            "capacity_milli": frame.scale.capacity_milli,
            "ls_request_milli": frame.scale.request_milli,
            "ls_milli": point.ls_milli,
            "be_milli": point.be_milli,
            "be_limit_milli": "unlimited" if limit is None else limit,
            "reclaimable_milli": "unknown" if node.reclaimable_milli is None else node.reclaimable_milli,
            "system_milli": point.system_milli,
            "sample_age_ms": max(0, frame.now_ms - point.at_ms),
        }
    if ages := node.ages:
        if ages.sample_to_command is not None:
            words |= {"command_ms": ages.sample_to_command, "applied_ms": ages.command_to_applied}
        words["sample_to_applied_ms"] = ages.sample_to_applied
    p99 = frame.story.p99_ms(frame.now_ms - 1_500)
    words |= {
        "lag": frame.story.lag(),
        "by": node.in_charge or "none",
        "p99_ms": "unknown" if p99 is None else f"{p99:.0f}",
    }
    return " ".join(f"{key}={value}" for key, value in words.items())


class View:
    """A frame as a rich renderable."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out for this width and height."""
        lines = layout(self._frame, options.max_width, options.height or console.height)
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            yield from (Segment(text, _style(style)) for text, style in line)


@cache
def _style(definition: str) -> Style:
    return Style.parse(definition)


def layout(frame: Frame, width: int, height: int) -> list[Runs]:
    """Lay out at most ``height`` lines of exactly ``width`` cells."""
    panel = PANEL if width >= PANEL_FROM else 0
    chart_width = max(10, width - MARGIN - panel - (2 if panel else 0))
    fixed = 3 + 1 + LATENCY_ROWS + 2 + 1
    # Rows that the figures beside the chart need.
    decisions = min(DECISIONS, max(3, height - fixed - (PANEL_ROWS if panel else 8)))
    rows = max(4, height - fixed - decisions)
    middle = _chart(frame, chart_width, rows)
    if panel:
        figures = [*_now(frame), [], *_so_far(frame)]
        figures += [[]] * (len(middle) - len(figures))
        middle = [
            [*fit(left, width - panel), *right] for left, right in zip(middle, figures[: len(middle)], strict=True)
        ]
    lines = [
        _title(frame),
        _state(frame, width),
        [(f" {frame.console}", DIM)],
        *middle,
        [(" " * MARGIN, ""), *chart.legend()],
        [],
        [(" Last decisions, and why", HEAD)],
        *_decisions(frame, decisions),
    ]
    return [fit(line, width) for line in lines[:height]]


def fit(runs: Iterable[Run], width: int) -> list[Run]:
    """Cut or pad to a width; a cut line ends in an ellipsis. Every character is one cell wide."""
    kept: list[Run] = []
    left = width
    for text, style in runs:
        if len(text) > left:
            kept.append((text[: max(0, left - 1)] + "…" * (left > 0), style))
            return kept
        kept.append((text, style))
        left -= len(text)
    return [*kept, (" " * left, "")] if left else kept


def _length(runs: Runs) -> int:
    return sum(len(text) for text, _ in runs)


def _title(frame: Frame) -> Runs:
    colour = chart.GOOD if frame.mode == "real" else chart.FAIR
    return [
        (" slacktide demo ", "bold white on #005f87"),
        (f" {frame.mode.upper()} ", f"bold black on {colour}"),
        (f" {frame.why}; takes about {frame.takes_s:.0f} s", DIM),
    ]


def _state(frame: Frame, width: int) -> Runs:
    """Return the current condition, time left, progress and decider."""
    condition, by = frame.condition, frame.node_story.in_charge
    state: list[Run] = [(f" {frame.stage or 'starting'}", STRONG)]
    if condition is not None:
        state = [
            (f" {condition.name} ", f"bold {chart.RIBBON[condition.name]}"),
            (f" {frame.stage or f'{max(0.0, frame.left_s):.0f} s left'}", STRONG),
            (f", block {condition.block + 1} of {BLOCKS}", ""),
        ]
        state += [(f": {MEANINGS[condition.name]}", DIM)] if width >= PANEL_FROM else []
    decider: list[Run] = [("decided by ", ""), (by or "none yet", f"bold {BY.get(by, DIM)}"), (" ", "")]
    room = width - _length(state) - _length(decider)
    bar = min(24, room - 4)
    if bar > 4:
        full = round(bar * frame.done_part)
        state += [("  ", ""), ("━" * full, chart.GOOD), ("━" * (bar - full), "#3a3a3a")]
    return [*state, (" " * max(1, width - _length(state) - _length(decider)), ""), *decider]


def _chart(frame: Frame, width: int, rows: int) -> list[Runs]:
    points = list(frame.node_story.points)[-width:]
    drawn = chart.stack(points, frame.scale, width, rows)
    lines = [_row(number, row) for number, row in zip(chart.labels(frame.scale, rows), drawn, strict=True)]
    lines.append(_row(("", ""), chart.ribbon(points, width)))
    waits = [_scaled(frame.story.p99_ms(point.at_ms)) for point in points]
    latency = chart.bars(waits, width, LATENCY_ROWS, full=1.0, colour=_latency_colour)
    numbers = [("1 s", DIM), ("p99", DIM), ("5 ms", DIM)]
    return lines + [_row(number, row) for number, row in zip(numbers, latency, strict=True)]


def _row(left: Run, runs: Runs) -> Runs:
    return [(f"{left[0]:>{MARGIN - 1}} ", left[1]), *runs]


def _scaled(p99_ms: float | None) -> float | None:
    """Scale 5 ms to 1 s logarithmically to 0 to 1, with a visible minimum."""
    if p99_ms is None:
        return None
    low_ms, high_ms = LATENCY_MS
    return min(1.0, max(0.05, log10(max(p99_ms, 1.0) / low_ms) / log10(high_ms / low_ms)))


def _latency_colour(part: float) -> str:
    return chart.GOOD if part < 1 / 3 else chart.FAIR if part < 2 / 3 else chart.BAD


def _decisions(frame: Frame, count: int) -> list[Runs]:
    lines = [_decision(frame.story, outcome, text) for outcome, text in frame.story.lines(count)]
    return lines or [[(" none yet", DIM)]]


def _decision(story: Story, outcome: NodeOutcome, text: str) -> Runs:
    at = time.strftime("%H:%M:%S", time.localtime(outcome.acted_ms / 1000))
    ages = story.nodes[outcome.node].ages_of(outcome)
    stages = str(ages.sample_to_applied)
    if ages.sample_to_command is not None:
        stages = f"{ages.sample_to_command}+{ages.command_to_applied}"
    return [
        (f" {at} ", DIM),
        (f"{outcome.origin:<6} ", BY.get(outcome.origin, DIM)),
        (f"{stages:>6} ms  ", DIM),
        (f"{outcome.node} " if len(story.nodes) > 1 else "", STRONG),
        (text, ""),
    ]


def _now(frame: Frame) -> list[Runs]:
    """Return the chart's numbers, and the age of each stage."""
    point, node, ages = frame.point, frame.node_story, frame.node_story.ages
    if point is None:
        return [[("Now", HEAD)]]
    limit = point.allowance_milli
    decided_ms = ages.sample_to_command if ages else None
    return [
        [(f"Now on {frame.node}", HEAD)],
        _figure("capacity", f"{frame.scale.capacity_milli}m", chart.CAPACITY),
        _figure("service requests", f"{frame.scale.request_milli}m", chart.REQUEST),
        _figure("service uses", f"{point.ls_milli}m", chart.LS),
        _figure("reclaimable", _or_dash(node.reclaimable_milli, "m"), chart.RECLAIMABLE),
        _figure("batch may use", "all" if limit is None else f"{limit}m", chart.ALLOWANCE),
        _figure("batch uses", f"{point.be_milli}m", chart.BE_TEXT),
        _figure("sample → command", _or_dash(decided_ms, " ms"), DIM),
        _figure("command → applied", _or_dash(ages.command_to_applied if ages else None, " ms"), DIM),
        _figure("sample → applied", _or_dash(ages.sample_to_applied if ages else None, " ms"), DIM),
        _figure("age of newest sample", f"{max(0, frame.now_ms - point.at_ms) / 1000:.1f} s", DIM),
        _figure("samples without an answer", str(frame.story.lag()), DIM),
    ]


def _so_far(frame: Frame) -> list[Runs]:
    lines: list[Runs] = [[("Service p99, slowdown", HEAD)]]
    for name in NAMES[frame.condition.scenario if frame.condition else "cpu"]:
        p99, slower = frame.report.ls_p99_ms.get(name), slowdowns(frame.report)[name]
        shown = "-" if p99 is None else f"{p99:.0f} ms"
        lines.append(_figure(name, f"{shown}  {'' if p99 is None or slower is None else f'{slower:.1f}x':>6}", ""))
    reaction, decided = frame.report.reaction_ms, frame.report.decided_by
    answered = f"{reaction.n}/{reaction.steps}" if reaction.steps else ""
    lines.append(_figure("reaction p50", f"{_or_dash(reaction.p50, ' ms')}  {answered:>6}", ""))
    lines.append(_figure("by stream, guard", f"{decided.stream}, {decided.guard}", ""))
    return lines


def _figure(name: str, value: str, colour: str) -> Runs:
    return [(name, colour), (" " * max(1, PANEL - 1 - len(name) - len(value)), ""), (value, STRONG)]


def _or_dash(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value}{unit}"
