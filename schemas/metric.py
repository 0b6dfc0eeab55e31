"""NodeMetric as a record. Topic slacktide.node.metric.v1, key: node, compacted."""

from slacktide.schemas.bounds import Count, Name, Revision, TimeMs, Total
from slacktide.schemas.message import Message

UNCOVERED_MS = 15_000
"""A node's metric, allocatable and score are fresh for this long after their publication, and after each heartbeat that
covers the node. Readers freeze a node that is not fresh: they place nothing there and withdraw nothing."""


class Use(Message, frozen=True, kw_only=True):
    """Averages over the window."""

    cpu_milli: Total
    mem_bytes: Total


class PodMetric(Message, frozen=True, kw_only=True):
    """One pod's average over the window."""

    uid: Name
    namespace: str = ""
    name: str = ""
    priority_class: str = ""
    """Effective class; "" where the pod list does not know the uid."""
    qos: str = ""
    use: Use


class Spread(Message, frozen=True, kw_only=True):
    """Distribution of one figure over a window: average and nearest-rank percentiles of single samples.

    CPU in millicores, memory in bytes.
    """

    avg: Total
    p50: Total
    p90: Total
    p95: Total
    p99: Total


class Aggregate(Message, frozen=True, kw_only=True):
    """Node and system use over one of the fixed windows."""

    window_ms: TimeMs
    covered_ms: TimeMs
    """How much of the window the samples cover; less for a new or silent node."""
    node_cpu_milli: Spread
    node_mem_bytes: Spread
    system_cpu_milli: Spread
    system_mem_bytes: Spread


class NodeMetric(Message, frozen=True, kw_only=True):
    """Averages over the policy's window, and their inputs."""

    node: Name
    boot_id: Revision
    seq: Count
    observed_ms: TimeMs
    """Event time of the newest sample in the window."""
    window_ms: TimeMs
    covered_ms: TimeMs
    """How much of the window the samples cover."""
    samples: Count
    policy_version: Revision
    facts_revision: Revision
    pods_revision: Revision
    node_use: Use
    system_use: Use
    """Node use that no pod accounts for."""
    pods: list[PodMetric] = []
    aggregates: list[Aggregate] = []
    """Over 5, 10 and 30 minutes, the shortest first."""
    late: Count = 0
    """Samples of this boot that arrived too late for any window."""
    stale_ms: TimeMs = 0
    """Minimum time without a record from the node when this was published; 0: the node is not silent."""
    forecast_revision: Revision = ""
    """The forecast behind the following two fields; "": none."""
    prod_reclaimable: Use | None = None
    """Predicted unused part of production pods' requests; None: no prediction."""
    prod_peak: Use | None = None
    """Predicted peak use of production pods, or of production pods and system together if that is higher."""
