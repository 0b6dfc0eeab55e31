"""Renders the report as a static HTML page without scripts or external resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from slacktide.deploy.cli.assess import report
from slacktide.deploy.runtime.text import count, printable
from slacktide.streams.assess.assessment import Assessment

WIDTH, HEIGHT, LEFT = 900, 260, 70
LINES = (
    ("capacity", "capacity", "#8c959f"),
    ("requested", "requested", "#bf8700"),
    ("used", "used", "#0969da"),
    ("sold", "offered", "#1a7f37"),
    ("oracle", "oracle", "#8250df"),
)
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1f2328 }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
td, th { border: 1px solid #d0d7de; padding: .25rem .6rem; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left }
pre { background: #f6f8fa; padding: 1rem; overflow-x: auto }
svg { width: 100%; height: auto }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(found: Assessment) -> str:
    """Render the whole page."""
    notes = "".join(f"<li>{escaped(note)}</li>" for note in (*found.findings, *report.limits(found)))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Slacktide: batch resources of this cluster</title><style>{STYLE}</style></head><body>
<h1>Batch resources that this cluster could offer</h1>
<p>{escaped(report.span(found))}, {count(found.cluster.nodes, "node")}, a step of {found.step_s} s.</p>
<pre>{escaped(report.headline(found))}</pre>
<h2>Cores over time</h2>
{_curves(found)}
<h2>Pressure by hour of the day (UTC)</h2>
<p>Node hours of memory eviction pressure:</p>
{_bars(found.evicting_by_hour, "#cf222e")}
<p>Node hours of throttled batch CPU:</p>
{_bars(found.squeezed_by_hour, "#bf8700")}
<h2>Node pools</h2>
{_table(report.COLUMNS, [report.row(pool) for pool in found.pools])}
<h2>Nodes with most pressure</h2>
{_table(report.HOT_COLUMNS, [report.hot_row(node) for node in found.hot_nodes])}
<h2>What these figures cannot show</h2>
<ul>{notes}</ul>
</body></html>
"""


def escaped(text: str) -> str:
    """Escape text for HTML and SVG."""
    return escape(printable(text))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escaped(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def svg(title: str, parts: Sequence[str], *, alone: bool = False) -> str:
    """Draw a chart of WIDTH by HEIGHT; ``alone``: as a separate file."""
    space = ' xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"' if alone else ""
    return f'<svg{space} viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(title)}">{"".join(parts)}</svg>'


def label(x: float, y: float, text: str, *, fill: str = "#1f2328", anchor: str = "start") -> str:
    """Return a chart label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="{fill}" text-anchor="{anchor}">{escaped(text)}</text>'


def _curves(found: Assessment) -> str:
    series = {name: getattr(found.curve, name) for name, *_ in LINES}
    top = max((value for values in series.values() for value in values if value is not None), default=1.0) or 1.0
    last = max(1, len(found.curve.at_s) - 1)
    plot_height, plot_width = HEIGHT - 50, WIDTH - LEFT - 10
    parts = [
        f'<path d="M{LEFT} 10V{10 + plot_height}H{WIDTH - 10}" stroke="#8c959f" fill="none"/>',
        label(LEFT - 6, 20, f"{top:,.0f}", anchor="end"),
        label(LEFT - 6, 10 + plot_height, "0 cores", anchor="end"),
    ]
    for at, (name, shown, colour) in enumerate(LINES):
        path = _path(series[name], lambda x, y: (LEFT + plot_width * x / last, 10 + plot_height * (1 - y / top)))
        parts += [
            f'<path d="{path}" stroke="{colour}" fill="none" stroke-width="1.5"/>',
            label(LEFT + at * 110, HEIGHT - 10, shown, fill=colour),
        ]
    return svg("Cores over time: capacity, requested, used, offered, oracle", parts)


def _path(values: Sequence[float | None], place: Callable[[int, float], tuple[float, float]]) -> str:
    """Draw a line with gaps for missing values."""
    drawn, pen_down = [], False
    for at, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        x, y = place(at, value)
        drawn.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = True
    return "".join(drawn)


def _bars(hours: Sequence[float], colour: str) -> str:
    top, height = max(hours, default=0) or 1.0, HEIGHT - 50
    wide = (WIDTH - LEFT - 10) / 24
    parts = [label(LEFT - 6, 20, f"{max(hours, default=0):,.1f} h", anchor="end")]
    for hour, value in enumerate(hours):
        tall, x = height * value / top, LEFT + hour * wide
        parts += [
            f'<path d="M{x:.1f} {10 + height:.1f}v{-tall:.1f}h{wide - 3:.1f}v{tall:.1f}z" fill="{colour}"/>',
            label(x + wide / 2, HEIGHT - 20, f"{hour:02}", anchor="middle"),
        ]
    return svg("Node hours by hour of the day", parts)
