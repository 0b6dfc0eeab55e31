"""The tree of quotas, without usage: ClusterQueues are leaves, cohorts inner nodes.

Amounts are signed 64-bit integers; the maximum means unlimited. CPU is in millicores, everything else in whole units:
bytes, pods, devices. Reading: kueue v0.19.2, pkg/resources/amount.go, pkg/cache/scheduler/resource_node.go; for
heights, pkg/scheduler/preemption/classical/hierarchical_preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

UNLIMITED = 2**63 - 1
AMOUNT_MIN = -(2**63)


class FlavorResource(NamedTuple):
    """A resource, by its Kubernetes name, of a flavor."""

    flavor: str
    resource: str


def plus(left: int, right: int) -> int:
    """Return the sum; unlimited if an operand is."""
    if UNLIMITED in {left, right}:
        return UNLIMITED
    return min(max(left + right, AMOUNT_MIN), UNLIMITED)


def minus(left: int, right: int) -> int:
    """Return the difference. An unlimited amount stays unlimited unless the subtrahend is unlimited."""
    if right == UNLIMITED:
        return 0 if left == UNLIMITED else AMOUNT_MIN
    if left == UNLIMITED:
        return UNLIMITED
    return min(max(left - right, AMOUNT_MIN), UNLIMITED)


def total(amounts: Iterable[int]) -> int:
    """Return the sum of all amounts."""
    return reduce(plus, amounts, 0)


class Quota(NamedTuple):
    """A node's quota of one resource of a flavor."""

    nominal: int = 0
    borrowing_limit: int | None = None
    """None: no limit."""
    lending_limit: int | None = None
    """None: all of it is lent."""


NO_QUOTA = Quota()


class NodeSpec(NamedTuple):
    """A ClusterQueue or cohort from its object."""

    name: str
    parent: str | None = None
    quotas: Mapping[FlavorResource, Quota] = {}
    fair_weight: float = 1.0


@dataclass(slots=True, eq=False, kw_only=True)
class QuotaNode:
    """A ClusterQueue or cohort in the tree. ``quota_tree`` creates it; it is immutable afterwards."""

    name: str
    is_queue: bool
    quotas: Mapping[FlavorResource, Quota]
    fair_weight: float
    parent: QuotaNode | None = None
    children: list[QuotaNode] = field(default_factory=list)
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    """The node's quota plus what its children lend."""
    height: int = 0
    """Of a cohort above its deepest child; 0: it has no children."""

    def quota(self, of: FlavorResource) -> Quota:
        """Return the node's own quota; 0 if none is set."""
        return self.quotas.get(of, NO_QUOTA)

    def subtree_quota(self, of: FlavorResource) -> int:
        """Return its own quota plus what its children lend."""
        return self.subtree.get(of, 0)

    def local_quota(self, of: FlavorResource) -> int:
        """Return the quota that it never lends."""
        limit = self.quota(of).lending_limit
        return 0 if limit is None else max(0, minus(self.subtree_quota(of), limit))

    def ancestors(self) -> Iterator[QuotaNode]:
        """Yield its cohorts from parent to root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def path(self) -> list[QuotaNode]:
        """Return the nodes from the root to this one."""
        return [self, *self.ancestors()][::-1]

    def root(self) -> QuotaNode:
        """Return the root of its tree, which may be this node."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


class QuotaTree(NamedTuple):
    """All trees of a cluster."""

    queues: Mapping[str, QuotaNode]
    cohorts: Mapping[str, QuotaNode]
    """Including cohorts that are only named as a parent."""

    def nodes(self) -> Iterator[QuotaNode]:
        """Yield every node once."""
        yield from self.cohorts.values()
        yield from self.queues.values()


def cohort_on_cycle(cohorts: Iterable[NodeSpec]) -> str | None:
    """Return the first cohort in the given order that is its own ancestor; None if there is none."""
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
    """Build the trees. Names must be unique per kind, and cohorts must not form cycles."""
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
    level = [node for node in tree.nodes() if node.parent is None]
    while level:
        yield from level
        level = [child for node in level for child in node.children]


def _sum_up(node: QuotaNode) -> None:
    """Sum its own quotas and those that its children lend. The children must be summed before."""
    node.subtree = {of: quota.nominal for of, quota in node.quotas.items()}
    for child in node.children:
        for of, quota in child.subtree.items():
            node.subtree[of] = plus(node.subtree.get(of, 0), minus(quota, child.local_quota(of)))
    if node.children:
        node.height = max(1, *(1 + child.height for child in node.children))
