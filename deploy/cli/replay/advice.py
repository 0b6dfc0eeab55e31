"""Replays a trace under a grid of policies, and formats the advice as a table, a terminal chart, and SVG."""

from collections.abc import Iterator, Sequence

import click

from slacktide.deploy.cli.assess import report as page
from slacktide.deploy.cli.replay.jobs import Plan, decided
from slacktide.deploy.cli.replay.source import Opened, Where
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas import policy as policies
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.analysis.advise.advice import (
    POLICIES_MAX,
    SUPPRESS_PCT,
    Advice,
    Choice,
    Figure,
    Tag,
    advise,
    grid,
)
from slacktide.streams.analysis.advise.trials import Tried
from slacktide.streams.analysis.replay.policies import Policies

MARKS = "abcdefghijklmnopqrstuvwxyz"
WIDTH, HEIGHT = 64, 12
HEAD = ("", "SUPPRESS AT", "EVICT AT", "BE CORE-HOURS", "RANGE", "OVER LINE", "RANGE", "EVICTIONS", "RANGE", "")
KNEE, OTHER, RECORDED = "#cf222e", "#0969da", "#8c959f"


class NothingRecordedError(SlacktideError):
    """The span has no sample that can be decided."""


def advised(
    where: Where,
    base: policies.Policy | None,
    values: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    nodes: tuple[str, ...],
    line_pct: float,
    jobs: int,
) -> Advice:
    """Replay the trace under a grid of policies, by default of the newest recorded one.

    Raises:
        click.UsageError: the grid is too large.
        NothingRecordedError: the span has no sample that can be decided.
    """
    tags: list[Tag] = []

    def plan(opened: Opened) -> Plan:
        tried = grid(base or Policies(opened.policies).newest, values[0] or SUPPRESS_PCT, values[1] or ())
        if len(tried) > POLICIES_MAX:
            raise click.UsageError(f"the grid has {len(tried)} policies; at most {POLICIES_MAX} are accepted")
        tags.extend(tag for tag, _ in tried)
        grid_of = tuple(policy for _, policy in tried)
        return Plan(policies=opened.policies, since_ms=opened.since_ms, nodes=nodes, grid=grid_of, line_pct=line_pct)

    found = decided(where, plan, nodes, jobs)
    assert isinstance(found, Tried)
    if not found.trials[0]:
        why = f"; {found.undecided} were left out because figures, pods or facts were unknown" if found.samples else ""
        raise NothingRecordedError(
            f"{where}: none of the {found.samples} samples in the span could be decided{why}. Check "
            "--since and --until, and that the export contains the topics policy and node.sample"
        )
    return advise(found, tags, line_pct)


def text(found: Advice) -> str:
    """Return the complete report for a terminal."""
    return "\n".join(_lines(found))


def _lines(found: Advice) -> Iterator[str]:
    minutes = found.block_ms // 60_000
    yield (
        f"{instant(found.since_ms)} to {instant(found.until_ms)}, {count(found.nodes, 'node')}, "
        f"{found.node_hours:.2f} node-hours; ranges of 95% by nodes and blocks of {minutes} min"
    )
    yield table(HEAD, [_row("", found.recorded), *map(_row, _marks(found), found.choices)])
    yield (
        f"OVER LINE: share of node time with use above {found.line_pct:g}% of CPU. The first row is what was recorded."
    )
    yield ""
    yield from _picture(found)
    yield ""
    yield _knee(found)
    if found.undecided:
        yield f"{count(found.undecided, 'sample')} left out because figures, pods or facts were unknown"
    if found.unproven:
        yield f"{count(found.unproven, 'sample')} left out because the node did not sign them"


def _knee(found: Advice) -> str:
    """Return a sentence about the knee."""
    choice = next((one for one in found.choices if one.knee), None)
    if choice is None:
        return (
            "No knee: the policies differ too little, or risk rises as fast as best-effort core-hours for every policy."
        )
    mark = _marks(found)[found.choices.index(choice)]
    return f"Knee: {mark}, {_named(choice)}; the knee in {choice.knee_draws_pct:.0f}% of draws."


