"""Formats the report as text, and as a static HTML page without scripts or external resources."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from slacktide.deploy.runtime.text import count, printable, table
from slacktide.streams.analysis.assess.assessment import LIFE_S, Amount, Assessment, HotNode, PoolReport

GIB, CORES = "GiB", "cores"
_SIZES, _OFFERED = ("POOL", "NODES", "CORES", "REQUESTED", "USED"), ("OFFERED P50", "OFFERED P95", "MEMORY P50")
COLUMNS = (*_SIZES, *_OFFERED, "OF ORACLE", "EVICTING h")
HOT_COLUMNS = ("NODE", "POOL", "EVICTING h", "THROTTLED h", "HOURS OF DAY (UTC)")
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


def text(found: Assessment) -> str:
    """Return the complete report for a terminal."""
    hot = "No node would have had eviction pressure or throttled batch pods."
    if found.hot_nodes:
        hot = table(HOT_COLUMNS, [_hot_row(node) for node in found.hot_nodes])
    parts = [
        f"{_span(found)}, {count(found.cluster.nodes, 'node')}, a step of {found.step_s} s",
        _headline(found),
        table(COLUMNS, [_row(pool) for pool in found.pools]),
        hot,
        *(f"Note: {finding}" for finding in found.findings),
        *_limits(found),
    ]
    return "\n\n".join(parts)


def _span(found: Assessment) -> str:
    start, end = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in (found.start_s, found.end_s))
    return f"{start} to {end} UTC"


def _headline(found: Assessment) -> str:
    """Return the main result."""
    whole, cpu, mem = found.cluster, found.cluster.cpu, found.cluster.memory
    measured = f"{whole.measured_node_hours:,.1f}"
    block = "days" if found.block_s > 3600 else "hours"
    half, most = (f"{_amount(cpu, CORES, at=at)}, {_amount(mem, GIB, at=at)}" for at in (50, 95))
    return "\n".join(
        (
            f"Batch resources, at least half of the time: {half}",
            f"Batch resources, at least 95% of the time:  {most}",
            f"  ± is half of a 95% interval over {block}.",
            f"Memory eviction pressure: {whole.evicting_node_hours:,.1f} of {measured} node hours",
            f"Batch CPU throttled:      {whole.squeezed_node_hours:,.1f} node hours",
            (
                f"Compared with an oracle that knows the next {found.horizon_s / 3600:.0f} h: "
                f"{_share(cpu.oracle_share)} of its cores, {_share(mem.oracle_share)} of its memory; more than the "
                f"oracle in {_share(cpu.oversold_share)} and {_share(mem.oversold_share)} of the time"
            ),
        )
    )


def _amount(of: Amount, unit: str, at: int = 50) -> str:
    """Format as ``412 ± 30 cores``."""
    value, spread = (of.p50, of.p50_spread) if at == 50 else (of.p95, of.p95_spread)
    return f"unknown {unit}" if value is None else f"{value:,.1f} ± {spread or 0:,.1f} {unit}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _row(pool: PoolReport) -> tuple[str, ...]:
    """Return the figures of a pool, in the order of ``COLUMNS``."""
    requested = "unknown" if pool.requested_cores is None else f"{pool.requested_cores:,.1f}"
    sizes = pool.name, str(pool.nodes), f"{pool.capacity_cores:,.1f}", requested, f"{pool.used_cores:,.1f}"
    offered = _amount(pool.cpu, CORES), _amount(pool.cpu, CORES, at=95), _amount(pool.memory, GIB)
    return *sizes, *offered, _share(pool.cpu.oracle_share), f"{pool.evicting_node_hours:,.1f}"


def _hot_row(node: HotNode) -> tuple[str, ...]:
    """Return a node at risk, in the order of ``HOT_COLUMNS``."""
    hours = ", ".join(f"{hour:02}" for hour in node.hours_of_day)
    return node.node, node.pool, f"{node.evicting_hours:,.1f}", f"{node.squeezed_hours:,.1f}", hours


def _limits(found: Assessment) -> list[str]:
    """Describe the limits of the method."""
    return [
        (
            f"A step of {found.step_s} s and rates over {found.window_s} s hide shorter spikes. Slacktide "
            "samples each second, and throttles batch pods in spikes that are invisible here."
        ),
        (
            "The estimate assumes that batch pods always wait, use all that they request, and run "
            f"{LIFE_S // 60} minutes. Fewer or shorter pods cause less pressure."
        ),
        "These series do not show latency under colocation, page cache and memory bandwidth.",
        (
            "The policy's cluster-wide strategies apply. Strategies for single nodes, host applications and "
            "the CPU floor of LSE pods are ignored."
        ),
    ]


def page(found: Assessment) -> str:
    """Render the whole page."""
    notes = "".join(f"<li>{escaped(note)}</li>" for note in (*found.findings, *_limits(found)))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Slacktide: batch resources of this cluster</title><style>{STYLE}</style></head><body>
<h1>Batch resources that this cluster could offer</h1>
<p>{escaped(_span(found))}, {count(found.cluster.nodes, "node")}, a step of {found.step_s} s.</p>
<pre>{escaped(_headline(found))}</pre>
<h2>Cores over time</h2>
{_curves(found)}
<h2>Pressure by hour of the day (UTC)</h2>
<p>Node hours of memory eviction pressure:</p>
{_bars(found.evicting_by_hour, "#cf222e")}
<p>Node hours of throttled batch CPU:</p>
{_bars(found.squeezed_by_hour, "#bf8700")}
<h2>Node pools</h2>
{_table(COLUMNS, [_row(pool) for pool in found.pools])}
<h2>Nodes with most pressure</h2>
{_table(HOT_COLUMNS, [_hot_row(node) for node in found.hot_nodes])}
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
        drawn, pen_down = "", False  # a missing value leaves a gap
        for at_x, value in enumerate(series[name]):
            if value is not None:
                x, y = LEFT + plot_width * at_x / last, 10 + plot_height * (1 - value / top)
                drawn += f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}"
            pen_down = value is not None
        parts += [
            f'<path d="{drawn}" stroke="{colour}" fill="none" stroke-width="1.5"/>',
            label(LEFT + at * 110, HEIGHT - 10, shown, fill=colour),
        ]
    return svg("Cores over time: capacity, requested, used, offered, oracle", parts)


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
