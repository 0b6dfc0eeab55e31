"""What a scheduler scores a node by, whichever pod it asks for. Topic slacktide.node.score.v1, key: node, compacted."""

from __future__ import annotations

from slacktide.schemas.bounds import Count, Name, Revision, TimeMs
from slacktide.schemas.message import Message
from slacktide.schemas.metric import Spread, Use

NOTHING = Use(cpu_milli=0, mem_bytes=0)


def use_of(cpu_milli: int, mem_bytes: int) -> Use:
    """So much; where it is nothing the default itself, which is not written."""
    return Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes) if cpu_milli or mem_bytes else NOTHING


class Statistic(Message, frozen=True, kw_only=True):
    """How the node's use was spread over one of the fixed windows; what is not covered is not in it."""

    window_ms: TimeMs
    covered_ms: TimeMs
    cpu_milli: Spread
    mem_bytes: Spread


class NodeScore(Message, frozen=True, kw_only=True):
    """A node's load as load-aware scheduling counts it: the terms that do not depend on the pod."""

    node: Name
    boot_id: Revision
    seq: Count
    observed_ms: TimeMs
    """The age of the report is counted from here."""
    policy_version: Revision
    facts_revision: Revision
    pods_revision: Revision
    allocatable: Use
    """Of the node, for all pods."""
    use: Use
    """Of the whole node, as an average over the policy's window."""
    system_use: Use = NOTHING
    """The part of it that no pod accounts for."""
    prod_use: Use
    """Of its production pods, likewise."""
    expected_more: Use = NOTHING
    """What pods that nobody has measured yet are estimated at, by the default factors: it comes on top of the use."""
    prod_expected_more: Use = NOTHING
    """The part of it that is of production pods."""
    statistics: list[Statistic] = []
    """Over 5, 10 and 30 minutes, the shortest first: for thresholds on percentiles."""
    batch_asked: Use = NOTHING
    """Batch resource that pods there have asked for: what is published of it never falls below."""
    batch_left: Use
    """Batch resource that no pod there has asked for."""
    mid_asked: Use = NOTHING
    """The same of mid resource."""
    mid_left: Use = NOTHING
    free_asked: Use = NOTHING
    """The same of free resource."""
    free_left: Use = NOTHING
    pressure: list[str] = []
    """Why best-effort pods are held back or leave just now.

    ``cpu_suppressed``: they may use less CPU than batch pods there asked for. ``mem_over_line``: the node uses so
    much memory that the policy has them evicted. ``evicting``: pods that were evicted are still leaving.
    """
    inventory_revision: str = ""
    """The inventory record that ``allocatable`` comes from; "": the sample's facts."""
    stale_ms: TimeMs = 0
    """For how long at least no record of the node had come to Kafka when this was published; 0: it is not silent.

    A silent node takes no best-effort pod, nor one that asks for batch, mid or free resource.
    """
