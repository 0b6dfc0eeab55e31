"""Prints the demo's output: the live view or one line per second, then the summary.

The live view has a chart of one node's CPU, the nodes as ``slacktide top`` shows them, the figures so far, and the last
decisions. In the chart, a column is one sample, and each cell has two levels of CPU use.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from math import log10

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from slacktide.deploy.demo.conditions import BLOCKS, MEANINGS, Name
from slacktide.deploy.demo.conductor import Conductor
from slacktide.deploy.demo.pods import CEILING_PCT, service_pod
from slacktide.deploy.demo.report import NEXT, Report, rows, sentences, verdict
from slacktide.deploy.demo.story import NodeStory, Point
from slacktide.deploy.runtime.text import show, table

MARGIN = 6
"""Cells to the left of the chart."""
LATENCY_MS = (5.0, 1_000.0)
BLOCKS_OF_EIGHTHS = " ▁▂▃▄▅▆▇█"
DECISIONS_MAX = 8
# After Okabe and Ito: colour-blind safe.
LS, BE, SYSTEM, RECLAIMABLE = "#d55e00", "#0072b2", "#6c6c6c", "#17364a"
CEILING, REQUEST, ALLOWANCE = "#f0e442", "#b0b0b0", "#8fd3ff"
GOOD, FAIR, BAD = "#009e73", "#e69f00", "#d55e00"
DIM, STRONG, HEAD = "#9a9a9a", "bold", "bold #c8c8c8"
BY = {"stream": GOOD, "guard": FAIR}
RIBBON: dict[Name | None, str] = {
    "alone": "white on #4a4a4a",
    "uncontrolled": "white on #9c3d00",
    "weights": "white on #8a6100",
    "controlled": "white on #006b4f",
    None: "",
}
LEGEND = (
    ("service", LS), ("batch", BE), ("system", SYSTEM), ("reclaimable", RECLAIMABLE),
    ("batch may use", ALLOWANCE), ("ceiling", CEILING), ("requested", REQUEST),
)  # fmt: skip


def _node(demo: Conductor) -> tuple[str, NodeStory]:
    """Return the node on the chart and its records; empty before the first sample."""
    name = min(demo.story.nodes, default="")
    return name, demo.story.nodes.get(name) or NodeStory()


def plain_line(demo: Conductor) -> str:
    """Format one second as ``key=value`` pairs."""
    condition, (name, node), capacity_milli = demo.condition, _node(demo), demo.backend.machine.capacity_milli
    words: dict[str, object] = {
        "mode": demo.backend.mode,
        "condition": condition.name if condition else "starting",
        "block": condition.block + 1 if condition else 0,
        "stage": "measuring" if condition and not demo.stage else "settling" if condition else "starting",
        "left_s": f"{demo.left_s:.0f}",
    }
    if node.points:
        point = node.points[-1]
        words |= {
            "node": name,
            "capacity_milli": capacity_milli,
            "ls_request_milli": service_pod("", capacity_milli).cpu_milli,
            "ls_milli": point.ls_milli,
            "be_milli": point.be_milli,
            "be_limit_milli": "unlimited" if point.allowance_milli is None else point.allowance_milli,
            "reclaimable_milli": "unknown" if node.reclaimable_milli is None else node.reclaimable_milli,
            "system_milli": point.system_milli,
            "sample_age_ms": max(0, demo.clock.wall_ms() - point.at_ms),
        }
    if node.last is not None:
        if stages_ms := node.stages_ms(node.last):
            words |= dict(zip(("command_ms", "applied_ms"), stages_ms, strict=True))
        words["sample_to_applied_ms"] = node.last.age_ms
    p99 = demo.ledger.second_p99_ms(demo.clock.wall_ms() - 1_500)
    words |= {
        "lag": demo.story.lag(),
        "by": node.last.origin if node.last else "none",
        "p99_ms": "unknown" if p99 is None else f"{p99:.0f}",
    }
    return " ".join(f"{key}={value}" for key, value in words.items())


def layout(demo: Conductor, width: int, height: int, *, console: str = "", nodes: str = "") -> list[Text]:
    """Lay out at most ``height`` lines for a terminal of this width, which cuts longer ones.

    ``console`` is its address, or why there is none. ``nodes`` is what ``slacktide top`` shows.
    """
    report = demo.report()
    figures = [(name, p99, slower, used, batch) for name, _, p99, slower, used, batch in rows(report)]
    heading = ("CONDITION", "SERVICE P99", "SLOWDOWN", "UTILIZATION", "BATCH WORK")
    others = [f"{name}: {value}" for name, value in sentences(report)[-2:]]
    tables = ["", *nodes.splitlines(), "", *table(heading, figures).splitlines(), *others, ""]
    title = Text.assemble(
        (" slacktide demo ", "bold white on #005f87"),
        (f" {demo.backend.mode.upper()} ", f"bold black on {GOOD if demo.backend.mode == 'real' else FAIR}"),
        (f" {demo.backend.why}; takes about {demo.takes_s:.0f} s", DIM),
    )
    head = [title, _state(demo, width), Text(f" {console}", DIM)]
    left = height - len(head) - len(tables) - 4  # a ribbon, latencies, a legend, and the heading of decisions
    decisions = min(DECISIONS_MAX, max(2, left // 4))
    lines = [
        *head,
        *chart(demo, max(10, width - MARGIN), max(4, left - decisions)),
        Text.assemble(" " * MARGIN, *(part for name, colour in LEGEND for part in (("█ ", colour), f"{name}  "))),
        *(Text(f" {line}", HEAD if line.isupper() else "") for line in tables),
        Text(" Last decisions, and why", HEAD),
        *_decisions(demo, decisions),
    ]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines[:height]


def _state(demo: Conductor, width: int) -> Text:
    """Return the current condition, time left, progress and decider."""
    condition, last = demo.condition, _node(demo)[1].last
    by = last.origin if last else "none yet"
    if condition is None:
        state = Text(f" {demo.stage or 'starting'}", STRONG)
    else:
        state = Text.assemble(
            (f" {condition.name} ", f"bold {RIBBON[condition.name]}"),
            (f" {demo.stage or f'{max(0.0, demo.left_s):.0f} s left'}", STRONG),
            f", block {condition.block + 1} of {BLOCKS}",
            (f": {MEANINGS[condition.name]}", DIM),
        )
    bar = min(24, width - len(state) - len(f"  decided by {by} ") - 2)
    if bar > 4:
        full = round(bar * demo.done_part)
        state.append("  ").append("━" * full, GOOD).append("━" * (bar - full), "#3a3a3a")
    return state.append("  decided by ").append(by, f"bold {BY.get(by, DIM)}")


def chart(demo: Conductor, width: int, height: int) -> Iterator[Text]:
    """Draw the use of a node's CPU in ``height`` rows, oldest on the left, then the conditions and the p99 latencies.

    From the bottom: use of the service, batch work and system. Lines: the policy's ceiling, the service's request, and
    the limit of batch work, which is above the use of the service.
    """
    points = list(_node(demo)[1].points)[-width:]
    capacity_milli = demo.backend.machine.capacity_milli
    request_milli, ceiling_milli = service_pod("", capacity_milli).cpu_milli, capacity_milli * CEILING_PCT // 100
    half_milli = capacity_milli / height / 2
    numbers = {
        height - 1 - min(height - 1, int(milli / half_milli / 2)): (f"{milli / 1000:.1f}", colour)
        for milli, colour in ((0, ""), (request_milli, REQUEST), (ceiling_milli, CEILING), (capacity_milli, ""))
    }
    lines = {int(request_milli / half_milli): REQUEST, int(ceiling_milli / half_milli): CEILING}
    shown = [*points, *[None] * (width - len(points))]
    columns = [_levels(point, lines, half_milli, height * 2) for point in shown]
    for row in range(height):
        number, style = numbers.get(row, ("", ""))
        line = Text(f"{number:>{MARGIN - 1}} ", style)
        upper, lower = 2 * (height - row) - 1, 2 * (height - row) - 2
        for (above, below), cells in groupby((column[upper], column[lower]) for column in columns):
            count = len(list(cells))
            if above == below:
                line.append(("█" if above else " ") * count, above)
            elif above and below:
                line.append("▀" * count, f"{above} on {below}")
            else:
                line.append(("▀" if above else "▄") * count, above or below)
        yield line
    ribbon, latencies = Text(" " * MARGIN), Text(f"{'p99':>{MARGIN - 1}} ", DIM)
    for name, group in groupby(point.condition for point in points):
        length = len(list(group))
        ribbon.append((name or "")[:length].center(length), RIBBON[name])
    for point in points:
        p99_ms, (low_ms, high_ms) = demo.ledger.second_p99_ms(point.at_ms), LATENCY_MS
        # Logarithmic, with a visible minimum.
        part = (
            0.0 if p99_ms is None else min(1.0, max(0.1, log10(max(p99_ms, low_ms) / low_ms) / log10(high_ms / low_ms)))
        )
        latencies.append(BLOCKS_OF_EIGHTHS[round(part * 8)], GOOD if part < 1 / 3 else FAIR if part < 2 / 3 else BAD)
    yield from (ribbon, latencies)


def _levels(point: Point | None, lines: Mapping[int, str], step_milli: float, count: int) -> list[str]:
    """Return a column's colour by level, lowest first; "": nothing is there. ``lines``: colours by level."""
    if point is None:
        return [lines.get(level, "") for level in range(count)]
    if point.allowance_milli is not None:
        lines = {**lines, int((point.ls_milli + point.allowance_milli) / step_milli): ALLOWANCE}
    both_milli = point.ls_milli + point.be_milli
    tops = (
        (point.ls_milli, LS), (both_milli, BE), (both_milli + point.system_milli, SYSTEM),
        (point.ls_milli + (point.reclaimable_milli or 0), RECLAIMABLE),
    )  # fmt: skip
    middles = ((level, (level + 0.5) * step_milli) for level in range(count))
    return [lines.get(level) or next((colour for top, colour in tops if top > at), "") for level, at in middles]


