"""Which nodes are silent, and of which it is said: by ticks, ends and positions alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.schemas.topics import SAMPLE, SAMPLE_COLUMNS
from slacktide.streams.freshness.silence import SILENT_MS, Quiet, Silence, Verdict, frozen

SESSION_MS = 6_000
EVERY_S = 10
"""A node is said to be stale within so many seconds."""


@dataclass
class World:
    """A log of some partitions and a worker that ticks once a second; nodes write in the middle of each second."""

    silence: Silence = field(default_factory=lambda: Silence(session_timeout_ms=SESSION_MS))
    ends: dict[int, int] = field(default_factory=dict)
    unread: list[tuple[int, str, int]] = field(default_factory=list)
    number: int = 0
    now_s: float = 0.0
    wrote_s: dict[str, float] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    """By node, the last that was said of it."""
    first_said_s: dict[str, float] = field(default_factory=dict)
    _fetched: dict[int, int] = field(default_factory=dict)

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
        for node in verdict.publish:
            self.first_said_s.setdefault(node, self.now_s)
        return verdict

    def seconds(self, count: int, writing: Mapping[str, int] | Collection[str] = (), **how: bool) -> list[Verdict]:
        return [self.second(writing, **how) for _ in range(count)]


@pytest.fixture
def world() -> World:
    world = World()
    world.hold(0)
    return world


def test_a_node_that_stops_is_said_to_be_stale_within_10_s_and_never_sooner_than_7(world: World) -> None:
    world.seconds(5, ["a", "b"])
    verdicts = world.seconds(20, ["b"])
    since_s = world.first_said_s["a"] - world.wrote_s["a"]

    assert SILENT_MS / 1_000 <= since_s <= EVERY_S
    assert "b" not in world.said
    assert [verdict.silent for verdict in verdicts][-1] == 1
    assert not any(verdict.alarm for verdict in verdicts)


def test_it_is_said_again_every_5_s_for_how_long_it_lasts(world: World) -> None:
    world.seconds(5, ["a"])
    said = [(second, verdict.publish["a"]) for second, verdict in enumerate(world.seconds(40)) if verdict.publish]

    seconds, ages = [second for second, _ in said], [age_ms for _, age_ms in said]
    assert {after - before for before, after in pairwise(seconds)} == {5}
    assert {after - before for before, after in pairwise(ages)} == {5_000}


def test_a_node_that_comes_back_is_not_silent_any_more(world: World) -> None:
    world.seconds(5, ["a"])
    world.seconds(15)
    back = world.seconds(3, ["a"])

    assert (back[-1].publish, back[-1].silent) == ({}, 0)


def test_a_node_that_goes_on_in_a_topic_made_anew_is_not_silent(world: World) -> None:
    """Its records stand below ends of long ago, and are none the older for it; when it stops that is seen."""
    world.seconds(30, ["a", "b"])
    world.ends = {0: 0}
    world.seconds(15, ["a", "b"])
    said = dict(world.said)
    world.seconds(EVERY_S, ["b"])

    assert said == {}
    assert set(world.said) == {"a"}


def test_a_removed_node_is_not_silent_but_gone(world: World) -> None:
    world.seconds(5, ["a"])
    world.silence.gone(0, "a")
    verdicts = world.seconds(20)

    assert (world.said, verdicts[-1].nodes) == ({}, 0)


def test_nothing_is_said_of_a_partition_that_is_not_read_to_its_end(world: World) -> None:
    """What the worker has not read yet may be that very node's."""
    world.seconds(5, ["a", "b"])
    world.seconds(30, ["b"], reading=False)

    assert world.said == {}


def test_nothing_is_said_while_no_end_is_known(world: World) -> None:
    world.seconds(5, ["a"])
    for _ in range(30):
        world._fetched = {}
        world.second()

    assert world.said == {}


def test_what_is_read_late_is_as_old_as_it_stood_in_the_log(world: World) -> None:
    """A worker that was behind does not take old records for news."""
    world.seconds(5, ["a", "b"])
    world.seconds(3, ["a", "b"], reading=False)
    world.seconds(12, ["b"], reading=False)
    world.seconds(2, ["b"])

    assert set(world.said) == {"a"}


