"""Why a figure is what it is."""

from __future__ import annotations

from functools import cache

import msgspec

from slacktide.schemas.message import Terms


@cache
def in_unit(unit: str, *names: str) -> tuple[str, ...]:
    """Names of terms, each with its unit at its end: put together once, for each node has them."""
    return tuple(f"{name}_{unit}" for name in names)


class Because(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The arithmetic behind one figure, as it was done: never computed a second time to be shown."""

    of: str
    """Which figure, unit last; a path where there are several: ``zones/node0/batch_cpu_milli``."""
    bound: str
    """The step that fixed the result, e.g. ``formula``, ``capped``, ``stepped``, ``degraded``, ``floored``."""
    terms: Terms
    """Named numbers in the order of the arithmetic, the result last."""
    adds: tuple[str, ...] = ()
    """Where the figure is a sum: its parts, each a sign and a term's name: ``+capacity_milli``, ``-margin_milli``."""

    def added(self) -> int | float:
        """What the parts add up to."""
        return sum(self.terms[part[1:]] * (1 if part[0] == "+" else -1) for part in self.adds)
