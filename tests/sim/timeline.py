"""Virtual time: things happen in order of their time, and of being planned where that is equal."""

import heapq
from collections.abc import Callable

WALL_AT_START_MS = 1_700_000_000_000


class Timeline:
    """Everything that will happen. Whole milliseconds, so that instants collide as often as possible."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, what)

    def at(self, when_ms: int, what: Callable[[], None]) -> None:
        """Do it then, or now if that is over."""
        self._order += 1
        heapq.heappush(self._planned, (max(when_ms, self.now_ms), self._order, what))

    def run(self, until_ms: int) -> None:
        while self._planned and self._planned[0][0] <= until_ms:
            self.now_ms, _, what = heapq.heappop(self._planned)
            what()
        self.now_ms = until_ms

    @property
    def wall_ms(self) -> int:
        """The time of day where nobody's clock is wrong: brokers' and workers'."""
        return WALL_AT_START_MS + self.now_ms


class Life:
    """Of a process: what it plans is done unless it has ended by then."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._life = 0

    def while_alive(self, delay_ms: int, what: Callable[[], None]) -> None:
        life = self._life
        self._timeline.after(delay_ms, lambda: what() if life == self._life else None)


class NodeClock:
    """One node's clocks. The monotonic one starts anywhere, the wall clock may be set at any time."""

    def __init__(self, timeline: Timeline, mono_at_start_ms: int) -> None:
        self.wall_off_ms = 0
        self._timeline = timeline
        self._mono_at_start_ms = mono_at_start_ms

    def mono_ns(self) -> int:
        return (self._mono_at_start_ms + self._timeline.now_ms) * 1_000_000

    def wall_ms(self) -> int:
        """What the node believes the time of day to be."""
        return self._timeline.wall_ms + self.wall_off_ms