def test_a_worker_that_has_paused_says_of_nobody_that_it_is_stale_for_one_session(world: World) -> None:
    """Its nodes were written all the time, and read at once when it went on."""
    world.seconds(5, ["a", "gone"])
    world.second(["a"], paused_ms=9_000)
    resumed = world.seconds(SESSION_MS // 1_000 - 1, ["a"])
    after = world.seconds(12, ["a"])

    assert [verdict.publish for verdict in resumed] == [{}] * len(resumed)
    assert set(world.said) == {"gone"}
    assert after[-1].silent == 1


def test_a_new_owner_waits_as_long_as_any_other(world: World) -> None:
    """It learns of the node from old records."""
    world.ends = {0: 5_000}
    world.silence.sampled(0, {"a": 10, "b": 4_000})
    verdicts = world.seconds(SILENT_MS // 1_000)

    assert all(not verdict.publish for verdict in verdicts)
    world.seconds(3)
    assert set(world.said) == {"a", "b"}


def test_a_silence_that_another_worker_told_of_goes_on(world: World) -> None:
    world.silence.known(0, {"a": 60_000, "b": 0})
    world.seconds(EVERY_S)

    assert world.said["a"] - world.said["b"] == 60_000


def test_whoever_is_named_later_has_been_waited_for_since_the_partition_came(world: World) -> None:
    """What another worker said of it is read back in the meantime."""
    world.seconds(5)
    world.silence.known(0, {"a": 0})
    world.seconds(EVERY_S - 5)

    assert set(world.said) == {"a"}


def test_nodes_of_a_partition_that_moved_away_are_anothers_to_judge(world: World) -> None:
    world.hold(0, 1)
    world.seconds(3, {"a": 0, "b": 1})
    world.hold(1)
    world.seconds(15)

    assert set(world.said) == {"b"}


TEN = [f"node-{number}" for number in range(10)]


@pytest.mark.parametrize("count", [5, 6, 10])
def test_where_many_fall_silent_at_once_their_figures_freeze(world: World, count: int) -> None:
    world.seconds(5, TEN)
    verdicts = world.seconds(60, TEN[count:])

    assert world.said == {}
    assert verdicts[-1].frozen == set(TEN[:count])
    assert verdicts[-1].alarm == f"{count} of 10 nodes fell silent together: their figures are frozen as they were"


def test_it_is_known_that_they_are_many_before_the_first_would_be_said(world: World) -> None:
    """They stop within some seconds, not all in one."""
    world.seconds(5, TEN)
    for count in (2, 4, 6):
        world.second(TEN[count:])
    world.seconds(20, TEN[6:])

    assert world.said == {}


def test_figures_thaw_when_enough_of_them_are_back_and_who_is_not_is_stale(world: World) -> None:
    world.seconds(5, TEN)
    world.seconds(30, TEN[6:])
    verdicts = world.seconds(4, TEN[2:])

    assert (verdicts[-1].alarm, verdicts[-1].silent) == ("", 2)
    assert set(world.said) == set(TEN[:2])


GHOSTS = [f"ghost-{number}" for number in range(13)]
MANY = [f"node-{number}" for number in range(100)]


@pytest.mark.parametrize("alive_s", [1, 30, 300])
def test_invented_names_freeze_the_others_no_longer_than_they_were_there_or_two_minutes(alive_s: int) -> None:
    """Where nobody lists the nodes, 13 names beside a hundred nodes look like a pipeline that broke."""
    world = World()
    world.hold(0)
    for second in range(310):
        world.second(MANY + (GHOSTS if second >= 310 - alive_s else []))
    going, silent_s = set(MANY) - {"node-7"}, 0
    while "node-7" not in world.said:
        silent_s += 1
        assert silent_s < max(alive_s, 120) + EVERY_S, "node-7 is said to be stale"
        for partition, name in world.second(going).lost:
            world.silence.gone(partition, name)
    assert not set(GHOSTS) & world.said.keys()


def test_nodes_that_were_there_for_long_stay_frozen_for_as_long(world: World) -> None:
    """As with a pipeline that broke."""
    for _ in range(600):
        world.second(TEN)
    still = [world.second(TEN[6:]) for _ in range(590)]
    assert [verdict.lost for verdict in still] == [[]] * 590
    assert still[-1].frozen == frozenset(TEN[:6])


def test_four_are_nodes_that_stopped(world: World) -> None:
    world.seconds(5, TEN)
    verdicts = world.seconds(12, TEN[4:])

    assert set(world.said) == set(TEN[:4])
    assert verdicts[-1].alarm == ""


def test_a_tenth_is_not_too_many(world: World) -> None:
    fifty = [f"node-{number}" for number in range(50)]
    world.seconds(3, fifty)
    world.seconds(12, fifty[5:])

    assert set(world.said) == set(fifty[:5])


def test_nodes_that_stop_one_after_the_other_are_each_stale(world: World) -> None:
    """No five of them within half a minute."""
    world.seconds(3, TEN)
    for count in range(1, 7):
        world.seconds(12, TEN[count:])

    assert set(world.said) >= set(TEN[:5])


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
    world.hold(0)
    for writing, reading, paused_ms in steps:
        known_s = dict(world.wrote_s)  # what is appended after the ends were asked for, the tick cannot know
        verdict = world.second(writing, reading=reading, paused_ms=paused_ms)
        for node in verdict.publish:
            assert world.now_s - known_s[node] >= SILENT_MS / 1_000
            assert verdict.publish[node] <= (world.now_s - known_s[node]) * 1_000
        assert not verdict.publish.keys() & verdict.frozen
        assert len(verdict.publish) < 5 or not verdict.frozen


@given(steps=STEPS)
def test_once_all_is_read_for_a_while_each_silent_node_is_said_or_frozen(
    steps: list[tuple[set[str], bool, int]],
) -> None:
    world = World()
    world.hold(0)
    for writing, reading, paused_ms in steps:
        world.second(writing, reading=reading, paused_ms=paused_ms)
    verdicts = world.seconds(EVERY_S + SESSION_MS // 1_000)
    last = {node for verdict in verdicts[-5:] for node in verdict.publish}

    assert last | verdicts[-1].frozen == set(world.wrote_s)


def test_a_node_whose_samples_change_their_topic_is_not_silent() -> None:
    """Its agent was upgraded: of both topics the partition has one number, and its nodes are judged by both."""
    silence, ends, fetched = Silence(session_timeout_ms=SESSION_MS), dict.fromkeys(FORMS, 0), dict.fromkeys(FORMS, 0)
    silence.hold([0])
    said: dict[str, int] = {}
    for second in range(40):
        for node, topic in (("moves", FORMS[second >= 20]), ("stays", FORMS[0]), ("stops", FORMS[1])):
            if node != "stops" or second < 5:
                silence.sampled(0, {node: ends[topic]}, topic)
                ends[topic] += 1
        said |= silence.tick(tick_of(ends, fetched)).publish
        fetched = dict(ends)

    assert set(said) == {"stops"}


def test_nobody_is_silent_while_either_topic_of_a_partition_is_unread() -> None:
    silence, ends, fetched = Silence(session_timeout_ms=SESSION_MS), dict.fromkeys(FORMS, 0), dict.fromkeys(FORMS, 0)
    silence.hold([0])
    silence.sampled(0, {"a": 0}, FORMS[0])
    ends[FORMS[0]] = 1
    for _ in range(30):
        ends[FORMS[1]] += 1
        tick = tick_of(ends, fetched, read={FORMS[0]: 1, FORMS[1]: 0})
        assert silence.tick(tick).publish == {}
        fetched = dict(ends)
    assert "a" in silence.tick(tick_of(ends, ends)).publish


FORMS = (SAMPLE.name, SAMPLE_COLUMNS.name)


def tick_of(ends: Mapping[str, int], fetched: Mapping[str, int], read: Mapping[str, int] | None = None) -> WorkerTick:
    reached = [Reached(topic=topic, partition=0, position=(read or ends)[topic], end=fetched[topic]) for topic in ends]
    return WorkerTick(worker="w", number=1, ticked_ms=0, partitions=reached)
