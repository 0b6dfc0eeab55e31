"""``slacktide calc queue_cycle``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_cycle_case import CycleInput, run


class Input(CycleInput, frozen=True, kw_only=True):
    """A cluster without fair sharing, and pending workloads."""


def calculate(given: Input) -> Calculated:
    """Run scheduling cycles without fair sharing."""
    return run(given)
