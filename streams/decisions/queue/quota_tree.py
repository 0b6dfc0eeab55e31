"""The tree of quotas (ClusterQueues are leaves, cohorts inner nodes), its usage, and fair shares.

Amounts are signed 64-bit integers; the maximum means unlimited. CPU is in millicores, everything else in whole units:
bytes, pods, devices. A fair share is the weighted ratio of borrowed to lendable quota. Nodes with a larger share are
scheduled later and preempted first. Reading: kueue v0.19.2, pkg/resources/amount.go, pkg/cache/scheduler/
resource_node.go, fair_sharing.go; for heights and ``lowest_fit``, pkg/scheduler/preemption/classical/
hierarchical_preemption.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, Self

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
    downward = [node for node in tree.nodes() if node.parent is None]
    for node in downward:
        downward += node.children
    for node in reversed(downward):  # the children before their parent
        node.subtree = {of: quota.nominal for of, quota in node.quotas.items()}
        for child in node.children:
            for of, amount in child.subtree.items():
                node.subtree[of] = plus(node.subtree.get(of, 0), minus(amount, child.local_quota(of)))
        if node.children:
            node.height = max(1, *(1 + child.height for child in node.children))
    return tree


def _node(spec: NodeSpec, *, is_queue: bool) -> QuotaNode:
    return QuotaNode(name=spec.name, is_queue=is_queue, quotas=spec.quotas, fair_weight=spec.fair_weight)


def _hang(node: QuotaNode, parent: str | None, cohorts: Mapping[str, QuotaNode]) -> None:
    if parent is not None:
        node.parent = cohorts[parent]
        node.parent.children.append(node)


class LowestFit(NamedTuple):
    """How far up the tree a request must borrow."""

    height: int
    """Of the cohort whose quota suffices; 0: the ClusterQueue's own suffices."""
    below_root: bool
    """Whether that node has a parent, which may lend more."""


class QuotaUsage:
    """Usage of each node, booked at ClusterQueues and propagated to cohorts.

    Decisions work on copies, so their arguments do not change.
    """

    def __init__(self, used: Mapping[QuotaNode, Mapping[FlavorResource, int]] | None = None) -> None:
        self._used = {node: dict(of_node) for node, of_node in (used or {}).items()}

    def copy(self) -> Self:
        """Return a copy for tentative changes."""
        return type(self)(self._used)

    def used(self, node: QuotaNode) -> Mapping[FlavorResource, int]:
        """Return the booked usage of a node, including non-local usage below it."""
        return self._used.get(node, {})

    def usage(self, node: QuotaNode, of: FlavorResource) -> int:
        """Return a ClusterQueue's booked usage, or what a cohort's children use beyond their local quotas."""
        return self.used(node).get(of, 0)

    def book(self, queue: QuotaNode, of: FlavorResource, amount: int) -> None:
        """Add to a ClusterQueue's usage. Negative amounts subtract, below 0 if more than was booked."""
        node: QuotaNode | None = queue
        while node is not None:
            before = self.usage(node, of)
            after = plus(before, amount)
            self._used.setdefault(node, {})[of] = after
            local = node.local_quota(of)
            amount = minus(max(0, minus(after, local)), max(0, minus(before, local)))
            node = node.parent if amount else None

    def book_all(self, queue: QuotaNode, request: Mapping[FlavorResource, int], sign: int = 1) -> None:
        """Add a whole request; subtract it with a sign of -1."""
        for of, amount in request.items():
            self.book(queue, of, sign * amount)

    def local_available(self, node: QuotaNode, of: FlavorResource) -> int:
        """Return the free part of the local quota."""
        return max(0, minus(node.local_quota(of), self.usage(node, of)))

    def available(self, node: QuotaNode, of: FlavorResource) -> int:
        """Return the available quota; negative if usage exceeds it."""
        root, *below = node.path()
        left = minus(root.subtree_quota(of), self.usage(root, of))
        for each in below:
            limit = each.quota(of).borrowing_limit
            if limit is not None:
                local = each.local_quota(of)
                lent_free = minus(minus(each.subtree_quota(of), local), max(0, minus(self.usage(each, of), local)))
                left = min(left, plus(lent_free, limit))
            left = plus(self.local_available(each, of), left)
        return left

    def fits(self, node: QuotaNode, of: FlavorResource, amount: int) -> bool:
        """Return whether the amount fits."""
        return amount <= max(0, self.available(node, of))

    def borrowing(self, node: QuotaNode, of: FlavorResource, amount: int = 0) -> bool:
        """Return whether the node borrows once the amount is added."""
        own = node.quota(of).nominal if node.is_queue else node.subtree_quota(of)
        return own < plus(self.usage(node, of), amount)

    def within_nominal(self, node: QuotaNode, needed: Iterable[FlavorResource]) -> bool:
        """Return whether it borrows none of them."""
        return all(node.subtree_quota(of) >= self.usage(node, of) for of in needed)

    def lowest_fit(self, queue: QuotaNode, of: FlavorResource, amount: int) -> LowestFit:
        """Return how far up a ClusterQueue must borrow for the amount."""
        if queue.parent is None or not self.borrowing(queue, of, amount):
            return LowestFit(0, queue.parent is not None)
        rest = minus(amount, self.local_available(queue, of))
        height = 0
        for each in queue.ancestors():
            height = each.height
            if not self.borrowing(each, of, rest):
                return LowestFit(height, each.parent is not None)
            rest = minus(rest, self.local_available(each, of))
        return LowestFit(height, below_root=False)


