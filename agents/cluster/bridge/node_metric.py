"""NodeMetric objects from a node's record in Kafka.

Field names: koordinator a7a1b76b, apis/slo/v1alpha1/nodemetric_types.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from slacktide.agents.kubernetes import NODE_METRICS
from slacktide.schemas.metric import Aggregate, NodeMetric, PodMetric, Use
from slacktide.schemas.policy import Colocation
from slacktide.schemas.units import cpu_text, mem_text

Json = dict[str, object]
INTERVAL_S = 60
"""Minimum: one write per node and minute."""
SPREADS = ("avg", "p50", "p90", "p95", "p99")


def is_due(published: NodeMetric, *, reported_ms: int | None, since_s: float, colocation: Colocation) -> bool:
    """Return whether to write the node's NodeMetric now.

    Not for a silent node: its ``updateTime`` must grow old. ``reported_ms``: ``observed_ms`` of the last report;
    None: there was none. ``since_s``: time since that report.
    """
    if published.stale_ms > 0 or published.observed_ms == reported_ms:
        return False
    return reported_ms is None or since_s >= max(INTERVAL_S, colocation.metric_report_interval_s)


def created(node: str, uid: str) -> Json:
    """Return a new object, owned by its Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": NODE_METRICS.api_version,
        "kind": "NodeMetric",
        "metadata": {"name": node, "ownerReferences": [owner]},
        "spec": {},
    }


def status_of(published: NodeMetric) -> Json:
    """Return the merge patch for ``nodemetrics/status``."""
    node: Json = {
        "nodeUsage": _usage(published.node_use),
        "systemUsage": _usage(published.system_use),
        "aggregatedNodeUsages": _aggregated(published.aggregates, "node"),
        "aggregatedSystemUsages": _aggregated(published.aggregates, "system"),
    }
    pods = [_pod(pod) for pod in published.pods if pod.name]
    updated = datetime.fromtimestamp(published.observed_ms // 1_000, UTC).isoformat().replace("+00:00", "Z")
    left = published.prod_reclaimable
    reclaimable = {"resource": {} if left is None else _usage(left)}
    return {
        "status": {"updateTime": updated, "nodeMetric": node, "podsMetric": pods, "prodReclaimableMetric": reclaimable}
    }


def _pod(pod: PodMetric) -> Json:
    named = {"namespace": pod.namespace, "name": pod.name, "priority": pod.priority_class, "qos": pod.qos}
    return {**{key: text for key, text in named.items() if text}, "podUsage": _usage(pod.use)}


def _usage(use: Use) -> Json:
    return _resources(use.cpu_milli, use.mem_bytes)


def _aggregated(aggregates: Iterable[Aggregate], of: str) -> list[Json]:
    return [
        {
            "duration": duration_text(one.window_ms),
            "usage": {
                spread: _resources(
                    getattr(getattr(one, f"{of}_cpu_milli"), spread), getattr(getattr(one, f"{of}_mem_bytes"), spread)
                )
                for spread in SPREADS
            },
        }
        for one in aggregates
    ]


def _resources(cpu_milli: int, mem_bytes: int) -> Json:
    return {"resources": {"cpu": cpu_text(cpu_milli), "memory": mem_text(mem_bytes)}}


def duration_text(ms: int) -> str:
    """Return a duration in Go's format, such as ``5m0s``."""
    minutes, seconds = divmod(ms // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
