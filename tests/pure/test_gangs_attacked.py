"""Gangs whose pods, options, nodes and records are as bad as they can be."""

import json

import pytest

from slacktide.agents.cluster.scheduler.gang_group import NAMED_MAX
from slacktide.streams.decisions.gang.membership import LEAST, MODE, NAME, TOGETHER, WAITING, options_of_group
from testbed.gang_world import GangWorld
from testbed.scheduler_pods import parsed

MESSAGE_MAX = 1_024
"""Characters of an Event's note."""


def plan_of(world: GangWorld, gang: str, pods: int, **given: object) -> None:
    """A gang with a plan of which no pod was bound yet."""
    world.gang(gang, pods, gated=False, **given)  # type: ignore[arg-type]
    lead = world.replicas[world.lead]
    lead.answers.gangs.ask(parsed(world.pods[f"{gang}-0"]), world.nodes, lead.now)
    lead.catch_up()
    assert lead.answers.gangs.count()["gang_planned"] == 1


def reasons(world: GangWorld) -> list[str]:
    return [one.reason for one in world.log]


@pytest.mark.parametrize(
    "name",
    ["a,batch/b", "a/b", "x" * 254, "x" * 100_000, ",", "a\nb", " "],
    ids=lambda name: f"{name[:8]!r} of {len(name)}",
)
def test_a_gang_whose_name_is_none_is_invalid_and_touches_no_other(name: str) -> None:
    world = GangWorld()
    together = {TOGETHER: '["batch/a","batch/b"]'}
    world.pod("odd", name, 1, gated=False)
    assert not world.try_pod("odd")
    assert "gang_invalid" in world.refused["odd"]
    assert len(world.refused["odd"]) <= MESSAGE_MAX
    world.gang("a", 1, annotations=together), world.gang("b", 1, annotations=together)
    world.run(5)
    assert sorted(world.bound()) == ["a-0", "b-0"]


def test_a_gang_of_the_longest_name_starts() -> None:
    world = GangWorld()
    world.pod("p", "x" * 253, 1)
    world.run(5)
    assert world.bound()


@pytest.mark.parametrize(
    "groups",
    [
        ["batch/g,batch/h"],
        ["batch/g", "batch/h,batch/i"],
        ["batch/g", "batch"],
        ["batch/g", ""],
        ["batch/g", *(f"batch/{'y' * 200}-{number}" for number in range(1_000))],
        ["other/victim"],
    ],
    ids=lambda groups: str(groups)[:30],
)
def test_groups_that_are_none_are_invalid_in_few_words(groups: list[str]) -> None:
    world = GangWorld()
    world.pod("g-0", "g", 1, gated=False, annotations={TOGETHER: json.dumps(groups)})
    assert not world.try_pod("g-0")
    assert "gang_invalid" in world.refused["g-0"]
    assert len(world.refused["g-0"]) <= MESSAGE_MAX
    world.run(15)
    assert all(len(plan.why) <= MESSAGE_MAX and len(plan.group) < 65_536 for plan in world.log)
    assert {key for key, _ in world.topic} == {"batch/g"}


@pytest.mark.parametrize("text", ["[" * 100_000, '["batch/g"', "{}", "7", "[1,2]", '"batch/g"', "[]"])
def test_groups_that_cannot_be_read_are_the_gang_alone(text: str) -> None:
    world = GangWorld()
    world.pod("g-0", "g", 1, annotations={TOGETHER: text})
    world.run(5)
    assert world.bound()


def test_a_group_of_many_gangs_that_do_not_exist_waits_in_few_words() -> None:
    world = GangWorld()
    groups = ["batch/g", *(f"batch/h-{number}" for number in range(90))]
    world.gang("g", 2, gated=False, annotations={TOGETHER: json.dumps(groups)})
    assert not world.try_pod("g-0")
    assert "gang_forming" in world.refused["g-0"]
    assert len(world.refused["g-0"]) <= MESSAGE_MAX


def test_the_largest_minimum_waits_and_says_so() -> None:
    world = GangWorld()
    world.gang("g", 2, least=2_147_483_647, gated=False)
    assert not world.try_pod("g-0")
    assert "gang_forming: 2 of 2147483647 pods of gang batch/g exist" in world.refused["g-0"]
    world.run(15)
    assert reasons(world) == ["gang_forming"]


