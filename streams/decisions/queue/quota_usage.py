"""Computes usage, available quota, borrowing and fair shares in a quota tree, and whether requests fit.

A fair share is the weighted ratio of borrowed to lendable quota. Nodes with a larger share are scheduled later and
preempted first. Reading: kueue v0.19.2, pkg/cache/scheduler/resource_node.go, fair_sharing.go; for ``lowest_fit``,
pkg/scheduler/preemption/classical/hierarchical_preemption.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode, minus, plus


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
    lendable = _lendable(node.parent, borrowed)
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


def _lendable(parent: QuotaNode, borrowed: Mapping[str, int]) -> dict[str, int]:
    """Return the sum over flavors with a quota anywhere in the tree."""
    lendable: dict[str, int] = {}
    for of in parent.root().subtree if borrowed else ():
        if of.resource in borrowed:
            lendable[of.resource] = plus(lendable.get(of.resource, 0), potential_available(parent, of))
    return lendable
