"""``slacktide calc cpu_suppress_cpuset_pick``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given, Whole
from slacktide.deploy.cli.calc.suppress.cpu_suppress_processors import distinct
from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import pick_cpus


class Input(Given, frozen=True, kw_only=True):
    """The number of CPUs to pick, and the processors."""

    cpus_wanted: Whole
    processors: list[Processor] | None


def calculate(given: Input) -> Calculated:
    """Pick CPUs, in order."""
    picked = pick_cpus(given.cpus_wanted, distinct(given.processors or ()))
    return Calculated(
        output={"cpus_in_pick_order": list(picked.cpus)},
        because=[Because(of="cpus_in_pick_order", bound=picked.bound, terms=picked.terms)],
    )
