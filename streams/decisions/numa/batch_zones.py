"""Divides a node's batch resources among its zones. The parts never exceed the node's amount.

Slacktide's own. Koordinator computes each zone separately, from equal parts of what no pod is bound to, rounded up:
``batch_resource_zones``. The sum of its zones may exceed the node's amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from slacktide.schemas.message import Terms
from slacktide.schemas.zones import Zone
from slacktide.streams.decisions.because import Because, in_unit

_TERMS = ("node", "free", "held", "of_free", "of_held", "batch")


class Share(NamedTuple):
    """A zone's part of one resource of the node."""

    node: int
    free: int
    """Allocatable amount that no pod holds exclusively."""
    held: int
    """Amount that pods hold exclusively."""
    of_free: int
    of_held: int

    @property
    def amount(self) -> int:
        """Return the part."""
        return self.of_free + self.of_held

    def because(self, of: str, unit: str) -> Because:
        """Return the computation as an explanation."""
        terms: Terms = dict(zip(in_unit(unit, *_TERMS), (*self, self.amount), strict=True))
        bound = "held" if self.of_held else "free" if self.of_free else "exhausted"
        return Because(of=of, bound=bound, terms=terms, adds=in_unit(unit, "+of_free", "+of_held"))


class ZoneBatch(NamedTuple):
    """A zone's batch CPU in millicores and memory in bytes; None: the zone or the node has no such resource."""

    cpu_milli: Share | None
    mem_bytes: Share | None


def batch_zones(cpu_milli: int | None, mem_bytes: int | None, zones: Sequence[Zone]) -> list[ZoneBatch]:
    """Divide a node's batch CPU (millicores) and memory (bytes) among its zones, in order; None: it has none.

    Batch pods use CPUs that no pod holds exclusively. So the amount is divided in proportion to the free amounts of the
    zones. An amount above these is divided in proportion to the exclusive amounts. Any rest is in no zone.
    """
    cpu = _shares(cpu_milli, [(one.allocatable.cpu_milli, one.available.cpu_milli) for one in zones])
    mem = _shares(mem_bytes, [(one.allocatable.mem_bytes, one.available.mem_bytes) for one in zones])
    return [ZoneBatch(*both) for both in zip(cpu, mem, strict=True)]


def _shares(node: int | None, zones: Sequence[tuple[int | None, int | None]]) -> list[Share | None]:
    if node is None:
        return [None] * len(zones)
    free = [min(available or 0, allocatable or 0) for allocatable, available in zones]
    held = [(allocatable or 0) - left for (allocatable, _), left in zip(zones, free, strict=True)]
    of_free = min(node, sum(free))
    of_held = min(node - of_free, sum(held))
    shares = map(Share, [node] * len(zones), free, held, _parts(of_free, free), _parts(of_held, held))
    return [None if listed is None else share for (listed, _), share in zip(zones, shares, strict=True)]


def _parts(amount: int, rooms: Sequence[int]) -> Iterable[int]:
    """Divide in proportion to the rooms, which must hold the amount. Cumulative sums are rounded down."""
    total = sum(rooms) or 1
    upto = [amount * room // total for room in accumulate(rooms)]
    return [after - before for before, after in pairwise([0, *upto])]
