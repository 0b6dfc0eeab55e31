"""Computes a node's fair share: the weighted ratio of borrowed to lendable quota.

Nodes with a larger share are scheduled later and preempted first.

Reading: kueue v0.19.2, pkg/cache/scheduler/fair_sharing.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource, minus, plus
from slacktide.streams.decisions.queue.quota_tree import QuotaNode
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage, potential_available


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
