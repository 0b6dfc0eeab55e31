"""Who else sets a knob: each of their changes is answered once; whoever insists is reported, and then left alone. Pure.

A knob that comes to hold something else than we left there was set by somebody. We set it back. Where they set the
same value again within a minute, or change it a third time, that is a fight: it is reported once, and we wait for a
minute, then two, up to an hour, with one try after each. What a kernel refuses is tried again with growing pauses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.knob import KnobKey

_SECOND_NS = 1_000_000_000
INSISTS_NS = 60 * _SECOND_NS
"""Within this time they are at it; after it the knob was ours again."""
CHANGES_MAX = 2
"""So many changes within that time are answered."""
PAUSE_NS_MAX = 3_600 * _SECOND_NS
REFUSED_NS = 10 * _SECOND_NS
REFUSED_NS_MAX = 600 * _SECOND_NS
Move = Literal["set", "wait", "fight"]
"""``fight``: wait, too, and report it, for it has just begun."""


@dataclass(slots=True)
class _Rival:
    """One knob's story."""

    left: int | None = None
    """What we left it with, once ``left_ns`` is set."""
    left_ns: int | None = None
    changed: bool = False
    """Whether their last change is not answered yet."""
    value: int | None = None
    """What they last set."""
    changes: int = 0
    pause_ns: int = 0
    until_ns: int = 0
    fighting: bool = False


class Standoff:
    """All knobs that we ever set, by what became of them."""

    def __init__(self) -> None:
        self._rivals: dict[KnobKey, _Rival] = {}

    def sees(self, key: KnobKey, held: int | None, now_ns: int) -> Move:
        """A knob holds something else than it shall: what to do about it now."""
        rival = self._rivals.get(key)
        if rival is None:
            return "set"
        began = self._theirs(rival, held, now_ns)
        if now_ns < rival.until_ns:
            return "fight" if began else "wait"
        return "set"

    def pauses(self, key: KnobKey, now_ns: int) -> bool:
        """Whether it is left alone for now."""
        rival = self._rivals.get(key)
        return rival is not None and now_ns < rival.until_ns

    def calm(self, key: KnobKey, now_ns: int) -> None:
        """A knob holds what it shall. After a minute of it nobody is fighting any more."""
        rival = self._rivals.get(key)
        if rival is None:
            return
        rival.changed = False
        if rival.left_ns is not None and now_ns - rival.left_ns > INSISTS_NS:
            rival.changes, rival.pause_ns, rival.fighting = 0, 0, False

    def left(self, key: KnobKey, value: int | None, now_ns: int) -> None:
        """We set it, and it holds this now."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.left, rival.left_ns, rival.changed = value, now_ns, False
        if not rival.fighting:
            rival.pause_ns = 0

    def refused(self, key: KnobKey, now_ns: int) -> None:
        """The kernel did not take it: try again later, and ever later."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.pause_ns = min(max(REFUSED_NS, rival.pause_ns * 2), REFUSED_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns

    def forget(self, of: Callable[[KnobKey], bool]) -> None:
        """These begin anew: another group under the old name, or another value that they shall hold."""
        self._rivals = {key: rival for key, rival in self._rivals.items() if not of(key)}

    def _theirs(self, rival: _Rival, held: int | None, now_ns: int) -> bool:
        """Count a change of theirs once; whether a fight begins with it."""
        if rival.changed or rival.left_ns is None or held == rival.left:
            return False
        rival.changed = True
        soon = now_ns - rival.left_ns <= INSISTS_NS
        rival.changes = rival.changes + 1 if soon else 1
        again = soon and (rival.fighting or (rival.changes > 1 and held == rival.value) or rival.changes > CHANGES_MAX)
        rival.value = held
        if not again:
            rival.fighting, rival.pause_ns = False, 0
            return False
        first, rival.fighting = not rival.fighting, True
        rival.pause_ns = min(max(INSISTS_NS, rival.pause_ns * 2), PAUSE_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns
        return first
