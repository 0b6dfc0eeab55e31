"""The workers' processes around the real ``Worker``, and the group that shares partitions out to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sim.log import PARTITIONS
from sim.timeline import Life
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import INVENTORY, POLICY, SAMPLE, WINDOW
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker

if TYPE_CHECKING:
    from sim.world import World

READ_BACK_MS = 20_000
COMMIT_EVERY_MS = 1_000


@dataclass(slots=True)
class Held:
    """A partition as its worker sees it."""

    position: int
    answered: int
    """Everything before this offset was answered and the answers acknowledged."""
    sent_at_ms: int = 0


class Process(Life):
    """Stands in for the process around one ``Worker``: reads, answers, commits, dies, comes back."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.timeline)
        self.world = world
        self.name = name
        self.brain: Worker | None = None
        self.held: dict[int, Held] = {}
        self.paused_until_ms = 0
        self._positions: dict[tuple[str, int], int] = {}

    @property
    def answering(self) -> bool:
        return self.brain is not None and self.world.timeline.now_ms >= self.paused_until_ms

    def start(self) -> None:
        """Begin: the compacted topics are read whole before anything is answered."""
        if self.brain is not None:
            return
        if not self.world.log.up:
            self.world.timeline.after(500, self.start)
            return
        self._life += 1
        self.brain = self.world.parts.worker(self.name)
        self.held = {}
        self._positions = {}
        self.world.trace.note(self.name, "starts")
        self.world.checker.worker_started(self.name)
        self.read_topics()
        self.world.crew.joined(self)
        self.while_alive(COMMIT_EVERY_MS, self._commit)

    def kill(self) -> None:
        """Die with -9: what was not acknowledged was perhaps never sent."""
        if self.brain is None:
            return
        self.world.trace.note(self.name, "killed")
        self.brain = None
        self.held = {}
        self._life += 1
        self.world.crew.left(self)

    def read_topics(self) -> None:
        if self.brain is None or not self.world.log.up:
            return
        self._read_on(POLICY.name, 0, self.brain.policy)
        for partition in range(PARTITIONS):
            self._read_on(INVENTORY.name, partition, self.brain.inventory)

    def take_over(self, partition: int) -> None:
        """Read back mute, and find what samples name; then answer from the group's commit on."""
        brain, log = self.brain, self.world.log
        if brain is None or partition in self.held:
            return
        position = log.committed.get(partition, 0)
        now_ms = self.world.timeline.wall_ms
        older = [entry for entry in log.read(SAMPLE.name, partition, 0)[:position]
                 if entry.timestamp_ms >= now_ms - LISTED_MS]  # fmt: skip
        before = [entry for entry in older if entry.timestamp_ms >= now_ms - READ_BACK_MS]
        self.world.trace.note(self.name, "takes over", partition, f"at {position}, {len(before)} read back")
        self.world.checker.learns(self.name, older)
        self._find_lists(brain, partition, before, older)
        brain.learn(before)
        self.held[partition] = Held(position, position)
        self.poll(partition)

    def _find_lists(self, brain: Worker, partition: int, before: Sequence[Record], older: Sequence[Record]) -> None:
        """In what was read back, in segments, and in older samples where these lack something: as ``engine.lists``."""
        segments = [entry for entry in self.world.log.read(WINDOW.name, partition, 0)
                    if entry.timestamp_ms >= self.world.timeline.wall_ms - LISTED_MS]  # fmt: skip
        brain.lists.adopt(reversed(before))
        brain.lists.adopt(reversed(segments))
        if not before or brain.lists.lacking(before):
            brain.lists.adopt(reversed(older))

    def let_go(self, partition: int) -> None:
        if self.brain is not None and self.held.pop(partition, None) is not None:
            self.world.trace.note(self.name, "lets go", partition)
            self.world.checker.forgets(self.name, partition)
            self.brain.forget(partition)

    def poll(self, partition: int) -> None:
        """Answer what has come in; answers leave in order, some time later."""
        brain, held, log = self.brain, self.held.get(partition), self.world.log
        if brain is None or held is None or not log.up:
            return
        if not self.answering:
            self.while_alive(self.paused_until_ms - self.world.timeline.now_ms, partial(self.poll, partition))
            return
        entries = log.read(SAMPLE.name, partition, held.position)
        if not entries:
            return
        held.position = entries[-1].offset + 1
        outs = brain.samples(entries, self.world.timeline.wall_ms)
        self.world.checker.answered(self.name, entries, outs)
        held.sent_at_ms = max(held.sent_at_ms, self.world.timeline.now_ms + self.world.answer_ms())
        self.while_alive(
            held.sent_at_ms - self.world.timeline.now_ms,
            partial(self._sent, held, held.position, outs, log.incarnation),
        )

    def log_is_back(self, *, wiped: bool) -> None:
        """Offsets of a topic made anew are out of range: from its beginning on."""
        if wiped:
            self._positions = {}
            for held in self.held.values():
                held.position = held.answered = 0
        self.read_topics()
        for partition in list(self.held):
            self.poll(partition)

    def crash(self) -> None:
        """A send failed: the process ends, and its supervisor starts it again."""
        self.kill()
        self.world.timeline.after(self.world.rng.randint(300, 3000), self.start)

    def _sent(self, held: Held, position: int, outs: Sequence[Out], incarnation: int) -> None:
        world = self.world
        trouble, rng = world.trouble, world.rng
        failed = not world.log.up or rng.random() < trouble.loss / 4
        if failed and (not world.log.up or rng.random() < 0.5):
            self.crash()  # refused before it was written
            return
        world.checker.sent(outs)
        for _ in range(2 if rng.random() < trouble.double else 1):
            for out in outs:
                world.out(trouble.on_its_way(out))
        if failed:
            self.crash()  # written, but the acknowledgement was lost
        elif incarnation == world.log.incarnation:
            held.answered = max(held.answered, position)

    def _commit(self) -> None:
        """The group takes commits of a partition's owner alone."""
        self.while_alive(COMMIT_EVERY_MS, self._commit)
        if self.world.log.up and self.answering:
            for partition, held in self.held.items():
                if self.world.crew.owner.get(partition) is self:
                    self.world.log.committed[partition] = held.answered

    def _read_on(self, topic: str, partition: int, tell: Callable[[Record], list[Out]]) -> None:
        for entry in self.world.log.read(topic, partition, self._positions.get((topic, partition), 0)):
            self._positions[topic, partition] = entry.offset + 1
            outs = tell(entry)
            self.world.checker.worker_told(self.name, entry, outs)
            for out in outs:
                self.world.out(out)


