"""Handles knobs that another program sets, too: sets them back, reports a conflict, then backs off. Pure.

If the program sets the same value again within a minute, or changes it a third time, that is a conflict. It is reported
once, and the agent waits one minute, then two, up to an hour, with one try after each. Refused writes are retried
with growing pauses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.knob import KnobKey

_SECOND_NS = 1_000_000_000
INSISTS_NS = 60 * _SECOND_NS
"""Changes within this time belong to one conflict."""
CHANGES_MAX = 2
"""This many changes within that time are set back."""
PAUSE_NS_MAX = 3_600 * _SECOND_NS
REFUSED_NS = 10 * _SECOND_NS
REFUSED_NS_MAX = 600 * _SECOND_NS
Move = Literal["set", "wait", "fight"]
"""``fight``: a conflict has just begun: report it and wait."""


@dataclass(slots=True)
class _Rival:
    left: int | None = None
    """The value that the agent left, once ``left_ns`` is set."""
    left_ns: int | None = None
    changed: bool = False
    """Whether the other program's last change is not set back yet."""
    value: int | None = None
    """The value that the other program last set."""
    changes: int = 0
    pause_ns: int = 0
    until_ns: int = 0
    fighting: bool = False


class Standoff:
    """All knobs that the agent has set."""

    def __init__(self) -> None:
        self._rivals: dict[KnobKey, _Rival] = {}

    def sees(self, key: KnobKey, held: int | None, now_ns: int) -> Move:
        """Return what to do now about a knob that holds an unwanted value."""
        rival = self._rivals.get(key)
        if rival is None:
            return "set"
        began = self._theirs(rival, held, now_ns)
        if now_ns < rival.until_ns:
            return "fight" if began else "wait"
        return "set"

    def pauses(self, key: KnobKey, now_ns: int) -> bool:
        """Return whether the agent backs off from it now."""
        rival = self._rivals.get(key)
        return rival is not None and now_ns < rival.until_ns

    def calm(self, key: KnobKey, now_ns: int) -> None:
        """Record that a knob holds the wanted value. After a minute a conflict is over."""
        rival = self._rivals.get(key)
        if rival is None:
            return
        rival.changed = False
        if rival.left_ns is not None and now_ns - rival.left_ns > INSISTS_NS:
            rival.changes, rival.pause_ns, rival.fighting = 0, 0, False

    def left(self, key: KnobKey, value: int | None, now_ns: int) -> None:
        """Record that the agent set it, and its value now."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.left, rival.left_ns, rival.changed = value, now_ns, False
        if not rival.fighting:
            rival.pause_ns = 0

    def refused(self, key: KnobKey, now_ns: int) -> None:
        """Record that the kernel refused it: retry with growing pauses."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.pause_ns = min(max(REFUSED_NS, rival.pause_ns * 2), REFUSED_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns

    def forget(self, of: Callable[[KnobKey], bool]) -> None:
        """Forget knobs with a new cgroup under the old name, or with a new wanted value."""
        self._rivals = {key: rival for key, rival in self._rivals.items() if not of(key)}

    def _theirs(self, rival: _Rival, held: int | None, now_ns: int) -> bool:
        """Count a change by the other program once. Return whether a conflict begins with it."""
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
