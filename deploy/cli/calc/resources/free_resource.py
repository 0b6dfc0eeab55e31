"""``slacktide calc free_resource``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.resources.node_case import NodeCase, load_of, too_old
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.resources.free_resource import free_resource

HOST_CLASSES = frozenset({"koord-prod", "koord-mid", "koord-batch"})
FIELDS = ("free_cpu_milli", "free_memory_bytes")


class Input(NodeCase, frozen=True, kw_only=True):
    """A node with its pods, its metric and its strategy, which must enable the class."""


def calculate(given: Input) -> Calculated:
    """Compute the free resources of a node from its idle capacity."""
    colocation = given.colocation()
    reset = too_old(given, colocation, FIELDS)
    if reset is not None:
        return reset
    if not colocation.free_class_enable:
        return Calculated(
            output={"degraded": False} | dict.fromkeys(FIELDS),
            because=[Because(of=field, bound="disabled", terms={}) for field in FIELDS],
        )
    free = free_resource(load_of(given, HOST_CLASSES), colocation)
    return Calculated(
        output={"degraded": False, "free_cpu_milli": free.cpu_milli, "free_memory_bytes": free.mem_bytes},
        because=free.because,
    )
