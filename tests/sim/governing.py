"""The governor's process: it reads the log, grants credit for evictions, dies, and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.log import PARTITIONS
from sim.timeline import Life
from slacktide.schemas.topics import CREDIT, METRIC, OUTCOME, POLICY
from slacktide.streams.governor.governor import Governor
from slacktide.streams.records import Out, Record

if TYPE_CHECKING:
    from sim.world import World

TICK_MS = 500
READS = [(POLICY.name, 0), (CREDIT.name, 0)]
READS += [(topic, partition) for topic in (METRIC.name, OUTCOME.name) for partition in range(PARTITIONS)]


class Governing(Life):
    """Stands in for the process around one ``Governor``. There is never more than one."""

    def __init__(self, world: World) -> None:
        super().__init__(world.timeline)
        self.world = world
        self.brain: Governor | None = None
        self._positions: dict[tuple[str, int], int] = {}
        self._mono_ms = world.rng.randrange(10**6)

    def start(self) -> None:
        """Begin a term: what was granted and spent before it is read back."""
        world = self.world
        if self.brain is not None:
            return
        if not world.log.up:
            world.timeline.after(500, self.start)
            return
        self._life += 1
        self._positions = {}
        brain = self.brain = Governor("governor")
        world.trace.note("governor", "starts")
        self._say(brain.receive(self._new(POLICY.name, 0), self._now_ms))
        self._begin(brain)
        self._again()

    def kill(self) -> None:
        if self.brain is not None:
            self.world.trace.note("governor", "killed")
            self.brain = None
            self._life += 1

    def wiped(self) -> None:
        self._positions = {}

    def _begin(self, brain: Governor) -> None:
        outcomes = [record for partition in range(PARTITIONS) for record in self._new(OUTCOME.name, partition)]
        since_ms = self.world.timeline.wall_ms - brain.read_back_ms()
        self._say(brain.begin(self._new(CREDIT.name, 0), outcomes, since_ms, self._now_ms))

    def _tick(self) -> None:
        brain = self.brain
        assert brain is not None
        self._again()
        if not self.world.log.up:
            return
        for topic, partition in READS:
            self._say(brain.receive(self._new(topic, partition), self._now_ms))
        if brain.superseded:
            self._begin(brain)
        self._say(brain.tick(self._now_ms, self.world.timeline.wall_ms))

    def _again(self) -> None:
        self.while_alive(TICK_MS * self.world.leisure, self._tick)

    def _new(self, topic: str, partition: int) -> list[Record]:
        entries = self.world.log.read(topic, partition, self._positions.get((topic, partition), 0))
        if entries:
            self._positions[topic, partition] = entries[-1].offset + 1
        return entries

    def _say(self, outs: list[Out]) -> None:
        for out in outs:
            self.world.out(out)

    @property
    def _now_ms(self) -> int:
        return self._mono_ms + self.world.timeline.now_ms
