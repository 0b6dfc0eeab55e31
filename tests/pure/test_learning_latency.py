"""A service's latency, where somebody publishes it, is preferred to what its nodes see of stalls."""

import math
import random

import msgspec
import pytest

from slacktide.schemas.service import ServiceSli
from slacktide.streams.learning.fold import ServiceFold
from testbed.service_minutes import HOUR_MS, MINUTE_MS, SERVICE, START_MS, World, minute


def sli(at_ms: int, p99_ms: float, node: str = "", **changes: int | None) -> ServiceSli:
    return msgspec.structs.replace(
        ServiceSli(
            service=SERVICE, node=node, observed_ms=at_ms, span_ms=MINUTE_MS, p99_us=max(1, round(p99_ms * 1_000))
        ),
        **changes,
    )


def learned(hours: int, slope: float, *, by_node: bool, pressure: float = 0.0) -> ServiceFold:
    """Nodes with batch jobs, whose service has 4 ms alone; stalls show ``pressure`` of it."""
    fold, dice = ServiceFold(), random.Random(3)
    nodes = 6
    minutes = list(World(nodes=nodes, slope=lambda _: pressure).minutes(hours * HOUR_MS))
    for offset, one in enumerate(minutes):
        fold.take(one, offset, one.observed_ms)
        x = one.be_cpu_us / (one.span_ms * 1_000 * one.cpus)
        p99_ms = 4 * math.exp(slope * x + dice.gauss(0, 0.2))
        if by_node:
            fold.take_latency(sli(one.observed_ms, p99_ms, one.node), one.observed_ms)
        if offset % nodes == nodes - 1:
            if not by_node:
                lately = minutes[offset + 1 - nodes : offset + 1]
                mean = sum(other.be_cpu_us for other in lately) / sum(o.span_ms * 1_000 * o.cpus for o in lately)
                p99_ms = 4 * math.exp(slope * mean + dice.gauss(0, 0.2))
                fold.take_latency(sli(one.observed_ms, p99_ms), one.observed_ms)
            fold.slope_out()
    return fold


@pytest.mark.parametrize(("by_node", "hours"), [(True, 24), (False, 48)])
@pytest.mark.parametrize("slope", [1.2, 2.5])
def test_the_slope_of_the_latency_is_what_nodes_are_told(by_node: bool, hours: int, slope: float) -> None:  # noqa: FBT001
    """Cache and memory bandwidth make a service slow that never waits for a CPU: stalls show nothing of it."""
    profile = learned(hours, slope, by_node=by_node).profile()

    assert (profile.status, profile.signal) == ("insensitive", "latency")
    assert profile.latency is not None
    assert profile.latency.slope_permille == pytest.approx(1_000 * slope, rel=0.2)
    assert profile.latency.low_permille < 1_000 * slope < profile.latency.high_permille
    assert profile.latency.alone_us == pytest.approx(4_000, rel=0.15)
    assert profile.published is not None
    assert profile.published.slope_permille == pytest.approx(1_000 * slope, rel=0.25)


def test_a_latency_that_minds_nothing_overrules_stalls() -> None:
    profile = learned(24, 0.0, by_node=True, pressure=1.0).profile()

    assert (profile.status, profile.signal) == ("learned", "latency")
    assert profile.latency is not None
    assert profile.latency.status == "insensitive"
    assert profile.published is None


def test_stalls_count_until_the_latency_is_learned() -> None:
    profile = learned(12, 0.0, by_node=False, pressure=1.0).profile()

    assert profile.latency is not None
    assert (profile.latency.status, profile.signal, profile.status) == ("learning", "pressure", "learned")
    assert profile.published is not None


def test_what_was_learned_of_the_latency_outlives_the_worker() -> None:
    fold = learned(24, 0.8, by_node=True)
    profile = fold.profile()
    again = ServiceFold(profile)

    assert again.profile() == profile
    last = sli(profile.observed_ms, 5.0, "node-0")
    assert again.take_latency(last) == "old"
    after = msgspec.structs.replace(last, observed_ms=profile.observed_ms + MINUTE_MS)
    assert again.take_latency(after) == "folded"
    assert again.take_latency(after) == "old"
    again.take(minute(node="node-0", at_ms=after.observed_ms), profile.folded_to + 1)
    found = again.profile().latency
    assert found is not None
    assert found.sums[0].until_ms == after.observed_ms


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "folded"),
        ({"p99_us": 0}, "idle"),
        ({"span_ms": 9_999}, "absurd"),
        ({"observed_ms": START_MS + HOUR_MS}, "early"),
        ({"observed_ms": START_MS - 49 * HOUR_MS}, "old"),
        ({"observed_ms": START_MS + 4 * MINUTE_MS}, "folded"),
    ],
)
def test_a_latency_that_says_nothing_is_ignored(changes: dict[str, int], verdict: str) -> None:
    fold = ServiceFold()
    fold.take(minute(at_ms=START_MS), 0)
    assert fold.take_latency(sli(START_MS, 5.0, "node-1", **changes), START_MS) == verdict
    assert fold.take_latency(sli(START_MS, 5.0, "\n"), START_MS) == "absurd"


def test_the_newest_target_is_kept() -> None:
    fold = ServiceFold()
    for number in range(4):
        fold.take(minute(at_ms=START_MS + number * MINUTE_MS), number)
        fold.take_latency(sli(START_MS + number * MINUTE_MS, 5.0, target_us=1_000 * (number + 8)))

    latency = fold.profile().latency
    assert latency is not None
    assert latency.target_us == 10_000


@pytest.mark.parametrize("span_minutes", [1, 5, 10])
@pytest.mark.parametrize("first", [True, False])
def test_a_latency_is_held_against_its_own_span(span_minutes: int, first: bool) -> None:  # noqa: FBT001
    """Batch jobs come and go within it; ``first``: it is read before the minutes of its span."""
    fold, dice, slope, x = ServiceFold(), random.Random(5), 1.0, 0.0
    loads: list[float] = []
    for number in range(36 * 60):
        x = dice.random() * 0.8 if dice.random() < 0.2 else x
        loads.append(x)
        at_ms = START_MS + number * MINUTE_MS
        measured = minute(at_ms=at_ms, x=x, y=0.1, z=0.3 + dice.gauss(0, 0.02))
        latency = None
        if number % span_minutes == span_minutes - 1:
            mean = sum(loads[-span_minutes:]) / span_minutes
            latency = msgspec.structs.replace(
                sli(at_ms, 4 * math.exp(slope * mean + dice.gauss(0, 0.1)), "node-1"), span_ms=span_minutes * MINUTE_MS
            )
        if latency is not None and first:
            fold.take_latency(latency, at_ms)
        fold.take(measured, number)
        if latency is not None and not first:
            fold.take_latency(latency, at_ms)
    found = fold.profile().latency
    assert found is not None
    assert found.slope_permille == pytest.approx(1_000 * slope, rel=0.1)


def test_nodes_that_are_gone_make_room() -> None:
    fold = ServiceFold()
    for number in range(258):
        at_ms = START_MS + (number > 256) * 25 * HOUR_MS + 1
        for step in range(2):
            fold.take(minute(node=f"node-{number}", at_ms=at_ms + step * MINUTE_MS), 2 * number + step)
            fold.take_latency(sli(at_ms + step * MINUTE_MS, 5.0, f"node-{number}"))
    latency = fold.profile().latency
    assert latency is not None
    assert [one.node for one in latency.sums] == ["node-257"]
