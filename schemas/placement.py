"""Why a pod was refused by nodes, or prefers one. Topic slacktide.pod.placement.v1, key: the pod's uid."""

from slacktide.schemas.bounds import Count, Name, TimeMs
from slacktide.schemas.message import Message, Terms


class RefusingNodes(Message, frozen=True, kw_only=True):
    """The nodes that refused the pod for one reason."""

    reason: str
    """Such as ``stale``, ``batch_short:cpu`` or ``usage_exceeds_threshold:memory``."""
    why: str = ""
    """In words, as the pod's events have it: the threshold with its key, observed and requested values."""
    count: Count
    nodes: list[str]
    """The first of them by name, five at most."""


class RankedNode(Message, frozen=True, kw_only=True):
    """A node that would take the pod, and how much it is preferred."""

    node: Name
    level: Count
    """The score that the scheduler got: 10 is best, 0 attracts nothing."""
    score_permille: Count
    bound: str
    """``scored``, or why it attracts nothing."""
    terms: Terms = {}
    zones: str = ""
    """For people: NUMA zones of the pod, free resources before and after, and reservations."""
    cores: str = ""
    """CPUs that the pod gets for itself, such as ``0-3,6``."""


class PodPlacement(Message, frozen=True, kw_only=True):
    """One answer to a scheduler that looks for a node. Which it took in the end is in the pod's ``spec.nodeName``."""

    pod_uid: Name
    namespace: Name
    name: Name
    decided_ms: TimeMs
    asked: Count
    """Nodes that the scheduler asked about: those that its own filters had left."""
    passed: Count
    """Those of them that would take the pod."""
    refused: list[RefusingNodes] = []
    """By reason, the most frequent first."""
    best: list[RankedNode] = []
    """The five best of those that would."""
    dry_run: bool = False
    """By the policy: the scheduler got all nodes, and preferred none of them by this."""
