"""An account as metrics, in a file for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from slacktide.deploy.cli.replay.source import ExportFileError
from slacktide.streams.savings.report import Report, Saved

KINDS = Saved.__struct_fields__
HOUR_S = 3_600
UNITS = {"cpu": HOUR_S, "mem": HOUR_S << 30}


def write(made: Report, file: Path) -> None:
    """Write all nodes' figures; the file takes its place once it is whole.

    Raises:
        ExportFileError: it cannot be written.

    """
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"slacktide_savings_{name}", text, labels, registry=registry)

    gauge("until_timestamp_seconds", "End of the span that the other figures are of.").set(made.until_ms / 1_000)
    gauge("span_seconds", "Length of that span.").set((made.until_ms - made.since_ms) / 1_000)
    hours = {
        "cpu": gauge("core_seconds", "CPU of best-effort pods in the span, by kind of figure.", "node", "kind"),
        "mem": gauge("byte_seconds", "Memory of best-effort pods in the span, by kind of figure.", "node", "kind"),
    }
    counts = {
        "evictions": gauge("evictions", "Best-effort pods evicted in the span.", "node"),
        "restarts": gauge("restarts", "Best-effort containers restarted in the span.", "node"),
    }
    covered = gauge("covered_seconds", "Time that samples cover in the span.", "node")
    for node in made.nodes:
        covered.labels(node.node).set(node.covered_h * HOUR_S)
        for resource, metric in hours.items():
            for kind in KINDS:
                metric.labels(node.node, kind).set(getattr(getattr(node, resource), kind) * UNITS[resource])
        for name, metric in counts.items():
            metric.labels(node.node).set(getattr(node, name))
    try:
        write_to_textfile(str(file), registry)
    except OSError as exc:
        raise ExportFileError(f"{file}: {exc.strerror or exc}") from exc
