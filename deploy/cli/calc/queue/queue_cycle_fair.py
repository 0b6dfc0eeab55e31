"""``slacktide calc queue_cycle_fair``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_cycle_case import CycleInput, run


class Input(CycleInput, frozen=True, kw_only=True):
    """A cluster with fair sharing, and pending workloads."""

    fair_sharing: bool = True


def calculate(given: Input) -> Calculated:
    """Run scheduling cycles with fair sharing."""
    return run(given)
