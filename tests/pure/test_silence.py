"""Which nodes are silent, and of which it is said: by ticks, ends and positions alone."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.streams.freshness.silence import SILENT_MS, Quiet, Silence, Verdict, frozen
from testbed.scenarios import run, scenarios

SESSION_MS = 6_000
EVERY_S = 10
"""A node is said to be stale within so many seconds."""


@dataclass
class World:
    """A log of some partitions and a worker that ticks once a second; nodes write in the middle of each second."""

    held: Collection[int] = (0,)
    silence: Silence = field(default_factory=lambda: Silence(session_timeout_ms=SESSION_MS))
    ends: dict[int, int] = field(default_factory=dict)
    unread: list[tuple[int, str, int]] = field(default_factory=list)
    number: int = 0
    now_s: float = 0.0
    wrote_s: dict[str, float] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    """By node, the last that was said of it."""
    _fetched: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hold(*self.held)

    def hold(self, *partitions: int) -> None:
        self.silence.hold(partitions)
        self.ends = {number: self.ends.get(number, 0) for number in partitions}

    def write(self, node: str, partition: int = 0) -> None:
        self.unread.append((partition, node, self.ends[partition]))
        self.ends[partition] += 1
        self.wrote_s[node] = self.now_s

    def read(self) -> None:
        for partition, node, offset in self.unread:
            self.silence.sampled(partition, {node: offset})
        self.unread = []

    def second(
        self, writing: Mapping[str, int] | Collection[str] = (), *, reading: bool = True, paused_ms: int = 0
    ) -> Verdict:
        """A second of writing and reading, then a tick."""
        where = writing if isinstance(writing, Mapping) else dict.fromkeys(writing, 0)
        self.now_s += 0.5
        for node, partition in where.items():
            self.write(node, partition)
        if reading:
            self.read()
        self.now_s += 0.5 + paused_ms / 1_000
        self.number += 1
        behind = {number: sum(one[0] == number for one in self.unread) for number in self.ends}
        tick = WorkerTick(
            worker="w",
            number=self.number,
            ticked_ms=0,
            paused_ms=paused_ms,
            partitions=[
                Reached(partition=number, position=end - behind[number], end=self._fetched.get(number))
                for number, end in self.ends.items()
            ],
        )
        verdict = self.silence.tick(tick)
        self._fetched = dict(self.ends)
        self.said |= verdict.publish
        return verdict

    def seconds(self, count: int, writing: Mapping[str, int] | Collection[str] = (), **how: bool) -> list[Verdict]:
        return [self.second(writing, **how) for _ in range(count)]

    def passes(self, seconds: int, *nodes: str, **how: Any) -> dict[str, Any]:
        """Whom it said to be stale meanwhile, in which of these seconds and for how long; and how it stands then."""
        partitions = how.pop("partitions", dict.fromkeys(nodes, 0))
        verdicts = self.seconds(seconds, partitions, **how)
        told: dict[str, list[tuple[int, int]]] = {}
        for second, verdict in enumerate(verdicts, start=1):
            for node, age_ms in sorted(verdict.publish.items()):
                told.setdefault(node, []).append((second, age_ms))
        last = verdicts[-1]
        stands = {"silent": last.silent, "nodes": last.nodes, "frozen": sorted(last.frozen), "alarm": last.alarm}
        return {"stale": told, **{key: value for key, value in stands.items() if value}}

    def ends_at(self, partition: int, end: int) -> None:
        self.ends[partition] = end

    def forgets_ends(self, seconds: int) -> list[str]:
        """So long no end is known."""
        for _ in range(seconds):
            self._fetched = {}
            self.second()
        return sorted(self.said)

    def gone(self, node: str) -> None:
        self.silence.gone(0, node)

    def sampled(self, **offsets: int) -> None:
        self.silence.sampled(0, offsets)

    def known(self, **silent_ms: int) -> None:
        self.silence.known(0, silent_ms)


TEN = [f"node-{number}" for number in range(10)]


GHOSTS = [f"ghost-{number}" for number in range(13)]
MANY = [f"node-{number}" for number in range(100)]


@pytest.mark.parametrize("alive_s", [1, 30, 300])
def test_invented_names_freeze_the_others_no_longer_than_they_were_there_or_two_minutes(alive_s: int) -> None:
    """Where nobody lists the nodes, 13 names beside a hundred nodes look like a pipeline that broke."""
    world = World()
    for second in range(310):
        world.second(MANY + (GHOSTS if second >= 310 - alive_s else []))
    going, silent_s = set(MANY) - {"node-7"}, 0
    while "node-7" not in world.said:
        silent_s += 1
        assert silent_s < max(alive_s, 120) + EVERY_S, "node-7 is said to be stale"
        for partition, name in world.second(going).lost:
            world.silence.gone(partition, name)
    assert not set(GHOSTS) & world.said.keys()


def test_nodes_that_were_there_for_long_stay_frozen_for_as_long() -> None:
    """As with a pipeline that broke."""
    world = World()
    for _ in range(600):
        world.second(TEN)
    still = [world.second(TEN[6:]) for _ in range(590)]
    assert [verdict.lost for verdict in still] == [[]] * 590
    assert still[-1].frozen == frozenset(TEN[:6])


def test_a_whole_quiet_partition_is_frozen_whatever_its_share() -> None:
    nodes = {
        f"{number}-{name}": Quiet(partition=number, fallen=number == 0) for number in range(20) for name in "abcde"
    }

    assert frozen(nodes) == {name for name in nodes if name.startswith("0-")}


def test_a_quiet_partition_of_four_nodes_is_four_nodes() -> None:
    nodes = {f"{number}-{name}": Quiet(partition=number, fallen=number == 0) for number in range(20) for name in "abcd"}

    assert frozen(nodes) == frozenset()


STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(TEN)),  # who writes
        st.booleans(),  # whether the worker reads
        st.sampled_from([0, 0, 0, 0, 500, 3_000, 20_000]),  # how long it pauses
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_nobody_is_said_to_be_stale_who_wrote_within_7_s(steps: list[tuple[set[str], bool, int]]) -> None:
    """Whatever the worker reads, and however it pauses."""
    world = World()
    for writing, reading, paused_ms in steps:
        known_s = dict(world.wrote_s)  # what is appended after the ends were asked for, the tick cannot know
        verdict = world.second(writing, reading=reading, paused_ms=paused_ms)
        for node in verdict.publish:
            assert world.now_s - known_s[node] >= SILENT_MS / 1_000
            assert verdict.publish[node] <= (world.now_s - known_s[node]) * 1_000
        assert not verdict.publish.keys() & verdict.frozen
        assert len(verdict.publish) < 5 or not verdict.frozen


@given(steps=STEPS)
def test_once_all_is_read_for_a_while_each_silent_node_is_said_or_frozen(steps) -> None:
    world = World()
    for writing, reading, paused_ms in steps:
        world.second(writing, reading=reading, paused_ms=paused_ms)
    verdicts = world.seconds(EVERY_S + SESSION_MS // 1_000)
    last = {node for verdict in verdicts[-5:] for node in verdict.publish}

    assert last | verdicts[-1].frozen == set(world.wrote_s)


@scenarios("silence")
def test_silence(case: dict[str, Any]) -> None:
    run(case, World)
