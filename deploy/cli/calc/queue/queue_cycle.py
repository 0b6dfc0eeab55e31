"""``slacktide calc queue_cycle``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_cycle_case import CycleInput, run


class Input(CycleInput, frozen=True, kw_only=True):
    """A cluster without fair sharing, and workloads that wait."""


def calculate(given: Input) -> Calculated:
    """Which workloads are admitted cycle by cycle, without fair sharing."""
    return run(given)