def _decisions(demo: Conductor, count: int) -> Iterator[Text]:
    lines = demo.story.lines(count)
    if not lines:
        yield Text(" none yet", DIM)
    for outcome, text in lines:
        stages_ms = demo.story.nodes[outcome.node].stages_ms(outcome)
        took = str(outcome.age_ms) if stages_ms is None else "{}+{}".format(*stages_ms)
        yield Text.assemble(
            (f" {time.strftime('%H:%M:%S', time.localtime(outcome.acted_ms / 1000))} ", DIM),
            (f"{outcome.origin:<6} ", BY.get(outcome.origin, DIM)),
            (f"{took:>6} ms  ", DIM),
            (f"{outcome.node} " if len(demo.story.nodes) > 1 else "", STRONG),
            text,
        )


class PlainScreen:
    """Prints one line of ``key=value`` per second."""

    every_s = 1.0
    live: AbstractContextManager[object] = nullcontext()
    """To be open while the demo runs."""

    def __init__(self) -> None:
        self._begun = False
        self._console = ""

    def show(self, demo: Conductor, console: str, nodes: str) -> None:
        """Print one line; first a header, and once the console's address."""
        del nodes
        if not self._begun:
            self.note(f"{demo.backend.mode}: {demo.backend.why}; takes about {demo.takes_s:.0f} s")
            self._begun = True
        if console != self._console:
            self._console = console
            self.note(console)
        show(plain_line(demo))

    def note(self, text: str) -> None:
        """Print it."""
        show(f"slacktide demo: {text}")

    def summary(self, report: Report, why: str) -> None:
        """Print the figures of each condition, then the others, the verdict, and what to do next."""
        self.note(f"{report.mode}: {why}")
        for name, meaning, p99, slowdown, used, batch in rows(report):
            service = f"service p99 {p99:>8}  slowdown {slowdown:>8}"
            show(f"{name:<14} {meaning:<38} {service}  utilization {used:>4}  batch work {batch:>9}")
        for name, value in sentences(report):
            show(f"{name}: {value}")
        show(verdict(report))
        for command, what in NEXT:
            show(f"next: {command:<40} {what}")


class LiveScreen(PlainScreen):
    """Uses the whole terminal, and restores it at the end."""

    every_s = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._terminal = Console()
        self.live = self._live = Live(console=self._terminal, screen=True, auto_refresh=False, redirect_stdout=False)

    def show(self, demo: Conductor, console: str, nodes: str) -> None:
        """Draw the view."""
        lines = layout(demo, *self._terminal.size, console=console, nodes=nodes)
        self._live.update(Group(*lines), refresh=True)
