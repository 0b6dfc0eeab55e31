"""Why a figure is what it is."""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.message import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """The arithmetic behind one figure, as it was done: never computed a second time to be shown."""

    of: str
    """Which figure, unit last; a path where there are several: ``zones/node0/batch_cpu_milli``."""
    bound: str
    """The step that fixed the result, e.g. ``formula``, ``capped``, ``stepped``, ``degraded``, ``floored``."""
    terms: Terms
    """Named numbers in the order of the arithmetic, the result last."""
