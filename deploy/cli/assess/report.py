"""Formats the report as text."""

from __future__ import annotations

from datetime import UTC, datetime

from slacktide.deploy.runtime.text import count, table
from slacktide.streams.assess.assessment import LIFE_S, Amount, Assessment, HotNode, PoolReport

GIB, CORES = "GiB", "cores"


def text(found: Assessment) -> str:
    """Return the complete report for a terminal."""
    parts = [
        f"{span(found)}, {count(found.cluster.nodes, 'node')}, a step of {found.step_s} s",
        headline(found),
        pools(found),
        hot(found),
        *(f"Note: {finding}" for finding in found.findings),
        *limits(found),
    ]
    return "\n\n".join(part for part in parts if part)


def span(found: Assessment) -> str:
    """Start and end, in UTC."""
    start, end = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in (found.start_s, found.end_s))
    return f"{start} to {end} UTC"


def headline(found: Assessment) -> str:
    """Return the main result."""
    whole, measured = found.cluster, f"{found.cluster.measured_node_hours:,.1f}"
    block = "days" if found.block_s > 3600 else "hours"
    return "\n".join(
        (
            f"Batch resources, at least half of the time: {amount(whole.cpu, CORES)}, {amount(whole.memory, GIB)}",
            (
                f"Batch resources, at least 95% of the time:  {amount(whole.cpu, CORES, at=95)}, "
                f"{amount(whole.memory, GIB, at=95)}"
            ),
            f"  ± is half of a 95% interval over {block}.",
            f"Memory eviction pressure: {whole.evicting_node_hours:,.1f} of {measured} node hours",
            f"Batch CPU throttled:      {whole.squeezed_node_hours:,.1f} node hours",
            (
                f"Compared with an oracle that knows the next {found.horizon_s / 3600:.0f} h: "
                f"{share(whole.cpu.oracle_share)} of its cores, {share(whole.memory.oracle_share)} of its "
                f"memory; more than the oracle in {share(whole.cpu.oversold_share)} and "
                f"{share(whole.memory.oversold_share)} of the time"
            ),
        )
    )


def amount(of: Amount, unit: str, at: int = 50) -> str:
    """Format as ``412 ± 30 cores``."""
    value, spread = (of.p50, of.p50_spread) if at == 50 else (of.p95, of.p95_spread)
    if value is None:
        return f"unknown {unit}"
    return f"{value:,.1f} ± {spread or 0:,.1f} {unit}"


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "unknown" if value is None else f"{value:.0%}"


COLUMNS = (
    "POOL",
    "NODES",
    "CORES",
    "REQUESTED",
    "USED",
    "OFFERED P50",
    "OFFERED P95",
    "MEMORY P50",
    "OF ORACLE",
    "EVICTING h",
)


def row(pool: PoolReport) -> tuple[str, ...]:
    """Return the figures of a pool, in the order of ``COLUMNS``."""
    requested = "unknown" if pool.requested_cores is None else f"{pool.requested_cores:,.1f}"
    return (
        pool.name,
        str(pool.nodes),
        f"{pool.capacity_cores:,.1f}",
        requested,
        f"{pool.used_cores:,.1f}",
        amount(pool.cpu, CORES),
        amount(pool.cpu, CORES, at=95),
        amount(pool.memory, GIB),
        share(pool.cpu.oracle_share),
        f"{pool.evicting_node_hours:,.1f}",
    )


def pools(found: Assessment) -> str:
    """Return each node pool."""
    return table(COLUMNS, [row(pool) for pool in found.pools])


HOT_COLUMNS = ("NODE", "POOL", "EVICTING h", "THROTTLED h", "HOURS OF DAY (UTC)")


def hot_row(node: HotNode) -> tuple[str, ...]:
    """Return a node at risk, in the order of ``HOT_COLUMNS``."""
    hours = ", ".join(f"{hour:02}" for hour in node.hours_of_day)
    return node.node, node.pool, f"{node.evicting_hours:,.1f}", f"{node.squeezed_hours:,.1f}", hours


def hot(found: Assessment) -> str:
    """Return the nodes with the most pressure."""
    if not found.hot_nodes:
        return "No node would have had eviction pressure or throttled batch pods."
    return table(HOT_COLUMNS, [hot_row(node) for node in found.hot_nodes])


def limits(found: Assessment) -> list[str]:
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
