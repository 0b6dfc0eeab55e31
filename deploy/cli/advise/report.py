"""Formats the advice as a table, a terminal chart, and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.assess import page
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.streams.advise.advice import Advice, Choice, Figure

MARKS = "abcdefghijklmnopqrstuvwxyz"
WIDTH, HEIGHT = 64, 12
HEAD = ("", "SUPPRESS AT", "EVICT AT", "BE CORE-HOURS", "RANGE", "OVER LINE", "RANGE", "EVICTIONS", "RANGE", "")
KNEE, OTHER, RECORDED = "#cf222e", "#0969da", "#8c959f"


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
    yield knee(found)
    if found.undecided:
        yield f"{count(found.undecided, 'sample')} left out because figures, pods or facts were unknown"
    if found.unproven:
        yield f"{count(found.unproven, 'sample')} left out because the node did not sign them"


def knee(found: Advice) -> str:
    """Return a sentence about the knee."""
    choice = next((one for one in found.choices if one.knee), None)
    if choice is None:
        return (
            "No knee: the policies differ too little, or risk rises as fast as best-effort core-hours for every policy."
        )
    mark = _marks(found)[found.choices.index(choice)]
    return f"Knee: {mark}, {named(choice)}; the knee in {choice.knee_draws_pct:.0f}% of draws."


def named(choice: Choice) -> str:
    """Describe a policy, such as ``suppress at 65%``."""
    evict = "" if choice.mem_evict_threshold_pct is None else f", evict at {choice.mem_evict_threshold_pct}% of memory"
    return f"suppress at {choice.cpu_suppress_threshold_pct}%{evict}"


def svg(found: Advice) -> str:
    """Draw best-effort core-hours over risk as SVG, each policy with its intervals."""
    wide, high = page.WIDTH - page.LEFT - 30, page.HEIGHT - 60
    x_max, y_max = _most(found)

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
    for mark, choice in zip(["recorded", *_marks(found)], [found.recorded, *found.choices], strict=True):
        colour = KNEE if choice.knee else RECORDED if choice is found.recorded else OTHER
        parts += _cross(choice, place, colour)
        x, y = place(choice.over_line_pct.estimate, choice.be_core_h.estimate)
        word = f"{mark}: {named(choice)} (knee)" if choice.knee else mark
        parts.append(page.label(x + 7, y - 5, word, fill=colour))
    return page.svg("Best-effort core-hours and risk of each policy", parts, alone=True) + "\n"


def _cross(choice: Choice, place: object, colour: str) -> list[str]:
    assert callable(place)
    risk, gain = choice.over_line_pct, choice.be_core_h
    (left, y), (right, _) = place(risk.low, gain.estimate), place(risk.high, gain.estimate)
    (x, top), (_, bottom) = place(risk.estimate, gain.high), place(risk.estimate, gain.low)
    return [
        f'<path d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}" opacity=".5"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
    ]


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


def _most(found: Advice) -> tuple[float, float]:
    every = [found.recorded, *found.choices]
    return max(one.over_line_pct.high for one in every) or 1.0, max(one.be_core_h.high for one in every) or 1.0


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
