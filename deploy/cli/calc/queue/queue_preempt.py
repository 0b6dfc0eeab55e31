"""``slacktide calc queue_preempt``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_preempt_case import PreemptInput
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.preempt import candidates, targets


class Input(PreemptInput, frozen=True, kw_only=True):
    """A cluster without fair sharing, and a workload that needs quota."""


def calculate(given: Input) -> Calculated:
    """Select the workloads to preempt, without fair sharing."""
    tree = given.tree()
    usage, preemptor, policies = given.usage(tree), given.preemptor(tree), given.policies()
    holders = given.holders(tree)
    names = {one.queued.uid: name for name, one in holders}
    tried = candidates(preemptor, policies, [one for _, one in holders], usage)
    chosen = targets(preemptor, policies, tried, usage)
    because = Because(
        of="targets",
        bound="found" if chosen else "none",
        terms={"candidate_count": len(tried), "target_count": len(chosen)},
    )
    return Calculated(
        output={
            "candidates_in_order": [{"name": names[one.holder.queued.uid], "kind": one.kind} for one in tried],
            "targets": [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in chosen],
        },
        because=[because],
    )
