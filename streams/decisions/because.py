"""Results of rules: the arithmetic behind a computed amount, and the value of a knob."""

from dataclasses import dataclass
from functools import cache
from typing import Self

import msgspec

from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Terms


@cache
def in_unit(unit: str, *names: str) -> tuple[str, ...]:
    """Return the names of terms with the unit appended. Cached, because all nodes need them."""
    return tuple(f"{name}_{unit}" for name in names)


class Because(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The arithmetic of one amount. It is recorded when computed, and never computed again for display."""

    of: str
    """Name of the amount, unit last; a path if there are several: ``zones/node0/batch_cpu_milli``."""
    bound: str
    """The step that determined the result, e.g. ``formula``, ``capped``, ``stepped``, ``degraded``, ``floored``."""
    terms: Terms
    """Named numbers in the order of the arithmetic, the result last."""
    adds: tuple[str, ...] = ()
    """Parts of the sum, if it is one, each a sign and a term's name: ``+capacity_milli``, ``-margin_milli``."""

    def added(self) -> int | float:
        """Return the sum of the parts."""
        return sum(self.terms[part[1:]] * (1 if part[0] == "+" else -1) for part in self.adds)


class Figured(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """CPU in millicores and memory in bytes, each with its arithmetic (CPU first)."""

    cpu_milli: int
    mem_bytes: int
    because: tuple[Because, Because]

    @classmethod
    def by(cls, name: str, cpu: Because, mem: Because) -> Self:
        """Return the terms of that name, without its unit."""
        amounts = int(cpu.terms[f"{name}_milli"]), int(mem.terms[f"{name}_bytes"])
        return cls(cpu_milli=amounts[0], mem_bytes=amounts[1], because=(cpu, mem))


@dataclass(frozen=True, slots=True)
class WantedSetting:
    """The value to set for one knob of one group, and its reason."""

    group: str
    """``pod/<uid>``, ``pod/<uid>/<container name>`` or a tier such as ``tier/besteffort``."""
    knob: Knob
    value: KnobValue | None
    """None: unlimited."""
    rule: str
    bound: str
    terms: Terms
