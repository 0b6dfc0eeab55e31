"""The frontier as a picture: ``python -m bench.frontier.picture PHASES OUT.svg``, a panel a pair.

To the right: more of the machine is busy. Upwards: p99 in times of the service alone, on a logarithmic axis.
"""

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from bench.frontier.conditions import AGAIN, ALONE, CONDITIONS
from bench.frontier.records import Phase, ratio, read

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, ACROSS = 420, 300, 54, 34, 40, 2
RATIOS = (0.25, 0.5, 1, 2, 4, 8)
COLOURS = {"no": "#6b7280", "weights": "#b45309", "quota": "#1d4ed8", "pressure": "#047857", "CPU": "#7c3aed"}
"""By the first word of a condition; those without batch work are black."""
STYLE = (
    "text{font:12px sans-serif;fill:#111}.small{font-size:10px}.grid{stroke:#ddd}"
    "@media(prefers-color-scheme:dark){svg{background:#111}text{fill:#eee}.grid{stroke:#444}}"
)


def picture(phases: Sequence[Phase]) -> str:
    """The SVG. A pair with one block has no interval, and no panel."""
    pairs = sorted({(phase.service, phase.batch) for phase in phases if phase.block > 1})
    rows = -(-len(pairs) // ACROSS)
    panels = "".join(
        f'<g transform="translate({number % ACROSS * WIDTH},{number // ACROSS * HEIGHT})">'
        + "".join(_panel(f"{pair[0]} beside {pair[1]}", [one for one in phases if (one.service, one.batch) == pair]))
        + "</g>"
        for number, pair in enumerate(pairs)
    )
    size = f"{WIDTH * min(ACROSS, len(pairs))} {HEIGHT * rows}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>{STYLE}</style>{panels}</svg>\n'


def _panel(title: str, pair: Sequence[Phase]) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="20">{escape(title)}</text>'
    for times in RATIOS:
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 16}" y1="{_y(times):.1f}" y2="{_y(times):.1f}"/>'
        yield f'<text class="small" x="{LEFT - 6}" y="{_y(times) + 4:.1f}" text-anchor="end">{times:g} x</text>'
    for percent in range(0, 101, 25):
        x = _x(percent / 100)
        yield f'<text class="small" x="{x:.1f}" y="{HEIGHT - 22}" text-anchor="middle">{percent}%</text>'
    yield f'<text class="small" x="{LEFT}" y="{HEIGHT - 6}">machine busy; p99 against the service alone</text>'
    for condition in CONDITIONS:
        own = [phase for phase in pair if phase.condition == condition.name]
        if own and condition.name not in {ALONE, AGAIN}:
            yield from _mark(condition.name, pair, statistics.mean(phase.busy_part for phase in own))


def _mark(name: str, pair: Sequence[Phase], busy_part: float) -> Iterator[str]:
    low, middle, high = ratio(pair, name, ALONE)
    colour = COLOURS.get(name.replace(",", " ").split()[0], "#111")
    x, y = _x(busy_part), _y(middle)
    yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(low):.1f}" y2="{_y(high):.1f}" stroke="{colour}"/>'
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    side, anchor = (-7, "end") if busy_part > 0.6 else (7, "start")
    yield f'<text class="small" x="{x + side:.1f}" y="{y + 3:.1f}" text-anchor="{anchor}">{escape(name)}</text>'


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - 16)


def _y(times: float) -> float:
    lowest, highest = math.log(RATIOS[0]), math.log(RATIOS[-1])
    part = (min(max(math.log(times), lowest), highest) - lowest) / (highest - lowest)
    return HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture([phase for phase in read(Path(sys.argv[1])) if phase.quiet]))
