"""Formats an account as text, as CSV, and as metrics for node_exporter's textfile collector."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from slacktide.deploy.runtime.line_file import ExportFileError
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.topics import BY_NAME, HOUR_MS, OUTCOME, SAMPLE
from slacktide.streams.savings.account import Ages, NodeReport, Report, Saved, Suffered

NODES_MAX = 20
LATE_MS = 60_000
"""A topic that begins this long after the span's start does not cover it."""
RESOURCES = (("cpu", "core-hours"), ("mem", "GiB-hours"))


def text(made: Report) -> str:
    """Format the account as text and tables."""
    return "\n".join(_lines(made))


def _lines(made: Report) -> Iterator[str]:
    everything = made.all
    yield f"{instant(made.since_ms)} to {instant(made.until_ms)}, {count(len(made.nodes), 'node')}"
    yield from _reach(made)
    if not everything.samples:
        yield "no samples in the span: nothing to report"
        return
    yield ""
    head = ["BEST-EFFORT", "USED", "ADMITTED", "GAINED", "LEAST..MOST", "LOST", "NET", "LEAST..MOST"]
    yield table(head, [_row(unit, getattr(everything, name)) for name, unit in RESOURCES])
    yield (
        "ADMITTED: what native requests would have admitted. LOST: work of pods before they were evicted or restarted."
    )
    yield f"{count(everything.evictions, 'eviction')}, {count(everything.restarts, 'restart')}"
    left = everything.cpu.room_left, everything.mem.room_left
    if all(left):
        yield (
            f"free for native requests: {left[0]:.3f} core-hours, {left[1]:.3f} GiB-hours; pods that did not "
            "fit on their node may have fit there"
        )
    yield ""
    yield table(
        ["OTHER PODS WHILE BEST-EFFORT", "HOURS", "THROTTLED", "CPU STALL", "PSI CPU", "MAX", "PSI MEM", "MAX"],
        [_harm("ran", everything.busy), _harm("did not run", everything.idle)],
    )
    yield f"reaction of limits: {_ages(everything.limits)}"
    yield f"reaction of evictions: {_ages(everything.evicting)}"
    if len(made.nodes) > 1:
        yield ""
        yield from _nodes(made)
    yield from _left_out(made)


def _reach(made: Report) -> Iterator[str]:
    """Report how far back samples and outcomes reach."""
    hours = (made.until_ms - made.since_ms) / HOUR_MS * len(made.nodes)
    share = f", {100 * made.all.covered_h / hours:.1f}% of the span" if hours else ""
    yield f"samples cover {made.all.covered_h:.3f} node-hours{share}"
    for what, names in (("samples", {SAMPLE.name}), ("outcomes", {OUTCOME.name})):
        first_ms = min((one.first_ms for one in made.read if one.topic in names), default=None)
        kept_ms = max(BY_NAME[name].retention_ms or 0 for name in names)
        if first_ms is None:
            yield f"no {what} in the span; by default Kafka keeps them for {kept_ms // HOUR_MS} h"
        elif first_ms > made.since_ms + LATE_MS:
            yield (
                f"the first {what} are from {instant(first_ms)}, after the start of the span; by default Kafka "
                f"keeps them for {kept_ms // HOUR_MS} h"
            )


def _row(unit: str, saved: Saved) -> list[object]:
    return [
        unit,
        f"{saved.used:.3f}",
        f"{saved.admitted:.3f}",
        f"{saved.gained:.3f}",
        f"{saved.gained_least:.3f}..{saved.gained_most:.3f}",
        f"{saved.lost:.3f}",
        f"{saved.net:.3f}",
        f"{saved.net_least:.3f}..{saved.net_most:.3f}",
    ]


