"""What a scheduler scores a node by, whichever pod it asks for. Topic slacktide.node.score.v1, key: node, compacted."""

from slacktide.schemas.bounds import Count, Name, Revision, TimeMs
from slacktide.schemas.message import Message
from slacktide.schemas.metric import Spread, Use

NOTHING = Use(cpu_milli=0, mem_bytes=0)


def use_of(cpu_milli: int, mem_bytes: int) -> Use:
    """So much; where it is nothing the default itself, which is not written."""
    return Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes) if cpu_milli or mem_bytes else NOTHING


class Statistic(Message, frozen=True, kw_only=True):
    """Distribution of the node's use over one of the fixed windows. Only covered time counts."""

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
    """Estimated use of pods that are not measured yet, by the default factors. Added to ``use``."""
    prod_expected_more: Use = NOTHING
    """The part of it of production pods."""
    statistics: list[Statistic] = []
    """Over 5, 10 and 30 minutes, the shortest first: for thresholds on percentiles."""
    batch_asked: Use = NOTHING
    """Batch resources requested by the node's pods. The published amount is never lower."""
    batch_left: Use
    """Batch resources not requested by any pod."""
    mid_asked: Use = NOTHING
    """The same of mid resource."""
    mid_left: Use = NOTHING
    free_asked: Use = NOTHING
    """The same of free resource."""
    free_left: Use = NOTHING
    pressure: list[str] = []
    """Why best-effort pods are limited or evicted now.

    ``cpu_suppressed``: their CPU limit is below the requests of batch pods. ``mem_over_line``: memory use is above the
    eviction threshold. ``evicting``: evicted pods are still terminating.
    """
    inventory_revision: str = ""
    """The inventory record that ``allocatable`` comes from; "": the sample's facts."""
    stale_ms: TimeMs = 0
    """Minimum time without a record from the node when this was published; 0: the node is not silent.

    Schedulers place no best-effort pod, and no pod that requests batch, mid or free resources, on a silent node.
    """
