"""What a cluster learns of a service beside best-effort work: worlds with a known slope, and forged records."""

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.bounds import COUNT_MAX, CPUS_MAX, TIME_MS_MAX
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.service import NODES_MAX, NodeSums, ServiceMinute, ServiceProfile, ServiceSlope
from slacktide.streams.learning.estimate import Estimate, median, status_after
from slacktide.streams.learning.fold import ServiceFold, next_slope
from slacktide.streams.learning.shape import BUDGET, bent, growth
from testbed.service_minutes import DAY_MS, HOUR_MS, MINUTE_MS, SERVICE, START_MS, World, folded, minute

NOISY = 0.6
"""Correlation of the noise of successive minutes, which is harder than none."""


def learned(world: World, days: int = 1) -> ServiceProfile:
    return folded(world.minutes(days * DAY_MS)).profile()


def off(profile: ServiceProfile, slope: float) -> float:
    """How far the slope is from the true one, as a share of it."""
    return abs(profile.slope_permille / 1_000 / slope - 1)


@pytest.mark.parametrize("slope", [0.2, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize(("nodes", "days"), [(20, 1), (3, 3)])
def test_the_slope_is_known_within_a_fifth(slope: float, nodes: int, days: int):
    found = learned(World(nodes=nodes, slope=lambda at_ms: slope, memory=NOISY), days)
    assert (found.shape, off(found, slope) <= 0.2) == ("straight", True)
    assert found.low_permille <= slope * 1_000 <= found.high_permille
    assert found.nodes == nodes
    assert found.alone_permille == pytest.approx(1_350, rel=0.05), "e to the power of the baseline, 0.3"


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("nodes", "days"), [(20, 1), (3, 3)])
def test_a_service_that_slows_down_at_once_is_known_as_bent(slope: float, nodes: int, days: int):
    fold = folded(World(nodes=nodes, slope=lambda at_ms: slope, curve=bent, memory=NOISY).minutes(days * DAY_MS))
    found = fold.profile()
    assert (found.shape, found.status, off(found, slope) <= 0.2) == ("bent", "learned", True)
    assert found.published is not None
    share = BUDGET * 1_000 / found.published.slope_permille
    assert growth("bent", slope, share) == pytest.approx(BUDGET, rel=0.3), "nodes stay at a slowdown of 25%"


CURVES: dict[str, tuple[Callable[[float], float], str]] = {
    "a step": (lambda x: min(1.0, 20 * x) * 0.7 + 0.3 * x, "bent"),
    "a fifth root": (lambda x: x**0.2, "bent"),
    "a line": (lambda x: x, "straight"),
    "a square": (lambda x: x**2, "straight"),
    "a flat root": (lambda x: x**0.7, "straight"),
}


@pytest.mark.parametrize("name", CURVES)
def test_any_growth_has_the_shape_that_is_nearer(name: str):
    curve, shape = CURVES[name]
    assert learned(World(nodes=10, curve=curve, memory=NOISY)).shape == shape


@pytest.mark.parametrize("name", CURVES)
def test_a_growth_is_straight_where_no_minute_is_without_best_effort_work(name: str):
    world = World(nodes=10, curve=CURVES[name][0], load_slope=0.0, full=0.8, memory=NOISY)
    assert learned(world).shape == "straight"


def mixed(world: World, odd: Callable[[int, float], tuple[float, float]]) -> Iterator[ServiceMinute]:
    """The world's minutes, and those of a node that has x and y of its own."""
    dice = random.Random(7)
    for number, one in enumerate(world.minutes(DAY_MS)):
        x, y = odd(number // world.nodes, dice.gauss(0, 0.02))
        yield minute(node=one.node, at_ms=one.observed_ms, x=x, y=y) if one.node == "node-0" else one


def test_one_node_that_alone_shows_how_the_growth_begins_does_not_decide_its_shape():
    """The others always run best-effort work, so that both shapes fit them."""
    steady = World(nodes=20, load_slope=0.0, full=0.8, memory=NOISY)
    liar = mixed(steady, lambda at, noise: ((x := (0.0, 0.005, 0.01, 0.3)[at % 4]), 0.05 + 2 * bent(x) + noise))
    assert folded(liar).profile().shape == "straight"
    fold = folded(World(nodes=20, curve=bent, memory=NOISY).minutes(DAY_MS))
    liar = mixed(steady, lambda at, noise: ((x := (0.0, 0.2, 0.4, 0.8)[at % 4]), 0.05 + 0.1 * x + noise))
    later = (msgspec.structs.replace(one, observed_ms=one.observed_ms + DAY_MS) for one in liar)
    assert folded(later, fold).profile().shape == "bent"


def test_the_cap_of_a_bent_service_leaves_evidence_of_it():
    fold = folded(World(nodes=10, curve=bent, memory=NOISY).minutes(2 * DAY_MS))
    capped = World(nodes=10, curve=bent, most=0.015, memory=NOISY, seed=2).minutes(3 * DAY_MS)
    later = (msgspec.structs.replace(one, observed_ms=one.observed_ms + 2 * DAY_MS) for one in capped)
    before, after = fold.profile(), folded(later, fold).profile()
    assert (after.shape, after.status, off(after, 1.0) <= 0.2) == ("bent", "learned", True)
    assert (before.published, after.published) != (None, None)
    assert after.confirmed_ms > after.observed_ms - DAY_MS


def test_the_interval_holds_the_slope_nine_times_of_ten():
    worlds = [World(nodes=nodes, seed=seed, memory=NOISY) for seed in range(10) for nodes in (1, 4, 8)]
    held = [found.low_permille <= 1_000 <= found.high_permille for found in map(learned, worlds)]
    assert sum(held) >= 27


@pytest.mark.parametrize(("nodes", "before", "after"), [(20, 0.5, 1.0), (20, 1.0, 0.5), (3, 1.0, 2.0), (3, 2.0, 1.0)])
def test_a_release_is_known_within_a_day(nodes: int, before: float, after: float):
    world = World(nodes=nodes, slope=lambda at_ms: before if at_ms <= DAY_MS else after, memory=NOISY)
    found = learned(world, 2)
    assert off(found, after) <= 0.2
    assert found.published is not None
    assert off(msgspec.structs.replace(found, slope_permille=found.published.slope_permille), after) <= 0.2


FORGED: dict[str, Callable[[random.Random, int], tuple[float, float]]] = {
    "steep": lambda dice, number: ((0, 0), (1.1, 3.5))[number % 2],
    "falling": lambda dice, number: ((0, 3.5), (1.1, 0))[number % 2],
    "flat": lambda dice, number: (number % 2 * 1.1, 0),
    "constant": lambda dice, number: (0.5, 1.0),
    "random": lambda dice, number: (dice.random() * 1.1, dice.random() * 3),
}


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_one_forged_node_of_ten_moves_the_slope_by_a_tenth_at_most(how: str, slope: float):
    world = World(nodes=10, slope=lambda at_ms: slope, memory=NOISY)

    def forged() -> Iterator[ServiceMinute]:
        dice = random.Random(5)
        for number, one in enumerate(world.minutes(DAY_MS)):
            x, y = FORGED[how](dice, number // 10)
            bad = minute(node=one.node, at_ms=one.observed_ms, x=x, y=y, z=dice.random() * 0.3)
            yield bad if one.node == "node-0" else one

    assert off(folded(forged()).profile(), learned(world).slope_permille / 1_000) <= 0.1


def test_minutes_of_one_node_change_no_sums_of_others():
    world = World(nodes=3)
    fold = folded(world.minutes(6 * HOUR_MS))
    before = fold.profile()
    for number in range(1, 500):
        forged = minute(node="node-0", at_ms=before.observed_ms + number, x=number % 2, y=3.0, z=0.1)
        assert fold.take(forged, fold.folded_to + 1, before.observed_ms) == "folded"
    after = fold.profile()
    assert after.sums[1:] == before.sums[1:]
    assert after.sums[0].minutes == pytest.approx(before.sums[0].minutes, abs=0.01), "half a second passed"


@pytest.mark.parametrize("load_slope", [1.0, 2.0])
def test_the_load_of_other_pods_is_not_taken_for_best_effort_work(load_slope: float):
    """Best-effort work fills what other pods leave, so that both change at the same time."""
    found = learned(World(nodes=10, load_slope=load_slope, full=0.8, memory=NOISY))
    assert off(found, 1.0) <= 0.2


def test_nodes_differ_in_their_baselines():
    found = learned(World(nodes=10, slope=lambda at_ms: 0.7, baselines=(0.0, 1.5), memory=NOISY))
    assert off(found, 0.7) <= 0.2


@pytest.mark.parametrize("slope", [-0.5, 0.0, 0.1])
@pytest.mark.parametrize("nodes", [3, 20])
def test_an_insensitive_service_never_gets_a_slope(slope: float, nodes: int):
    fold = ServiceFold()
    for offset, one in enumerate(World(nodes=nodes, slope=lambda at_ms: slope, memory=NOISY).minutes(DAY_MS)):
        fold.take(one, offset, one.observed_ms)
        assert offset % (10 * nodes) or fold.slope_out() is None
    assert fold.profile().status == "insensitive"


def test_without_best_effort_work_nothing_is_learned():
    found = learned(World(nodes=10, idle=True))
    assert (found.status, found.slope_permille, found.node_hours, found.nodes) == ("learning", 0, 0, 0)


def test_the_picture_shows_what_was_measured():
    found = learned(World(nodes=20, load_slope=1.0))
    measured = [(number, one) for number, one in enumerate(found.bins) if one.minutes > 60]
    assert len(measured) >= 5
    assert all(one.mean_permille == pytest.approx(100 * number + 50, abs=60) for number, one in measured)


def test_a_node_counts_the_time_once():
    fold = ServiceFold()
    long = msgspec.structs.replace(minute(at_ms=START_MS), span_ms=600_000)
    long = msgspec.structs.replace(long, run_us=long.run_us * 10)
    fold.take(long, 0)
    fold.take(msgspec.structs.replace(long, observed_ms=START_MS + MINUTE_MS), 1)
    assert fold.profile().sums[0].minutes == pytest.approx(5 + 1, abs=0.02), "a long one weighs five minutes"


IGNORED = {
    "no pods": ({"pods": 0, "wait_us": 0, "mem_wait_us": 0}, "idle"),
    "two percent of a CPU": ({"run_us": 4 * 60_000_000 * 2 // 100 - 1}, "idle"),
    "no time": ({"span_ms": 0}, "absurd"),
    "a short span": ({"span_ms": 9_999}, "absurd"),
    "a long span": ({"span_ms": 600_001}, "absurd"),
    "more than the node has": ({"be_cpu_us": 49 * 60_000_000}, "absurd"),
    "runs more than the node has": ({"run_us": 49 * 60_000_000}, "absurd"),
    "waits longer than it is": ({"wait_us": 7 * 60_000_000}, "absurd"),
    "waits longer for memory": ({"mem_wait_us": 7 * 60_000_000}, "absurd"),
    "ahead of the broker": ({"observed_ms": START_MS + 5 * MINUTE_MS + 1}, "early"),
    "older than the topic": ({"observed_ms": START_MS - 48 * HOUR_MS - 1}, "old"),
}


@pytest.mark.parametrize("name", IGNORED)
def test_a_minute_that_says_nothing_is_ignored(name: str):
    changes, why = IGNORED[name]
    fold = ServiceFold()
    assert fold.take(msgspec.structs.replace(minute(), **changes), 0, START_MS) == why
    assert len(fold) == 0
    assert fold.take(minute(), 1, START_MS) == "folded"


def test_a_minute_of_the_past_is_ignored_per_node():
    fold = ServiceFold()
    assert fold.take(minute(at_ms=START_MS), 0) == "folded"
    assert fold.take(minute(at_ms=START_MS), 1) == "old"
    assert fold.take(minute(at_ms=START_MS - 1), 2) == "old"
    assert fold.take(minute(node="node-2", at_ms=START_MS - 1), 3) == "folded"


def test_minutes_go_on_where_the_topic_was_created_again():
    fold = folded(World(nodes=2).minutes(HOUR_MS))
    at_ms = fold.observed_ms + MINUTE_MS
    assert fold.take(minute(node="node-0", at_ms=at_ms), 0) == "folded"
    assert fold.take(minute(node="node-1", at_ms=at_ms - 1), 1) == "folded"


def test_a_profile_keeps_the_nodes_that_weigh_most():
    fold = ServiceFold()
    for number in range(NODES_MAX):
        fold.take(minute(node=f"node-{number}"), number)
    assert fold.take(minute(node="one-more"), NODES_MAX) == "crowded", "it weighs no more than any other"
    assert fold.take(minute(node="one-more", at_ms=START_MS + MINUTE_MS), NODES_MAX) == "folded"
    assert (len(fold), "one-more" in fold, "node-0" in fold) == (NODES_MAX, True, False)


def test_a_node_that_is_gone_is_dropped():
    fold = folded(World(nodes=2).minutes(HOUR_MS))
    fold.take(minute(node="node-1", at_ms=fold.observed_ms + 5 * DAY_MS), fold.folded_to + 1)
    fold.slope_out()
    assert "node-0" not in fold


def test_the_median_of_weights():
    assert median([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]) == 2.0
    assert median([(1.0, 1.0), (2.0, 1.0)]) == 1.5
    assert median([(1.0, 3.0), (2.0, 1.0)]) == 1.0
    assert median([(1.0, 1.0), (2.0, 1.0), (9.0, 3.0)]) == 9.0


STATUSES = [
    ("learning", 3.9, 1.0, 0.1, "learning"),
    ("learning", 4.0, 1.0, 0.25, "learned"),
    ("learning", 4.0, 1.0, 0.26, "learning"),
    ("learning", 4.0, 0.3, 0.1, "learned"),
    ("learning", 4.0, 0.15, 0.1, "learned"),
    ("learning", 4.0, -1.0, 0.1, "insensitive"),
    ("learning", 4.0, 0.2, 0.3, "learning"),
    ("learned", 0.5, 1.0, 0.5, "learned"),
    ("learned", 0.5, 1.0, 0.51, "learned"),
    ("learned", 0.5, -0.1, 0.51, "learned"),
    ("learned", 0.5, 0.1, 0.1, "insensitive"),
    ("learned", 0.5, -0.1, 0.4, "learned"),
    ("learned", 0.4, 1.0, 0.1, "learning"),
    ("insensitive", 0.5, 0.15, 0.1, "insensitive"),
    ("insensitive", 0.5, 0.2, 0.07, "learned"),
    ("insensitive", 0.5, 0.2, 0.19, "learning"),
    ("insensitive", 0.5, 0.3, 0.3, "insensitive"),
]


@pytest.mark.parametrize(("before", "hours", "slope", "half", "after"), STATUSES)
def test_a_status_that_is_reached_is_kept_until_something_contradicts_it(before, hours, slope, half, after):
    assert status_after(before, Estimate(slope=slope, half=half, node_hours=hours, nodes=4, hours=hours)) == after


def test_a_status_is_kept_while_nodes_measure_what_shows_nothing():
    assert status_after("learned", Estimate(hours=0.5)) == "learned"
    assert status_after("learned", Estimate(hours=0.4)) == "learning"


STEPS = [
    ("the first one as it is", None, 1_000, 0.1, 0, 1_000),
    ("the first one, once it is precise", None, 1_000, 0.3, 0, 0),
    ("too early", 1_000, 2_000, 0.1, 29, 1_000),
    ("a step up", 1_000, 2_000, 0.1, 30, 1_250),
    ("a step down", 1_000, 500, 0.1, 30, 800),
    ("a step up that is sure, but not precise", 1_000, 2_000, 0.9, 30, 1_250),
    ("neither sure nor precise", 1_000, 1_500, 0.6, 30, 1_000),
    ("less than a step", 1_000, 1_101, 0.1, 30, 1_101),
    ("a small difference", 1_000, 1_100, 0.1, 30, 1_000),
    ("nothing confirms it", 1_000, 3_000, 9.0, 60, 1_000),
    ("nothing has confirmed it for a day", 1_000, 3_000, 9.0, 24 * 60, 800),
    ("nothing has confirmed it for weeks", 62, 3_000, 9.0, 24 * 60, 0),
    ("negative", None, -1, 0.1, 0, 0),
]


@pytest.mark.parametrize(("name", "before", "slope", "half", "minutes", "after"), STEPS)
def test_nodes_get_a_new_slope_in_steps(name, before, slope, half, minutes, after):
    known = before and ServiceSlope(
        service=SERVICE, slope_permille=before, observed_ms=START_MS, partition=0, folded_to=0
    )
    found = Estimate(slope=slope / 1_000, half=half, node_hours=9.0, nodes=4, hours=9.0)
    assert next_slope(known, found, START_MS, START_MS + minutes * MINUTE_MS) == after, name


@pytest.mark.parametrize("nodes", [1, 3, 10])
def test_a_cap_that_works_stays_though_best_effort_work_no_longer_varies(nodes: int):
    """Batch work always takes all that the cap allows. Without evidence the cap rises by a step a day."""
    fold, dice, slope = ServiceFold(), random.Random(2), 1.4
    known, caps, offset = list[int](), list[float](), 0
    for number in range(4 * 24 * 60):
        cap = 0.95 if fold.published is None else min(0.95, 0.223 / (fold.published.slope_permille / 1_000))
        asked = dice.random() if number < 12 * 60 else 1.0
        for node in range(nodes):
            x = min(cap, asked) * dice.uniform(0.995, 1)
            z = 0.3 + dice.gauss(0, 0.02)
            one = minute(node=f"node-{node}", at_ms=START_MS + number * MINUTE_MS, x=x, z=z,
                         y=0.2 + slope * x + dice.gauss(0, 0.1))  # fmt: skip
            offset += 1
            fold.take(one, offset)
        fold.slope_out()
        if number >= 8 * 60:
            known.append(fold.published.slope_permille if fold.published else 0)
            caps.append(cap)
    assert min(known) > 0
    assert max(caps) < 2 * 0.223 / slope


def test_a_second_node_does_not_unlearn_what_the_first_showed():
    fold, dice = ServiceFold(), random.Random(4)
    for number in range(3 * 24 * 60):
        nodes = ["node-1", "node-2"] if number >= 36 * 60 else ["node-1"]
        for place, node in enumerate(nodes):
            x = dice.random() * 0.6
            one = minute(node=node, at_ms=START_MS + number * MINUTE_MS, x=x, z=0.3 + dice.gauss(0, 0.02),
                         y=0.2 + (1.0 + 0.15 * place) * x + dice.gauss(0, 0.1))  # fmt: skip
            fold.take(one, 2 * number + place)
        fold.slope_out()
        assert number < 24 * 60 or fold.published is not None


def test_a_slope_names_the_minutes_behind_it():
    fold = ServiceFold()
    for offset, one in enumerate(World(nodes=20).minutes(2 * HOUR_MS)):
        fold.take(one, offset)
    change = fold.slope_out(7)
    assert change is not None
    assert change.slope == ServiceSlope(
        service=SERVICE,
        slope_permille=fold.profile().slope_permille,
        observed_ms=START_MS + 2 * HOUR_MS,
        partition=7,
        folded_to=20 * 120 - 1,
    )
    assert (fold.profile().published, fold.slope_out(7)) == (change.slope, None)


# Any records that the schemas allow.

EXTREMES = st.integers(0, COUNT_MAX) | st.sampled_from([0, 1, 60_000_000, COUNT_MAX])
USUAL = st.builds(
    minute,
    node=st.sampled_from(["a", "b", "c"]),
    at_ms=st.integers(0, 600).map(lambda number: START_MS + number * 20_000),
    x=st.floats(0, 1.6),
    y=st.floats(0, 4),
    z=st.floats(0, 1.6),
)
ANY = st.builds(
    ServiceMinute,
    service=st.just(SERVICE),
    node=st.sampled_from(["a", "b", "c", ""]),
    observed_ms=st.integers(0, TIME_MS_MAX),
    span_ms=st.integers(0, TIME_MS_MAX) | st.sampled_from([10_000, 60_000, 600_000]),
    pods=EXTREMES,
    run_us=EXTREMES,
    wait_us=EXTREMES,
    mem_wait_us=EXTREMES,
    be_cpu_us=EXTREMES,
    ls_cpu_us=EXTREMES,
    cpus=st.integers(1, CPUS_MAX),
)
LOGS = st.lists(USUAL | USUAL | ANY, max_size=120)


def _readable(profile: ServiceProfile) -> ServiceProfile:
    return decode(encode(profile), ServiceProfile)


@given(LOGS, st.data())
def test_any_minutes_leave_a_profile_that_can_be_read_and_folding_again_changes_nothing(log, data):
    fold = ServiceFold()
    for offset, one in enumerate(log):
        fold.take(one, offset)
        if data.draw(st.booleans()):
            fold.slope_out()
    profile = fold.profile()
    assert _readable(profile) == profile
    again = data.draw(st.integers(0, len(log)))
    for offset in range(again, len(log)):
        assert fold.take(log[offset], offset) != "folded"
    assert fold.profile() == profile


@given(LOGS, st.data())
def test_killed_anywhere_the_profile_comes_to_the_same(log, data):
    whole = ServiceFold()
    for offset, one in enumerate(log):
        whole.take(one, offset)
    published = data.draw(st.integers(0, len(log)))
    first = ServiceFold()
    for offset in range(published):
        first.take(log[offset], offset)
    second = ServiceFold(_readable(first.profile()) if published else None)
    for offset in range(data.draw(st.integers(0, published)), len(log)):
        second.take(log[offset], offset)
    assert second.profile() == whole.profile()


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-3, 3) | st.floats(0, 500)
TERMS = NUMBERS.filter(lambda number: abs(number) <= 1e308)
SUMS = st.builds(
    NodeSums,
    node=st.sampled_from(["a", "b", "c", "d", "e"]),
    until_ms=st.integers(0, TIME_MS_MAX) | st.just(START_MS),
    minutes=st.floats(0, 2.0**50) | st.floats(30, 600),
    **dict.fromkeys(["mean_x", "mean_y", "mean_z", "xx", "xy", "xz", "yy", "yz", "zz"], TERMS),
)


@given(st.lists(SUMS, max_size=5), LOGS)
def test_any_profile_that_can_be_read_can_be_folded(sums, log):
    known = ServiceProfile(
        service=SERVICE, observed_ms=START_MS, folded_to=-1, folded_from=0, status="learned", sums=sums
    )
    fold = ServiceFold(known)
    for offset, one in enumerate(log):
        fold.take(one, offset)
    fold.slope_out()
    assert _readable(fold.profile()) == fold.profile()