@pytest.mark.parametrize("time", ["1ns", "0s", "-5s", "1s", "9" * 300 + "h", "1e9s"])
def test_any_waiting_time_lets_a_gang_start(time: str) -> None:
    world = GangWorld()
    world.gang("g", 3, annotations={WAITING: time})
    world.run(10)
    assert len(world.bound()) == 3


def test_a_gang_with_a_pod_behind_another_gate_says_how_many_can_be_placed() -> None:
    world = GangWorld()
    world.pod("g-0", "g", 2, gated=False)
    world.pod("g-1", "g", 2, schedulingGates=[{"name": "example.com/quota"}])
    assert not world.try_pod("g-0")
    assert "gang_forming: 1 of 2 pods of gang batch/g can be placed" in world.refused["g-0"]


def test_a_strict_gang_that_lost_a_place_starts_no_other_pod() -> None:
    """The end of its plan is not read back yet when the next pod asks."""
    world = GangWorld(batch=2_000)
    plan_of(world, "g", 4)
    world.offers("n1", 0)
    lost = next(place.name for place in world.log[0].places if place.node == "n1")
    other = next(place.name for place in world.log[0].places if place.node == "n0")
    assert not world.try_pod(lost)
    assert not world.try_pod(other)
    world.run(30)
    assert not world.bound()


def test_a_pod_that_leaves_for_another_gang_takes_its_place_along() -> None:
    world = GangWorld(nodes=1)
    plan_of(world, "g", 2)
    world.pods["g-1"]["metadata"]["annotations"] |= {NAME: "h", LEAST: "2"}
    world.bind("g-1", "")
    world.tick()
    assert "broken" in reasons(world)
    assert not world.try_pod("g-0")
    world.run(60)
    assert not world.bound()
    assert not world.replicas["a"].view.counts(world.clock.now_s)[2], "no place is held"


def test_a_pod_group_that_is_deleted_and_made_anew_within_a_plan_changes_nothing() -> None:
    world = GangWorld("a", "b", nodes=1)
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}

    def group(least: int | None) -> None:
        for one in world.replicas.values():
            options = None if least is None else options_of_group("batch/g", least, None, {}, {})
            one.answers.gangs.take_options("pod_group", "batch/g", options)

    group(3)
    for number in range(3):
        world.pod(f"g-{number}", labels=labels)
    world.tick()
    assert world.try_pod("g-0")
    group(None)
    world.run(1)
    group(4)
    world.run(30)
    assert len(world.bound()) == 3


def test_a_group_that_changes_within_a_plan_holds_no_places_for_the_old_one() -> None:
    world = GangWorld(nodes=1)
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    gangs = world.replicas["a"].answers.gangs
    gangs.take_options("pod_group", "batch/g", options_of_group("batch/g", 2, None, {}, {}))
    for number in range(2):
        world.pod(f"g-{number}", labels=labels, gated=False)
    gangs.ask(parsed(world.pods["g-0"]), world.nodes, world.replicas["a"].now)
    world.tick()
    more = {TOGETHER: '["batch/g","batch/h"]'}
    gangs.take_options("pod_group", "batch/g", options_of_group("batch/g", 2, None, more, {}))
    world.run(80)
    assert not world.bound()
    assert not world.replicas["a"].view.counts(world.clock.now_s)[2], "no place is held"
    assert gangs.count() == {"gang_forming": 1}


def test_a_request_for_a_deleted_pod_does_not_bring_it_back() -> None:
    """A kube-scheduler sees a deletion a moment later than the extender does."""
    world = GangWorld()
    world.gang("g", 3, gated=False)
    late = world.pods["g-2"]
    world.delete("g-2")
    world.replicas["a"].filter(late, world.nodes)
    world.run(30)
    assert not world.bound()
    assert "2 of 3 pods" in world.refused["g-0"]


def test_a_pod_that_is_unknown_yet_counts_when_it_asks() -> None:
    world = GangWorld()
    world.gang("g", 1, least=2, gated=False)
    other = world.pod("g-1", "g", 2, gated=False)
    world.delete("g-1")
    other["metadata"]["uid"] = "new"
    assert world.replicas["a"].filter(other, world.nodes)["NodeNames"]


