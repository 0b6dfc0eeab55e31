"""Both systems as a picture: ``python -m bench.koordinator.picture RECORDS OUT.svg``.

Above: CPU of one node's part and of the central part. Below: how soon the limit follows the load, each step a mark.
"""

import statistics
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from bench.frontier.picture import STYLE
from bench.koordinator.records import NAMES, Block, Recorded

WIDTH, LEFT, RIGHT, BAR, TOP = 640, 120, 20, 26, 30
COLOURS = {"Koordinator": "#b45309", "Slacktide": "#1d4ed8"}
SHADES = (1.0, 0.75, 0.5, 0.3)
"""Of a system's processes, that of the node first."""
STEP_S_MAX = 3.0


def picture(found: Recorded) -> str:
    """The SVG."""
    costs = {name: _costs([one for one in found.blocks if one.system == name]) for name in NAMES}
    most = max(sum(cpu for _, cpu in parts) for parts in costs.values())
    lines = ['<text x="10" y="18">CPU on one node, % of a core</text>']
    for at, (name, parts) in enumerate(costs.items()):
        lines += _bar(name, parts, most, TOP + at * 2 * BAR)
    top = TOP + len(costs) * 2 * BAR + 30
    lines.append(f'<text x="10" y="{top - 12}">from the load until the limit first falls, s; each step</text>')
    for at, name in enumerate(NAMES):
        seen = [step.fell_s for one in found.blocks if one.system == name for step in one.steps]
        lines += _marks(name, [one for one in seen if one is not None], top + at * BAR)
    height = top + len(NAMES) * BAR + 26
    lines += _axis(top + len(NAMES) * BAR)
    body = "".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>{body}</svg>\n'
    )


def _costs(own: Sequence[Block]) -> list[tuple[str, float]]:
    """Each process with the median of its blocks, that of the node first."""
    names = [*own[0].on_node, *own[0].central]
    every = [one.on_node | one.central for one in own]
    return [(name, statistics.median(each[name].cpu_pct for each in every)) for name in names]


def _bar(name: str, parts: Sequence[tuple[str, float]], most: float, y: int) -> Iterator[str]:
    yield f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{name}</text>'
    x, scale = float(LEFT), (WIDTH - LEFT - RIGHT - 60) / most
    for (_, cpu), shade in zip(parts, SHADES, strict=False):
        size = f'x="{x:.1f}" y="{y}" width="{cpu * scale:.1f}" height="20"'
        yield f'<rect {size} fill="{COLOURS[name]}" opacity="{shade}"/>'
        x += cpu * scale
    told = ", ".join(f"{part} {cpu:.2f}" for part, cpu in parts)
    yield f'<text class="small" x="{x + 6:.1f}" y="{y + 15}">{sum(cpu for _, cpu in parts):.2f}%</text>'
    yield f'<text class="small" x="{LEFT}" y="{y + 34}">{escape(told)}</text>'


def _marks(name: str, seconds: Sequence[float], y: int) -> Iterator[str]:
    yield f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{name}</text>'
    for one in seconds:
        yield f'<circle cx="{_x(one):.1f}" cy="{y + 11}" r="4" fill="{COLOURS[name]}" opacity="0.5"/>'


def _axis(y: int) -> Iterator[str]:
    for half in range(int(STEP_S_MAX * 2) + 1):
        x = _x(half / 2)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y - len(NAMES) * BAR}" y2="{y + 4}"/>'
        yield f'<text class="small" x="{x:.1f}" y="{y + 18}" text-anchor="middle">{half / 2:g}</text>'


def _x(seconds: float) -> float:
    return LEFT + min(seconds, STEP_S_MAX) / STEP_S_MAX * (WIDTH - LEFT - RIGHT)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Recorded)))
