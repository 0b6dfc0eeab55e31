"""What is used in a tree of quotas, and so what is available, where it is borrowed, and whether a request fits.

Reading: kueue v0.19.2, pkg/cache/scheduler/resource_node.go; for ``lowest_fit``,
pkg/scheduler/preemption/classical/hierarchical_preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from slacktide.streams.decisions.queue.amount import FlavorResource, minus, plus
from slacktide.streams.decisions.queue.quota_tree import QuotaNode


class LowestFit(NamedTuple):
    """How far up the tree a request has to borrow."""

    height: int
    """Of the cohort whose quota suffices; 0: the ClusterQueue's own does."""
    below_root: bool
    """That node has a parent, from which there may be more."""


class QuotaUsage:
    """Usage of each node. It is booked at ClusterQueues; what cohorts see of it follows.

    Decisions try changes on a copy of their own, so what is given to them stays as it is.
    """

    def __init__(self, used: Mapping[QuotaNode, Mapping[FlavorResource, int]] | None = None) -> None:
        self._used = {node: dict(of_node) for node, of_node in (used or {}).items()}

    def copy(self) -> Self:
        """The same usage, to try changes on."""
        return type(self)(self._used)

    def used(self, node: QuotaNode) -> Mapping[FlavorResource, int]:
        """All that was ever booked at a node or below it and was not local there."""
        return self._used.get(node, {})

    def usage(self, node: QuotaNode, of: FlavorResource) -> int:
        """Of a ClusterQueue what is booked; of a cohort what its children use beyond what they never lend."""
        return self.used(node).get(of, 0)

    def book(self, queue: QuotaNode, of: FlavorResource, amount: int) -> None:
        """Add to a ClusterQueue's usage; a negative amount takes off, below 0 if more than was booked."""
        node: QuotaNode | None = queue
        while node is not None:
            before = self.usage(node, of)
            after = plus(before, amount)
            self._used.setdefault(node, {})[of] = after
            local = node.local_quota(of)
            amount = minus(max(0, minus(after, local)), max(0, minus(before, local)))
            node = node.parent if amount else None

    def book_all(self, queue: QuotaNode, request: Mapping[FlavorResource, int], sign: int = 1) -> None:
        """Add a whole request, or take it off with a sign of -1."""
        for of, amount in request.items():
            self.book(queue, of, sign * amount)

    def local_available(self, node: QuotaNode, of: FlavorResource) -> int:
        """Of what the node never lends, the part that is free."""
        return max(0, minus(node.local_quota(of), self.usage(node, of)))

    def available(self, node: QuotaNode, of: FlavorResource) -> int:
        """What may still be used there; negative where more is used than there is."""
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
        """Whether so much more may be used there."""
        return amount <= max(0, self.available(node, of))

    def borrowing(self, node: QuotaNode, of: FlavorResource, amount: int = 0) -> bool:
        """Whether the node uses more than its own quota once so much is added."""
        own = node.quota(of).nominal if node.is_queue else node.subtree_quota(of)
        return own < plus(self.usage(node, of), amount)

    def within_nominal(self, node: QuotaNode, needed: Iterable[FlavorResource]) -> bool:
        """Whether it borrows none of them."""
        return all(node.subtree_quota(of) >= self.usage(node, of) for of in needed)

    def lowest_fit(self, queue: QuotaNode, of: FlavorResource, amount: int) -> LowestFit:
        """How far up a ClusterQueue has to borrow for so much more."""
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
    """What the node could use if nothing were used anywhere."""
    root, *below = node.path()
    most = root.subtree_quota(of)
    for each in below:
        most = plus(each.local_quota(of), most)
        limit = each.quota(of).borrowing_limit
        if limit is not None:
            most = min(most, plus(each.subtree_quota(of), limit))
    return most
