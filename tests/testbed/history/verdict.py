"""What one invariant found."""

from collections.abc import Iterable
from dataclasses import dataclass

SHOWN = 5
"""Violations that a report prints per invariant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How many cases an invariant covered, and which of them broke it."""

    invariant: str
    checked: int
    broken: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        return f"{self.invariant}: {self.checked} checked, {len(self.broken)} broken"

    def __str__(self) -> str:
        return "\n".join([self.line, *(f"    {each}" for each in self.broken[:SHOWN])])


def verdict(invariant: str, checked: int, broken: Iterable[str]) -> Verdict:
    return Verdict(invariant=invariant, checked=checked, broken=tuple(broken))
