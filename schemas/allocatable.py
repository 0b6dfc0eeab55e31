"""What a node offers to batch, mid and free pods. Topic slacktide.node.allocatable.v1, key: node, compacted."""

from slacktide.schemas.bounds import Count, Name, Revision, TimeMs, Total
from slacktide.schemas.message import Message, Terms

OFFERED = ("batch_cpu_milli", "batch_mem_bytes", "mid_cpu_milli", "mid_mem_bytes", "free_cpu_milli", "free_mem_bytes")
"""What is published for batch, mid and free pods, and what these ask for."""


class Prediction(Message, frozen=True, kw_only=True):
    """Predicted unused part of production pods' requests, with the arithmetic."""

    state: str = ""
    """Why there is no prediction: ``cold start``, ``stale forecast``, or one of another boot; "": there is one."""
    observed_ms: TimeMs
    """Event time of the newest sample in the forecast."""
    young: Count = 0
    """Production pods with too few samples: their requests count as their peaks."""
    cpu_bound: str = ""
    """What bounds it: ``pods``, ``node``, ``allocatable``; ``no_forecast``: a model is missing."""
    mem_bound: str = ""
    cpu_terms: Terms = {}
    mem_terms: Terms = {}


class NodeAllocatable(Message, frozen=True, kw_only=True):
    """What batch, mid and free pods may request on a node, with the arithmetic. None: not published.

    No figure is below the requests of such pods that run there.
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
    """Figures raised to the requests of running pods. Without them they would be lower or removed."""
    inventory_revision: str = ""
    """The inventory record behind capacity, labels and annotations; "": the sample's facts."""
    stale_ms: TimeMs = 0
    """Minimum time without a record from the node when this was published; 0: the node is not silent."""
    forecast_revision: Revision = ""
    """The forecast behind mid resources; "": none, so they do not include unused requests of production pods."""
    prediction: Prediction | None = None
    """By that forecast."""
    free_cpu_milli: Total | None = None
    """What no pod uses. None: free pods get nothing of their own, unless ``freeClassEnable`` is set."""
    free_mem_bytes: Total | None = None
    free_cpu_terms: Terms = {}
    free_mem_terms: Terms = {}
