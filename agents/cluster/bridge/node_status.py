"""What to write to a Node's status and to its NodeMetric, and how often. Pure.

Source: koordinator a7a1b76b, pkg/slo-controller/noderesource: write if a resource was added, removed or changed by more
    than a tenth, or if the last write is older than 300 s. Unchanged values are not written. Field names of a
    NodeMetric: apis/slo/v1alpha1/nodemetric_types.go.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from slacktide.agents.kubernetes.resource import NODE_METRICS
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.errors import QuantityError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.metric import Aggregate, NodeMetric, Use
from slacktide.schemas.policy import Colocation
from slacktide.schemas.text import time_text
from slacktide.schemas.units import cpu_text, mem_text, whole
from slacktide.streams.decisions.resources.publishing import Pair, resource_sync_decision

TIERS = (
    {"batch_cpu_milli": "kubernetes.io/batch-cpu", "batch_mem_bytes": "kubernetes.io/batch-memory"},
    {"mid_cpu_milli": "kubernetes.io/mid-cpu", "mid_mem_bytes": "kubernetes.io/mid-memory"},
    {"free_cpu_milli": "kubernetes.io/free-cpu", "free_mem_bytes": "kubernetes.io/free-memory"},
)
"""Resource name by field; CPU in millicores, memory in bytes."""
NAMES = {field: name for tier in TIERS for field, name in tier.items()}
_UNREADABLE = -1
Figures = Mapping[str, int | None]
"""By field; None: the node lacks the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """These resources in a Node's status."""

    capacity: Figures
    allocatable: Figures

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return any(one is not None for one in (*self.capacity.values(), *self.allocatable.values()))

    @property
    def batch(self) -> tuple[int | None, int | None]:
        """Allocatable batch CPU and memory; None: missing or unreadable."""
        cpu_milli, mem_bytes = (self.allocatable[field] for field in TIERS[0])
        return _readable(cpu_milli), _readable(mem_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """A wanted write and its reason."""

    figures: Figures
    reason: str
    urgent: bool
    """Withdraws resources of a node without fresh figures, or repairs a contradiction."""

    @property
    def body(self) -> dict[str, object]:
        """The merge patch for ``nodes/status``; null removes a resource."""
        amounts = {NAMES[field]: None if value is None else str(value) for field, value in self.figures.items()}
        return {"status": {"capacity": amounts, "allocatable": amounts}}


WITHDRAWN = StatusWrite(figures=dict.fromkeys(NAMES), reason="removed", urgent=True)
"""Removes all resources, when the bridge is removed from the cluster."""


def shown(capacity: Mapping[str, str] | None, allocatable: Mapping[str, str] | None) -> Shown:
    """Read these resources from a Node's status; an unreadable amount counts as changed."""
    return Shown(capacity=_figures(capacity or {}), allocatable=_figures(allocatable or {}))


def figures_of(published: NodeAllocatable) -> Figures:
    """Return the figures to write."""
    return {field: getattr(published, field) for field in NAMES}


def withdrawn(published: NodeAllocatable) -> NodeAllocatable:
    """Return the record without figures, for a dry run."""
    return msgspec.structs.replace(published, **dict.fromkeys(NAMES))


def capped(published: NodeAllocatable, capacity: Resources) -> NodeAllocatable:
    """Return the record, capped at the node's capacity; resources that the node does not declare count as 0."""
    above = _above(published, capacity)
    return msgspec.structs.replace(published, **above) if above else published


def overstated(published: NodeAllocatable, capacity: Resources) -> str:
    """List figures above the node's capacity; "": none."""
    above = _above(published, capacity).items()
    texts = (f"{field} is {getattr(published, field)}, above the Node's capacity of {limit}" for field, limit in above)
    return "; ".join(texts)


def _above(published: NodeAllocatable, capacity: Resources) -> dict[str, int]:
    """The node's capacity by each figure that is above it."""
    limits = {name: (capacity.mem_bytes if name.endswith("_bytes") else capacity.cpu_milli) or 0 for name in NAMES}
    return {name: limit for name, limit in limits.items() if (getattr(published, name) or 0) > limit}


def status_write(
    shown: Shown, published: NodeAllocatable, colocation: Colocation, since_s: float
) -> StatusWrite | None:
    """Return the write to make, if any. ``published`` is ``capped`` and not frozen."""
    figures = figures_of(published)
    if shown.capacity == figures == shown.allocatable:
        return None
    if shown.capacity != shown.allocatable:
        return StatusWrite(figures=figures, reason="capacity and allocatable differ", urgent=True)
    tiers = ([Pair(of=field, old=shown.allocatable[field], new=figures[field]) for field in tier] for tier in TIERS)
    if any(resource_sync_decision(pairs, colocation.resource_diff_threshold).need_sync for pairs in tiers):
        withdrawn = (
            published.degraded
            or published.stale_ms > 0
            or any(shown.allocatable[field] is not None and figures[field] is None for field in NAMES)
        )
        return StatusWrite(figures=figures, reason="moved", urgent=withdrawn)
    if since_s >= colocation.update_time_threshold_s:
        return StatusWrite(figures=figures, reason="due", urgent=False)
    return None


def _figures(amounts: Mapping[str, str]) -> dict[str, int | None]:
    return {field: _amount(amounts.get(name)) for field, name in NAMES.items()}


def _amount(text: str | None) -> int | None:
    try:
        return None if text is None else whole(text)
    except QuantityError:
        return _UNREADABLE


def _readable(amount: int | None) -> int | None:
    return None if amount is None or amount < 0 else amount


Json = dict[str, object]
INTERVAL_S = 60
"""Minimum: one write per node and minute."""
SPREADS = ("avg", "p50", "p90", "p95", "p99")


def is_metric_due(published: NodeMetric, reported_ms: int | None, since_s: float, colocation: Colocation) -> bool:
    """Return whether to write the node's NodeMetric now.

    Not for a silent node: its ``updateTime`` must grow old. ``reported_ms``: ``observed_ms`` of the last report;
    None: there was none. ``since_s``: time since that report.
    """
    if published.stale_ms > 0 or published.observed_ms == reported_ms:
        return False
    return reported_ms is None or since_s >= max(INTERVAL_S, colocation.metric_report_interval_s)


def metric_created(node: str, uid: str) -> Json:
    """Return a new object, owned by its Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "apiVersion": NODE_METRICS.api_version,
        "kind": "NodeMetric",
        "metadata": {"name": node, "ownerReferences": [owner]},
        "spec": {},
    }


def metric_status(published: NodeMetric) -> Json:
    """Return the merge patch for ``nodemetrics/status``."""
    node: Json = {
        "nodeUsage": _usage(published.node_use),
        "systemUsage": _usage(published.system_use),
        "aggregatedNodeUsages": _aggregated(published.aggregates, "node"),
        "aggregatedSystemUsages": _aggregated(published.aggregates, "system"),
    }
    pods: list[Json] = []
    for pod in published.pods:
        named = {"namespace": pod.namespace, "name": pod.name, "priority": pod.priority_class, "qos": pod.qos}
        if pod.name:
            pods.append({**{key: text for key, text in named.items() if text}, "podUsage": _usage(pod.use)})
    updated = time_text(published.observed_ms)
    left = published.prod_reclaimable
    reclaimable = {"resource": {} if left is None else _usage(left)}
    return {
        "status": {"updateTime": updated, "nodeMetric": node, "podsMetric": pods, "prodReclaimableMetric": reclaimable}
    }


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


NODE_WRITE_S = 120.0
"""Average interval between writes to a node."""
SAVED_MAX = 3.0
"""Burst of writes per node."""
GAP_S = 10.0
"""Minimum interval between two writes to a node, even if urgent: longer than the watch takes."""
UNFORCED_S = 60.0
"""Minimum interval between two writes to a Node that are not urgent, however many are saved."""
SHARE_S = 60.0
AT_LEAST = 10


@dataclass(slots=True)
class Budget:
    """Write budget of one node. Times are monotonic seconds."""

    begun_s: float
    """When the node was first seen, or last written to."""
    each_s: float = 0.0
    """Minimum interval between two writes that are not urgent."""
    saved: float = SAVED_MAX
    written: bool = False
    unforced_s: float = -math.inf
    """When the last write succeeded that was not urgent."""

    def since_s(self, now_s: float) -> float:
        """Time since the last write."""
        return now_s - self.begun_s

    def allows(self, now_s: float, *, urgent: bool) -> bool:
        """Return whether a write is allowed now; an urgent one only waits for the gap."""
        if self.written and self.since_s(now_s) < GAP_S:
            return False
        return urgent or (now_s >= self.unforced_s + self.each_s and self._saved(now_s) >= 1)

    def wrote(self, now_s: float, *, unforced: bool) -> None:
        """Record that a write was tried; ``unforced``: it succeeded, and was not urgent."""
        self.saved = max(0.0, self._saved(now_s) - 1)
        self.begun_s, self.written = now_s, True
        if unforced:
            self.unforced_s = now_s

    def _saved(self, now_s: float) -> float:
        return min(SAVED_MAX, self.saved + self.since_s(now_s) / NODE_WRITE_S)


def share(nodes: int, elapsed_s: float = 1.0) -> int:
    """Return how many nodes may be written to in this time: all nodes in a minute, at least 10 a second."""
    return math.ceil(max(AT_LEAST, nodes / SHARE_S) * elapsed_s)
