"""The only module that reads clocks. Pure logic takes numbers; loops take a ``Clock``."""

import time
from dataclasses import dataclass
from typing import Protocol

WALL_DRIFT_MS_MAX = 5_000


def wait_ms(ms: int) -> None:
    """Block the thread. Only for very short waits on the kernel."""
    time.sleep(ms / 1_000)


class Clock(Protocol):
    """Monotonic time orders events on a node; wall time is for records."""

    def mono_ns(self) -> int:
        """Return the nanoseconds of the monotonic clock."""

    def wall_ms(self) -> int:
        """Return UTC epoch milliseconds."""


def mono_s(clock: Clock) -> float:
    """Return the seconds of the monotonic clock."""
    return clock.mono_ns() / 1e9


class SystemClock:
    """The machine's clocks."""

    def mono_ns(self) -> int:
        """Return the nanoseconds of the monotonic clock."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Return UTC epoch milliseconds."""
        return time.time_ns() // 1_000_000


@dataclass(slots=True)
class EventTime:
    """Event time of one boot: an anchor plus monotonic time, so it never goes backwards.

    A wall clock that is off by more than 5 s starts a new clock epoch with a new anchor.
    """

    anchor_wall_ms: int
    anchor_mono_ns: int
    epoch: int = 0

    def at(self, mono_ns: int, wall_ms: int) -> int:
        """Return the event time in UTC epoch milliseconds."""
        event_ms = self.of(mono_ns)
        if abs(wall_ms - event_ms) > WALL_DRIFT_MS_MAX:
            self.anchor_wall_ms, self.anchor_mono_ns = wall_ms, mono_ns
            self.epoch += 1
            event_ms = wall_ms
        return event_ms

    def of(self, mono_ns: int) -> int:
        """Return the event time of a monotonic time, without reading the wall clock."""
        return self.anchor_wall_ms + (mono_ns - self.anchor_mono_ns) // 1_000_000
