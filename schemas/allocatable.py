"""What a node offers to batch, mid and free pods. Topic slacktide.node.allocatable.v1, key: node, compacted."""

from __future__ import annotations

from slacktide.schemas.bounds import Count, Name, Revision, TimeMs, Total
from slacktide.schemas.message import Message, Terms

SOLD = (
    "batch_cpu_milli",
    "batch_mem_bytes",
    "mid_cpu_milli",
    "mid_mem_bytes",
    "free_cpu_milli",
    "free_mem_bytes",
)
"""What is published for batch, mid and free pods, and what these ask for."""


class Prediction(Message, frozen=True, kw_only=True):
    """What production pods are predicted to leave of what they asked for, with the arithmetic."""

    state: str = ""
    """Why nothing is predicted: ``cold start``, ``stale forecast``, or that of another boot; "": it is predicted."""
    observed_ms: TimeMs
    """Event time of the newest sample in the forecast."""
    young: Count = 0
    """Production pods with too few samples: their requests count as their peaks."""
    cpu_bound: str = ""
    """What fixed it: ``pods``, ``node``, ``allocatable``; ``no_forecast``: a model lacks."""
    mem_bound: str = ""
    cpu_terms: Terms = {}
    mem_terms: Terms = {}


class NodeAllocatable(Message, frozen=True, kw_only=True):
    """What batch, mid and free pods may ask for on a node, with the arithmetic. None: none is published.

    No figure is below what such pods that run there have asked for already.
    """

    node: Name
    boot_id: Revision
    seq: Count
    observed_ms: TimeMs
    policy_version: Revision
    facts_revision: Revision
    pods_revision: Revision
    window_ms: TimeMs
    covered_ms: TimeMs
    batch_cpu_milli: Total | None
    batch_mem_bytes: Total | None
    degraded: bool = False
    reason: str = ""
    """Why nothing is published."""
    cpu_terms: Terms = {}
    mem_terms: Terms = {}
    mid_cpu_milli: Total | None = None
    mid_mem_bytes: Total | None = None
    mid_cpu_terms: Terms = {}
    mid_mem_terms: Terms = {}
    floored: list[str] = []
    """Figures that stand at what running pods have asked for, and would be lower or removed without them."""
    inventory_revision: str = ""
    """The inventory record whose capacity, labels and annotations the figures go by; "": the sample's facts."""
    stale_ms: TimeMs = 0
    """For how long at least no record of the node had come to Kafka when this was published; 0: it is not silent."""
    forecast_revision: Revision = ""
    """The forecast that mid resources go by; "": there is none, and they hold nothing of what production pods leave."""
    prediction: Prediction | None = None
    """By that forecast."""
    free_cpu_milli: Total | None = None
    """What no pod uses. None: free pods get nothing of their own, unless ``freeClassEnable`` is set."""
    free_mem_bytes: Total | None = None
    free_cpu_terms: Terms = {}
    free_mem_terms: Terms = {}
