"""Batch resources of a node. Topic slacktide.node.allocatable.v1, key: node, compacted."""

from __future__ import annotations

from slacktide.schemas.message import Count, Message, Terms


class NodeAllocatable(Message, frozen=True, kw_only=True):
    """What batch pods may ask for on a node, with the arithmetic. None: none is published."""

    node: str
    boot_id: str
    seq: Count
    observed_ms: Count
    policy_version: str
    facts_revision: str
    pods_revision: str
    window_ms: Count
    covered_ms: Count
    batch_cpu_milli: int | None
    batch_mem_bytes: int | None
    degraded: bool = False
    reason: str = ""
    """Why nothing is published."""
    cpu_terms: Terms = {}
    mem_terms: Terms = {}
