"""What a scheduler scores a node by, whichever pod it asks for. Topic slacktide.node.score.v1, key: node, compacted."""

from __future__ import annotations

from slacktide.schemas.message import Count, Message
from slacktide.schemas.metric import Use


class NodeScore(Message, frozen=True, kw_only=True):
    """A node's load as load-aware scheduling counts it: the terms that do not depend on the pod."""

    node: str
    boot_id: str
    seq: Count
    observed_ms: Count
    policy_version: str
    facts_revision: str
    pods_revision: str
    allocatable: Use
    """Of the node, for all pods."""
    use: Use
    """Of the whole node, as an average over the policy's window."""
    prod_use: Use
    """Of its production pods, likewise."""
    batch_left: Use
    """Batch resource that no pod there has asked for."""
    pressure: list[str] = []
    """Why best-effort pods are held back or leave just now, such as ``cpu_suppressed`` and ``mem_evicting``."""
    stale_ms: Count = 0
    """By the log's clock: how long the node had been silent when this was said; 0: it was not. It takes no pod then."""
