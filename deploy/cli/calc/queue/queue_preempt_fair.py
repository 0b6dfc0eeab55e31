"""``slacktide calc queue_preempt_fair``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_preempt_case import PreemptInput
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy, fair_targets


class Input(PreemptInput, frozen=True, kw_only=True):
    """A cluster with fair sharing, and a workload that needs quota."""

    preemption_strategies: Annotated[list[Strategy], msgspec.Meta(min_length=1, max_length=2)] | None = None


def calculate(given: Input) -> Calculated:
    """Select the workloads to preempt, with fair sharing."""
    tree = given.tree()
    usage, preemptor, policies = given.usage(tree), given.preemptor(tree), given.policies()
    holders = given.holders(tree)
    names = {one.queued.uid: name for name, one in holders}
    strategies = given.preemption_strategies or STRATEGIES
    chosen = fair_targets(preemptor, policies, [one for _, one in holders], usage, strategies)
    because = Because(of="targets", bound="found" if chosen else "none", terms={"target_count": len(chosen)})
    targets = [{"name": names[one.holder.queued.uid], "reason": one.reason} for one in chosen]
    return Calculated(output={"targets": targets}, because=[because])
