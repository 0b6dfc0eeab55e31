"""NodeMetric as a record. Topic slacktide.node.metric.v1, key: node, compacted."""

from __future__ import annotations

from slacktide.schemas.message import Count, Message

UNSAID_MS = 15_000
"""Of each node its metric, allocatable and score are said again within 5 s. What nobody has said for so long is no
longer known: nothing is written or placed by it, and nothing withdrawn."""


class Use(Message, frozen=True, kw_only=True):
    """Averages over the window."""

    cpu_milli: int
    mem_bytes: int


class PodMetric(Message, frozen=True, kw_only=True):
    """One pod's average over the window."""

    uid: str
    namespace: str = ""
    name: str = ""
    priority_class: str = ""
    """Effective class; "" where the pod list does not know the uid."""
    qos: str = ""
    use: Use


class Spread(Message, frozen=True, kw_only=True):
    """How one figure was spread over a while: nearest-rank percentiles of what single samples saw, and their average.

    CPU in millicores, memory in bytes.
    """

    avg: int
    p50: int
    p90: int
    p95: int
    p99: int


class Aggregate(Message, frozen=True, kw_only=True):
    """Node and system use over one of the fixed windows."""

    window_ms: Count
    covered_ms: Count
    """How much of the window the samples cover; a young or silent node covers less."""
    node_cpu_milli: Spread
    node_mem_bytes: Spread
    system_cpu_milli: Spread
    system_mem_bytes: Spread


class NodeMetric(Message, frozen=True, kw_only=True):
    """Averages over the policy's window, and the inputs they were made of."""

    node: str
    boot_id: str
    seq: Count
    observed_ms: Count
    """Event time of the newest sample in the window."""
    window_ms: Count
    covered_ms: Count
    """How much of the window the samples cover."""
    samples: Count
    policy_version: str
    facts_revision: str
    pods_revision: str
    node_use: Use
    system_use: Use
    """Node use that no pod accounts for."""
    pods: list[PodMetric] = []
    aggregates: list[Aggregate] = []
    """Over 5, 10 and 30 minutes, the shortest first."""
    late: Count = 0
    """Samples of this boot that came too late for any window."""
    stale_ms: Count = 0
    """For how long at least nothing of the node had come into the log when this was said; 0: it is not silent."""
