"""``slacktide calc queue_block_admission``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.queue.queue_case import ClusterInput, GivenCondition
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.pods_ready import admission_open


class Input(ClusterInput, frozen=True, kw_only=True):
    """Workloads that hold quota, and their PodsReady conditions by name."""

    block_admission: bool = False
    ready: dict[str, GivenCondition] | None = None


def calculate(given: Input) -> Calculated:
    """Decide whether a workload may be admitted now."""
    conditions = given.ready or {}
    holding = [conditions.get(one.name) for one in given.admitted or ()]
    is_open = admission_open(
        block_admission=given.block_admission, holding=[None if one is None else one.condition() for one in holding]
    )
    ready = sum(one is not None and one.status for one in holding)
    bound = "off" if not given.block_admission else "all_ready" if is_open else "not_ready"
    because = Because(of="open", bound=bound, terms={"holding_count": len(holding), "ready_count": ready})
    return Calculated(output={"open": is_open}, because=[because])
