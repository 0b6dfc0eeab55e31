"""Writes an account as metrics for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from slacktide.deploy.cli.replay.source import ExportFileError
from slacktide.streams.savings.report import Report, Saved

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


def write(made: Report, file: Path) -> None:
    """Write all nodes' figures atomically.

    Raises:
        ExportFileError: the file cannot be written.
    """
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