def _harm(what: str, harm: Suffered) -> list[object]:
    figures = (
        harm.ls_throttled_pct,
        harm.ls_stall_pct,
        harm.cpu_some.mean_pct,
        harm.cpu_some.max_pct,
        harm.mem_some.mean_pct,
        harm.mem_some.max_pct,
    )
    return [what, f"{harm.hours:.3f}", *("-" if figure is None else f"{figure:.2f}%" for figure in figures)]


def _ages(ages: Ages) -> str:
    if not ages.acts:
        return "none"
    percentiles = f"p50 {ages.p50_ms} ms, p95 {ages.p95_ms} ms, p99 {ages.p99_ms} ms, max {ages.max_ms} ms"
    return f"{count(ages.acts, 'act')}, {percentiles}"


def _nodes(made: Report) -> Iterator[str]:
    head = ["NODE", "HOURS", "CORE-H GAINED", "LOST", "NET", "GIB-H GAINED", "LOST", "NET", "EVICTIONS"]
    most = sorted(made.nodes, key=lambda node: (-node.cpu.gained, node.node))
    yield table(head, [_of(node) for node in most[:NODES_MAX]])
    if len(most) > NODES_MAX:
        yield f"... and {count(len(most) - NODES_MAX, 'node')} more; --output csv lists all nodes"


def _of(node: NodeReport) -> list[object]:
    parts = [f"{figure:.3f}" for one in (node.cpu, node.mem) for figure in (one.gained, one.lost, one.net)]
    return [node.node, f"{node.covered_h:.3f}", *parts, node.evictions]


def _left_out(made: Report) -> Iterator[str]:
    if made.all.undecided:
        yield f"{count(made.all.undecided, 'sample')} left out because pods, facts or allocatable were unknown"
    if made.unproven:
        yield f"{count(made.unproven, 'sample')} left out because the node did not sign them"
    if made.refused:
        yield f"{count(made.refused, 'record')} left out because they are not valid"


def csv_text(made: Report) -> str:
    """Format a CSV row for each node, then the total. Columns are the JSON field paths."""
    rows = [dict(_flat(msgspec.to_builtins(node))) for node in [*made.nodes, made.all]]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(fields: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


KINDS = Saved.__struct_fields__
HOUR_S = 3_600
REGISTRY = CollectorRegistry()


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"slacktide_savings_{name}", text, labels, registry=REGISTRY)


UNTIL = _gauge("until_timestamp_seconds", "End of the span of the other figures.")
SPAN = _gauge("span_seconds", "Length of the span.")
COVERED = _gauge("covered_seconds", "Time in the span that samples cover.", "node")
CPU = _gauge("core_seconds", "CPU of best-effort pods in the span, by kind of figure.", "node", "kind")
MEMORY = _gauge("byte_seconds", "Memory of best-effort pods in the span, by kind of figure.", "node", "kind")
EVICTIONS = _gauge("evictions", "Best-effort pods evicted in the span.", "node")
RESTARTS = _gauge("restarts", "Best-effort containers restarted in the span.", "node")


def write_metrics(made: Report, file: Path) -> None:
    """Write all nodes' figures atomically. Raises ExportFileError if the file cannot be written."""
    UNTIL.set(made.until_ms / 1_000)
    SPAN.set((made.until_ms - made.since_ms) / 1_000)
    for metric in (COVERED, CPU, MEMORY, EVICTIONS, RESTARTS):
        metric.clear()
    for node in made.nodes:
        COVERED.labels(node.node).set(node.covered_h * HOUR_S)
        EVICTIONS.labels(node.node).set(node.evictions)
        RESTARTS.labels(node.node).set(node.restarts)
        for kind in KINDS:
            CPU.labels(node.node, kind).set(getattr(node.cpu, kind) * HOUR_S)
            MEMORY.labels(node.node, kind).set(getattr(node.mem, kind) * (HOUR_S << 30))
    try:
        write_to_textfile(str(file), REGISTRY)
    except OSError as exc:
        raise ExportFileError(f"{file}: {exc.strerror or exc}") from exc