@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_pods_that_are_deleted_together_leave_a_plan_in_one_record(mode: str) -> None:
    world = GangWorld(nodes=1, batch=8_000)
    plan_of(world, "g", 7, annotations={MODE: mode})
    for number in range(1, 7):
        world.delete(f"g-{number}")
    before = len(world.topic)
    world.tick()
    assert len(world.topic) == before + 1


def test_a_nominated_node_that_is_tried_first_breaks_no_plan() -> None:
    world = GangWorld()
    plan_of(world, "g", 2)
    node = next(place.node for place in world.log[0].places if place.name == "g-0")
    other = next(one for one in world.nodes if one != node)
    world.offers(other, 0)
    world.pods["g-0"]["status"]["nominatedNodeName"] = other
    world.bind("g-0", "")
    assert not world.try_pod("g-0", [other])
    assert world.try_pod("g-0") == node


def test_where_the_nominated_node_is_the_only_one_it_is_taken_when_it_is_offered_twice() -> None:
    world = GangWorld(nodes=1)
    world.gang("g", 1, gated=False)
    world.pods["g-0"]["status"]["nominatedNodeName"] = "n0"
    world.bind("g-0", "")
    assert not world.try_pod("g-0")
    assert world.try_pod("g-0") == "n0"


def test_a_plan_is_not_made_again_from_nodes_that_are_no_longer_offered() -> None:
    world = GangWorld(nodes=2, batch=2_000)
    plan_of(world, "g", 4)
    gone = world.log[0].places[0].node
    world.nodes.remove(gone)
    world.run(20)
    assert not world.bound()
    assert len([one for one in world.log if one.places]) <= 2
    world.nodes.append(gone)
    world.run(30)
    assert len(world.bound()) == 4


@pytest.mark.parametrize(("nodes", "started"), [(2, 0), (3, 4)])
def test_a_node_that_is_lost_after_the_plan_is_noticed_before_anything_is_bound(nodes: int, started: int) -> None:
    world = GangWorld(nodes=nodes, batch=2_000)
    plan_of(world, "g", 4)
    asks = world.log[0].places[0]
    gone = next(place.node for place in world.log[0].places if place.node != asks.node)
    world.nodes.remove(gone)
    world.try_pod(asks.name)
    world.run(40)
    assert len(world.bound()) == started
    assert gone not in world.bound().values()


def test_pods_that_keep_apart_do_not_move_to_a_node_of_their_plan() -> None:
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "g"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    world = GangWorld(nodes=4)
    plan_of(world, "g", 3, affinity=affinity, labels={"app": "g"})
    gone = next(place.node for place in world.log[0].places if place.name == "g-0")
    world.nodes.remove(gone)
    world.run(30)
    assert len(set(world.bound().values())) == 3


def test_what_was_given_up_while_kafka_was_away_starts_nothing_when_it_comes_late() -> None:
    world = GangWorld("a", "b", nodes=1)
    world.gang("g", 3)
    world.away = []
    world.run(20)
    assert not world.bound()
    assert len(world.away) > 2
    first, *later = world.away
    world.away = None
    world.topic.append(first)
    world.replicas["a"].catch_up()
    assert world.replicas["a"].answers.gangs.tick(world.replicas["a"].now).release == []
    world.topic += later
    world.run(30)
    assert len(world.bound()) == 3


def test_a_plan_whose_end_cannot_be_written_holds_no_places_after_its_deadline() -> None:
    world = GangWorld(nodes=1, batch=2_000)
    plan_of(world, "g", 2, annotations={WAITING: "20s"})
    world.away = []
    world.passes(21)
    world.tick()
    world.pod("other", cpu="2000", gated=False)
    assert world.try_pod("other")


def test_a_record_that_comes_twice_brings_no_plan_back() -> None:
    world = GangWorld("a", "b", nodes=1)
    world.gang("g", 2)
    world.run(5)
    world.delete("g-0"), world.delete("g-1")
    world.topic += [one for one in world.topic if one[1] is not None and one[1].places][:1]
    for one in world.replicas.values():
        one.catch_up()
        assert not one.answers.gangs.count()["gang_planned"]


def test_a_long_list_of_waiting_pods_is_cut() -> None:
    world = GangWorld()
    world.gang("g", 150, least=151)
    world.run(3)
    assert len(world.log[-1].waiting) == NAMED_MAX
