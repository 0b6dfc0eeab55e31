"""NodeMetric as a record. Topic slacktide.node.metric.v1, key: node, compacted."""

from __future__ import annotations

from slacktide.schemas.message import Count, Message


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
