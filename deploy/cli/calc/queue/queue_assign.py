"""``slacktide calc queue_assign``."""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_assign_case import AssignInput, GivenPendingWorkload
from slacktide.deploy.cli.calc.queue.queue_case import key_of, known, written
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.assign import FIT, Assignment, Cluster, PodSetAssignment, assign


class Input(AssignInput, frozen=True, kw_only=True):
    """A cluster, and a workload without flavors."""

    workload: GivenPendingWorkload


def calculate(given: Input) -> Calculated:
    """Assign flavors to a workload, and select the workloads that it would preempt."""
    tree, settings = given.tree(), given.settings()
    holders = given.holders(tree)
    node = known(tree.queues, given.workload.cluster_queue, "input.workload.cluster_queue")
    queue = next(one for one in given.queues(tree) if one.node is node)
    cluster = Cluster(
        queue=node,
        groups=queue.groups,
        flavors=settings.flavors,
        fungibility=queue.fungibility,
        policies=queue.policies,
        holders=[one for _, one in holders],
        usage=given.usage(tree),
        fair_sharing=settings.fair_sharing,
        strategies=settings.strategies,
        now_s=given.now_seconds,
        corrected=settings.corrected,
    )
    done = assign(given.workload.queued(), given.workload.sets("input.workload"), cluster)
    terms: Terms = {"borrowing_height": done.height, "target_count": len(done.targets)}
    terms["targets_saved_count"] = done.targets_saved_count
    return Calculated(
        output=shown(done, {one.queued.uid: name for name, one in holders}),
        because=[Because(of="mode", bound=done.mode, terms=terms)],
    )


def shown(done: Assignment, names: Mapping[str, str]) -> dict[str, object]:
    """Return an assignment in the cases' format. ``names``: the workloads with quota, by uid."""
    return {
        "mode": done.mode,
        "borrowing_height": done.height,
        "pod_sets": [_shown(one) for one in done.pod_sets],
        "usage": {written(of): amount for of, amount in done.usage().items()},
        "pending_flavors": done.pending_flavors,
        "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in done.targets],
    }


def _shown(one: PodSetAssignment) -> dict[str, object]:
    flavors = {
        key_of(resource): {
            "flavor": each.flavor,
            "mode": "Fit" if each.rated.mode == FIT else "Preempt",
            "tried_index": each.tried_index,
        }
        for resource, each in one.flavors.items()
    }
    return {"name": one.name, "count": one.pods, "flavors": flavors}
