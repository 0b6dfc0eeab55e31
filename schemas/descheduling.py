"""Pods to evict from overloaded nodes, or why there are none. Topic slacktide.cluster.descheduling.v1, key: pass."""

from slacktide.schemas.bounds import Count, Name, Revision, TimeMs
from slacktide.schemas.message import Message, Terms


class NodesOfClass(Message, frozen=True, kw_only=True):
    """How many nodes are loaded so."""

    load_class: str
    """``high``, ``prod_high``, ``low``, ``prod_low``, ``both_low`` or ``between``; ``stale`` or ``unmeasured`` ones,
    and those of which ``nothing_allocatable`` is known, neither give nor take."""
    count: Count
    nodes: list[str]
    """The first of them by name, five at most."""


class StayingPods(Message, frozen=True, kw_only=True):
    """Pods of a node that may not be evicted for one reason."""

    reason: str
    """Such as ``not_best_effort``, ``daemonset`` or ``settling``."""
    count: Count


class SourceNode(Message, frozen=True, kw_only=True):
    """A node above its high thresholds."""

    node: Name
    load_class: str
    bound: str
    """``waiting``: it has not been over for long enough. Else why no more pods leave: ``relieved``, ``no_more_pods``,
    ``budget_spent`` (that of the targets' room), or what held the pass back."""
    terms: Terms = {}
    staying: list[StayingPods] = []
    """By reason, the most first."""


class Victim(Message, frozen=True, kw_only=True):
    """A pod to evict."""

    pod_uid: Name
    namespace: Name
    name: Name
    node: Name
    terms: Terms = {}
    """The resource that the node is over most in, in percent; then each it is over in, before this pod leaves."""


class DeschedulingPass(Message, frozen=True, kw_only=True):
    """One look at all nodes. What came of an eviction is an outcome."""

    epoch: Count
    """Epoch of the leading bridge; the highest wins."""
    number: Count
    """Number of the pass in that bridge's term, from 1."""
    decided_ms: TimeMs
    policy_version: Revision
    dry_run: bool
    """Whether it only reports the pods that it would evict."""
    bound: str
    """``acted``, or why it did not: ``none_over``, ``none_lasting``, ``no_targets`` or ``too_few_targets``."""
    terms: Terms = {}
    classes: list[NodesOfClass] = []
    """Those that any node is of."""
    sources: list[SourceNode] = []
    """By name, 100 at most."""
    victims: list[Victim] = []
    """In the order in which they go, 100 at most."""