def potential_available(node: QuotaNode, of: FlavorResource) -> int:
    """Return the available quota without any usage."""
    root, *below = node.path()
    most = root.subtree_quota(of)
    for each in below:
        most = plus(each.local_quota(of), most)
        limit = each.quota(of).borrowing_limit
        if limit is not None:
            most = min(most, plus(each.subtree_quota(of), limit))
    return most


class Share(NamedTuple):
    """A node's share among its siblings."""

    ratio_permille: float = 0.0
    """Borrowed to lendable quota of the dominant resource, before the weight."""
    weight: float = 1.0
    dominant_resource: str = ""
    """The resource with the largest ratio, the first by name; "": no lendable resource is borrowed."""
    borrowing_on: frozenset[FlavorResource] = frozenset()
    borrowed: Mapping[str, int] = {}
    lendable: Mapping[str, int] = {}
    """Of borrowed resources: what its parent could use without any usage."""

    @property
    def share(self) -> float:
        """Return the ratio by the weight; infinite if the weight is 0."""
        if not self.ratio_permille:
            return 0.0
        return self.ratio_permille / self.weight if self.weight else math.inf

    @property
    def order(self) -> tuple[bool, float]:
        """Return a sort key: infinite shares are larger than others, and ordered by ratio."""
        endless = not self.weight and bool(self.ratio_permille)
        return endless, self.ratio_permille if endless else self.share


def node_share(node: QuotaNode, usage: QuotaUsage) -> Share:
    """Return the share of a ClusterQueue or cohort; 0 for a root."""
    if node.parent is None:
        return Share(weight=node.fair_weight)
    over = {of: minus(used, node.subtree_quota(of)) for of, used in usage.used(node).items()}
    over = {of: amount for of, amount in over.items() if amount > 0}
    borrowed: dict[str, int] = {}
    for of, amount in over.items():
        borrowed[of.resource] = plus(borrowed.get(of.resource, 0), amount)
    lendable: dict[str, int] = {}
    for of in node.parent.root().subtree if borrowed else ():  # flavors with a quota anywhere in the tree
        if of.resource in borrowed:
            most = potential_available(node.parent, of)
            lendable[of.resource] = plus(lendable.get(of.resource, 0), most)
    ratio, dominant = 0.0, ""
    for resource in sorted(borrowed):
        if lendable.get(resource, 0) > 0:
            of_resource = float(borrowed[resource]) * 1000.0 / float(lendable[resource])
            if of_resource > ratio:
                ratio, dominant = of_resource, resource
    return Share(
        ratio_permille=ratio,
        weight=node.fair_weight,
        dominant_resource=dominant,
        borrowing_on=frozenset(over),
        borrowed=borrowed,
        lendable=lendable,
    )
