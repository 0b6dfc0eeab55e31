"""What happened, in order: the checker's evidence, the replay's text, and the run's fingerprint."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NoReturn

from sim.timeline import Timeline

if TYPE_CHECKING:
    from sim.world import World


class ComplaintError(AssertionError):
    """The world did something that it must never do."""


class Trace:
    """Lines with their time. Formatted only when somebody reads them."""

    def __init__(self, seed: int, timeline: Timeline, test: str) -> None:
        self.seed = seed
        self._test = test
        self._timeline = timeline
        self._lines: list[tuple[int, str, str, tuple[object, ...]]] = []

    def note(self, who: str, what: str, *facts: object) -> None:
        self._lines.append((self._timeline.now_ms, who, what, facts))

    def complain(self, why: str, *evidence: object) -> NoReturn:
        raise ComplaintError(
            "\n".join([why, *map(str, evidence)])
            + f"\nat {self._timeline.now_ms} ms; replay: SLACKTIDE_SEED={self.seed} pytest -s {self._test}\n"
            + self.text(last=40)
        )

    def fingerprint(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self, last: int = 0) -> str:
        lines = self._lines[-last:] if last else self._lines
        return "\n".join(
            f"{at_ms:>7} ms  {who:<10} {what:<12} {' '.join(map(str, facts))}" for at_ms, who, what, facts in lines
        )


class Checks:
    """What must hold in a world, or of one node of it."""

    def __init__(self, world: World, node: str = "") -> None:
        self._world, self._of = world, f"{node}: " if node else ""

    @property
    def _now_ms(self) -> int:
        return self._world.timeline.now_ms

    def _must(self, holds: bool, why: str, *evidence: object) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            self._world.trace.complain(self._of + why, *evidence)