class Crew:
    """The group: each partition has one owner, but who lost one may not know it yet."""

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self.world = world
        self.processes = [Process(world, name) for name in names]
        self.owner: dict[int, Process] = {}
        self._members: list[Process] = []

    def joined(self, process: Process) -> None:
        if process not in self._members:
            self._members.append(process)
        self.share_out()

    def left(self, process: Process) -> None:
        """A member fell silent: noticed when its session ends."""

        def session_over() -> None:
            if process.brain is None and process in self._members:
                self._members.remove(process)
                self.share_out()

        self.world.timeline.after(self.world.rng.randint(500, 6000), session_over)

    def lock_out(self, process: Process) -> None:
        """A paused member's session ends although it lives: it still answers when it wakes."""
        if process in self._members and len(self._members) > 1:
            self._members.remove(process)
            self.share_out()

    def share_out(self) -> None:
        """New owners begin at once; old ones hear of it sooner or later."""
        if not self._members:
            return
        rng, timeline = self.world.rng, self.world.timeline
        shift = rng.randrange(len(self._members))
        for partition in range(PARTITIONS):
            owner = self._members[(partition + shift) % len(self._members)]
            self.owner[partition] = owner
            timeline.after(rng.choice([1, 20, 150]), partial(self._tell, owner, partition))
            for other in self.processes:
                if other is not owner and partition in other.held:
                    timeline.after(rng.choice([1, 20, 400, 4000]), partial(self._tell, other, partition))

    def new_sample(self, entry: Record) -> None:
        """Whoever believes to hold the partition reads it soon."""
        for process in self.processes:
            if entry.partition in process.held:
                self.world.timeline.after(self.world.rng.randint(1, 10), partial(process.poll, entry.partition))

    def _tell(self, process: Process, partition: int) -> None:
        if self.owner.get(partition) is process:
            if self.world.log.up:
                process.take_over(partition)
            else:
                self.world.timeline.after(300, partial(self._tell, process, partition))
        else:
            process.let_go(partition)
