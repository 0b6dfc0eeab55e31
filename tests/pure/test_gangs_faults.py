"""Replicas of the extender that are killed at any record, read late and twice, while Kafka comes and goes."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.gang.membership import MODE
from testbed.gang_world import WHOLE, GangWorld, Watched

SETTLED_S = 60.0


def story(world: GangWorld) -> None:
    """Two gangs on room for one; the first ends; a group of two and a pod alone come."""
    world.gang("a", 4), world.gang("b", 4)
    world.run(25)
    first = sorted({name[0] for name in world.bound()})
    assert len(first) == 1, world.bound()
    assert len(world.bound()) == 4
    for name in [name for name in world.pods if name[0] == first[0]]:
        world.delete(name)
    world.run(40)
    assert {name[0] for name in world.bound()} == {"a", "b"} - set(first)
    assert len(world.bound()) == 4
    world.gang("c", 2, annotations={MODE: "NonStrict"})
    world.pod("loner", gated=False)
    world.run(40)
    for name in sorted(world.bound()):
        if name[0] in "ab":
            world.delete(name)
    world.run(40)


def told(kill_at: int | None) -> GangWorld:
    world = Watched("a", "b", nodes=3, batch=2_000)
    world.records_left = kill_at
    story(world)
    return world


UNDISTURBED = told(None)


def test_the_story_has_plans_and_reasons() -> None:
    assert {one.reason for one in UNDISTURBED.log} >= {"", "bound", "gang_no_room"}
    assert sorted(UNDISTURBED.bound()) == ["c-0", "c-1", "loner"]


@pytest.mark.parametrize("kill_at", range(len(UNDISTURBED.topic)))
def test_killed_after_any_record_it_ends_as_if_it_had_not_been(kill_at: int) -> None:
    world = told(kill_at)
    assert sorted(world.bound()) == sorted(UNDISTURBED.bound())
    settled(world)


def settled(world: GangWorld) -> None:
    for replica in world.replicas.values():
        replica.catch_up()
        unbound = [uid for uid in replica.view._assumed if uid.removeprefix("uid-") not in world.bound()]
        assert not unbound, f"{replica.name} still holds places for {unbound}"
        assert not replica.answers.gangs.count()["gang_planned"]


@given(seed=st.integers(0, 2**32), faults=st.sampled_from([0.0, 0.1, 0.4]))
def test_with_kills_delays_doubles_and_outages_each_gang_starts_whole_or_not_at_all(seed: int, faults: float) -> None:
    chance = random.Random(seed)
    world = Watched("a", "b", "c", nodes=3)
    world.lag = lambda: chance.randrange(4) if chance.random() < faults else WHOLE
    world.repeats = lambda: chance.randrange(1, 4) if chance.random() < faults else 0
    sizes = {}
    for number in range(4):
        name = f"g{number}"
        sizes[name] = chance.randint(1, 5)
        world.gang(name, sizes[name], gated=chance.random() < 0.7, cpu=chance.choice(["1000", "2000"]))
        if chance.random() < faults:
            world.records_left = chance.randrange(5)
        if chance.random() < faults:
            world.lead = chance.choice("abc")
        if chance.random() < faults / 2:
            world.away = []
        if chance.random() < faults:
            world.offers(chance.choice(world.nodes), chance.choice([1_000, 4_000]))
        world.run(chance.choice([0.5, 3, 12]))
        if world.away is not None:
            world.back()
    world.lag, world.repeats, world.records_left = (lambda: WHOLE), (lambda: 0), None
    for node in world.nodes:
        world.offers(node, 4_000)
    world.run(SETTLED_S)
    # A node may shrink after the first pod was bound: nothing is taken back then.
    sizes_of_plans = {(plan.group, plan.plan, len(plan.places)) for plan in world.log if plan.places}
    plans = Counter((group, plan) for group, plan, _ in sizes_of_plans)
    lost = {group for (group, _), count in plans.items() if count > 1}
    for name, size in sizes.items():
        started = sum(one.startswith(f"{name}-") for one in world.bound())
        assert started in {0, size} or f"batch/{name}" in lost, f"{started} of {size} pods of {name} have started"
    settled(world)
