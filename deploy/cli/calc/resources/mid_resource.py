"""``slacktide calc mid_resource``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.resources.node_case import GivenMetric, GivenUse, NodeCase, load_of, too_old
from slacktide.schemas.metric import Use
from slacktide.streams.decisions.resources.mid_resource import mid_resource

HOST_CLASSES = frozenset({"koord-prod"})
FIELDS = ("mid_cpu_milli", "mid_memory_bytes")


class Input(NodeCase, frozen=True, kw_only=True):
    """A node with its pods, its metric and its strategy."""


def calculate(given: Input) -> Calculated:
    """Compute the mid resources of a node."""
    colocation = given.colocation()
    reset = too_old(given, colocation, FIELDS)
    if reset is not None:
        return reset
    metric = given.node_metric or GivenMetric()
    mid = mid_resource(
        load_of(given, HOST_CLASSES),
        colocation,
        reclaimable=(metric.prod_reclaimable or GivenUse()).use(),
        node_use=_whole(metric.node_usage),
    )
    return Calculated(
        output={"degraded": False, "mid_cpu_milli": mid.cpu_milli, "mid_memory_bytes": mid.mem_bytes},
        because=mid.because,
    )


def _whole(given: GivenUse | None) -> Use | None:
    """Return the use; None if an amount is missing."""
    return None if given is None or given.cpu_milli is None or given.memory_bytes is None else given.use()
