"""``slacktide calc queue_quota``."""

from __future__ import annotations

from typing import Literal

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.queue.queue_case import (
    ClusterInput,
    QueueAmount,
    known,
    resource_of,
    unit_of,
    written,
    written_amount,
)
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaNode, QuotaTree
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage, potential_available


class Probe(Given, frozen=True, kw_only=True):
    """An amount of a flavor's resource at a ClusterQueue."""

    cluster_queue: str
    flavor: str
    resource: str
    amount: QueueAmount = 0

    def at(self, tree: QuotaTree, field: str) -> tuple[QuotaNode, FlavorResource]:
        """Return the ClusterQueue and the flavor's resource."""
        node = known(tree.queues, self.cluster_queue, f"{field}.cluster_queue")
        return node, FlavorResource(self.flavor, resource_of(self.resource, f"{field}.resource"))


class Op(Probe, frozen=True, kw_only=True):
    """A change of usage."""

    op: Literal["add", "remove"]


class Input(ClusterInput, frozen=True, kw_only=True):
    """Quotas, changes of usage in order, and requests to check at the end."""

    ops: list[Op] | None = None
    probes: list[Probe] | None = None


def calculate(given: Input) -> Calculated:
    """Compute the quota, usage and available amount of every node, and check requests."""
    tree = given.tree()
    usage = given.usage(tree)
    after_each = [_changed(op, tree, usage, f"input.ops[{at}]") for at, op in enumerate(given.ops or ())]
    named = {of for node in tree.nodes() for of in (*node.quotas, *usage.used(node))}
    nodes = {
        f"{'cq' if node.is_queue else 'cohort'}:{node.name}": {
            written(of): _shown(node, of, usage) for of in sorted(named)
        }
        for node in tree.nodes()
    }
    probes = [_probed(probe, tree, usage, at) for at, probe in enumerate(given.probes or ())]
    return Calculated(
        output={"after_each_op": after_each, "nodes": nodes, "probes": [answer for answer, _ in probes]},
        because=[because for _, because in probes],
    )


def _changed(op: Op, tree: QuotaTree, usage: QuotaUsage, field: str) -> dict[str, int | str | None]:
    node, of = op.at(tree, field)
    usage.book(node, of, op.amount if op.op == "add" else -op.amount)
    root_usage = None if node.parent is None else written_amount(usage.usage(node.root(), of))
    return {"available": written_amount(usage.available(node, of)), "root_usage": root_usage}


def _shown(node: QuotaNode, of: FlavorResource, usage: QuotaUsage) -> dict[str, int | str]:
    return {
        "subtree_quota": written_amount(node.subtree_quota(of)),
        "usage": written_amount(usage.usage(node, of)),
        "local_available": written_amount(usage.local_available(node, of)),
        "available": written_amount(usage.available(node, of)),
        "potential_available": written_amount(potential_available(node, of)),
        "borrowing": usage.borrowing(node, of),
    }


def _probed(probe: Probe, tree: QuotaTree, usage: QuotaUsage, at: int) -> tuple[dict[str, int | bool], Because]:
    node, of = probe.at(tree, f"input.probes[{at}]")
    fits, borrowing = usage.fits(node, of, probe.amount), usage.borrowing(node, of, probe.amount)
    lowest = usage.lowest_fit(node, of, probe.amount)
    unit = unit_of(of.resource)
    because = Because(
        of=f"probes/{at}/{written(of)}",
        bound="short" if not fits else "borrowed" if borrowing else "own_quota",
        terms={
            f"requested_{unit}": probe.amount,
            f"nominal_{unit}": node.quota(of).nominal,
            f"usage_{unit}": usage.usage(node, of),
            f"available_{unit}": usage.available(node, of),
        },
    )
    answer = {"fits": fits, "borrowing_with": borrowing, "height": lowest.height, "below_root": lowest.below_root}
    return answer, because