def _named(choice: Choice) -> str:
    """Describe a policy, such as ``suppress at 65%``."""
    evict = "" if choice.mem_evict_threshold_pct is None else f", evict at {choice.mem_evict_threshold_pct}% of memory"
    return f"suppress at {choice.cpu_suppress_threshold_pct}%{evict}"


def svg(found: Advice) -> str:
    """Draw best-effort core-hours over risk as SVG, each policy with its intervals."""
    wide, high = page.WIDTH - page.LEFT - 30, page.HEIGHT - 60
    every = [found.recorded, *found.choices]
    x_max = max(one.over_line_pct.high for one in every) or 1.0
    y_max = max(one.be_core_h.high for one in every) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return page.LEFT + wide * x / x_max, 10 + high * (1 - y / y_max)

    base = 10 + high
    parts = [
        f'<path d="M{page.LEFT} 10V{base}H{page.LEFT + wide}" stroke="#8c959f" fill="none"/>',
        page.label(page.LEFT - 6, 20, f"{y_max:,.2f}", anchor="end"),
        page.label(page.LEFT - 6, base, "0", anchor="end"),
        page.label(page.LEFT, page.HEIGHT - 8, "best-effort core-hours over share of node time above the line"),
        page.label(page.LEFT + wide, base + 16, f"{x_max:.2f}%", anchor="end"),
    ]
    for mark, choice in zip(["recorded", *_marks(found)], every, strict=True):
        colour = KNEE if choice.knee else RECORDED if choice is found.recorded else OTHER
        risk, gain = choice.over_line_pct, choice.be_core_h
        x, y = place(risk.estimate, gain.estimate)
        (left, top), (right, bottom) = place(risk.low, gain.high), place(risk.high, gain.low)
        cross = f"M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {top:.1f}V{bottom:.1f}"
        parts.append(f'<path d="{cross}" stroke="{colour}" opacity=".5"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        word = f"{mark}: {_named(choice)} (knee)" if choice.knee else mark
        parts.append(page.label(x + 7, y - 5, word, fill=colour))
    return page.svg("Best-effort core-hours and risk of each policy", parts, alone=True) + "\n"


def _marks(found: Advice) -> Sequence[str]:
    """Return a letter for each policy, or two if there are many."""
    return [MARKS[at] if at < 26 else MARKS[at // 26 - 1] + MARKS[at % 26] for at in range(len(found.choices))]


def _row(mark: str, choice: Choice) -> list[object]:
    def pct(value: int | None) -> str:
        return "-" if value is None else f"{value}%"

    return [
        mark or "recorded",
        pct(choice.cpu_suppress_threshold_pct),
        pct(choice.mem_evict_threshold_pct),
        f"{choice.be_core_h.estimate:.3f}",
        _range(choice.be_core_h, 3),
        f"{choice.over_line_pct.estimate:.2f}%",
        f"{_range(choice.over_line_pct, 2)}%",
        f"{choice.evictions.estimate:.0f}",
        _range(choice.evictions, 0),
        "<- knee" if choice.knee else "",
    ]


def _range(figure: Figure, digits: int) -> str:
    return f"{figure.low:.{digits}f}..{figure.high:.{digits}f}"


def _picture(found: Advice) -> Iterator[str]:
    """Draw a letter for each policy: up is more best-effort core-hours, right is more risk. The knee is a capital."""
    every = [found.recorded, *found.choices]
    x_max = max(one.over_line_pct.estimate for one in every) or 1.0
    y_max = max(one.be_core_h.estimate for one in every) or 1.0
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, choice in zip(["*", *_marks(found)], every, strict=True):
        x = round(choice.over_line_pct.estimate / x_max * (WIDTH - 2))
        y = round((1 - choice.be_core_h.estimate / y_max) * (HEIGHT - 1))
        cells[y][x] = mark[0].upper() if choice.knee else mark[0]
    margin = len(f"{y_max:.2f}")
    for at, row in enumerate(cells):
        level = f"{y_max:.2f}" if at == 0 else "0" if at == HEIGHT - 1 else ""
        yield f"{level:>{margin}} |{''.join(row).rstrip()}"
    yield f"{'':>{margin}} +{'-' * WIDTH}"
    yield f"{'':>{margin}}  0%{f'{x_max:.2f}% over the line':>{WIDTH - 2}}   * recorded; CAPITAL: the knee"
