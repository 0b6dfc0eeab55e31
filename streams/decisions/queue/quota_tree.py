"""The tree of quotas: ClusterQueues are its leaves, cohorts its inner nodes. It knows nothing of usage.

Reading: kueue v0.19.2, pkg/cache/scheduler/resource_node.go; for heights,
pkg/scheduler/preemption/classical/hierarchical_preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource, minus, plus


class Quota(NamedTuple):
    """A node's quota of one flavor's resource."""

    nominal: int = 0
    borrowing_limit: int | None = None
    """None: without a limit."""
    lending_limit: int | None = None
    """None: all of it is lent."""


NO_QUOTA = Quota()


class NodeSpec(NamedTuple):
    """A ClusterQueue or a cohort as its object describes it."""

    name: str
    parent: str | None = None
    """Its cohort; None: it is a root."""
    quotas: Mapping[FlavorResource, Quota] = {}
    fair_weight: float = 1.0


@dataclass(slots=True, eq=False, kw_only=True)
class QuotaNode:
    """A ClusterQueue or a cohort in its place. ``quota_tree`` makes it; afterwards nothing changes it."""

    name: str
    is_queue: bool
    quotas: Mapping[FlavorResource, Quota]
    fair_weight: float
    parent: QuotaNode | None = None
    children: list[QuotaNode] = field(default_factory=list)
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    """Quota of the node with what its children lend."""
    height: int = 0
    """Of a cohort above its deepest child; 0: it has no children."""

    def quota(self, of: FlavorResource) -> Quota:
        """The node's own; nothing where none is set."""
        return self.quotas.get(of, NO_QUOTA)

    def subtree_quota(self, of: FlavorResource) -> int:
        """Its own quota with what its children lend."""
        return self.subtree.get(of, 0)

    def local_quota(self, of: FlavorResource) -> int:
        """What it never lends."""
        limit = self.quota(of).lending_limit
        return 0 if limit is None else max(0, minus(self.subtree_quota(of), limit))

    def ancestors(self) -> Iterator[QuotaNode]:
        """Its cohorts, the parent first and the root last."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def path(self) -> list[QuotaNode]:
        """The root first, the node itself last."""
        return [self, *self.ancestors()][::-1]

    def root(self) -> QuotaNode:
        """The top of its tree, which may be the node itself."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


class QuotaTree(NamedTuple):
    """All trees of a cluster."""

    queues: Mapping[str, QuotaNode]
    """ClusterQueues by name."""
    cohorts: Mapping[str, QuotaNode]
    """Cohorts by name, with those that are only named as a parent."""

    def nodes(self) -> Iterator[QuotaNode]:
        """Every node once."""
        yield from self.cohorts.values()
        yield from self.queues.values()


def cohort_on_cycle(cohorts: Iterable[NodeSpec]) -> str | None:
    """A cohort that is its own ancestor, the first by the order given; None: there is none."""
    parents = {one.name: one.parent for one in cohorts}
    ends: set[str | None] = {None}
    for name in parents:
        way: dict[str | None, None] = {}
        node: str | None = name
        while node not in ends and node not in way:
            way[node] = None
            node = parents.get(node) if node is not None else None
        if node in way:
            return node
        ends.update(way)
    return None


def quota_tree(queues: Iterable[NodeSpec], cohorts: Iterable[NodeSpec] = ()) -> QuotaTree:
    """Put nodes in their places. Names are unique among each kind, and no cohort is its own ancestor."""
    queues, named = list(queues), {one.name: one for one in cohorts}
    parents = [one.parent for one in (*named.values(), *queues) if one.parent is not None]
    named |= {name: NodeSpec(name) for name in parents if name not in named}
    inner = {name: _node(one, is_queue=False) for name, one in named.items()}
    leaves = {one.name: _node(one, is_queue=True) for one in queues}
    for name, one in named.items():
        _hang(inner[name], one.parent, inner)
    for one in queues:
        _hang(leaves[one.name], one.parent, inner)
    tree = QuotaTree(queues=leaves, cohorts=inner)
    for node in reversed(list(_downward(tree))):
        _sum_up(node)
    return tree


def _node(spec: NodeSpec, *, is_queue: bool) -> QuotaNode:
    return QuotaNode(name=spec.name, is_queue=is_queue, quotas=spec.quotas, fair_weight=spec.fair_weight)


def _hang(node: QuotaNode, parent: str | None, cohorts: Mapping[str, QuotaNode]) -> None:
    if parent is not None:
        node.parent = cohorts[parent]
        node.parent.children.append(node)


def _downward(tree: QuotaTree) -> Iterator[QuotaNode]:
    """Every node after its parent."""
    level = [node for node in tree.nodes() if node.parent is None]
    while level:
        yield from level
        level = [child for node in level for child in node.children]


def _sum_up(node: QuotaNode) -> None:
    """From its own quotas and its children, which are summed up before it."""
    node.subtree = {of: quota.nominal for of, quota in node.quotas.items()}
    for child in node.children:
        for of, quota in child.subtree.items():
            node.subtree[of] = plus(node.subtree.get(of, 0), minus(quota, child.local_quota(of)))
    if node.children:
        node.height = max(1, *(1 + child.height for child in node.children))
