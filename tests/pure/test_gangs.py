"""Pods of a gang start together or not at all: what the extender answers, releases, wakes and writes."""

import pytest

from slacktide.agents.cluster.scheduler.gang_group import Held
from slacktide.streams.decisions.gang.membership import MATCH, MODE, TOGETHER, options_of_group
from testbed.gang_world import GangWorld
from testbed.scheduler_pods import parsed


def test_a_complete_gang_is_released_one_pod_asks_and_all_get_their_places() -> None:
    world = GangWorld()
    names = world.gang("g", 3)
    assert world.tick() == (["g-0"], [])
    assert world.try_pod("g-0")
    assert world.tick()[0] == ["g-1", "g-2"]
    world.run(5)
    assert sorted(world.bound()) == names


def test_an_incomplete_gang_waits_and_says_how_many_pods_exist() -> None:
    world = GangWorld()
    world.gang("g", 2, least=3, gated=False)
    assert not world.try_pod("g-0")
    assert "gang_forming: 2 of 3 pods of gang batch/g exist" in world.refused["g-0"]
    world.pod("g-2", "g", 3)
    world.run()
    assert len(world.bound()) == 3


def test_of_two_gangs_that_fit_only_one_exactly_one_runs_and_the_other_holds_nothing() -> None:
    world = GangWorld(nodes=3, batch=2_000)
    first, second = world.gang("a", 4), world.gang("b", 4)
    world.run()
    assert sorted(world.bound()) == first
    assert "gang_no_room: places for 2 of 4 pods of gang batch/b" in world.refused["b-0"]
    assert "batch_short:cpu" in world.refused["b-0"]
    assert [world.pods[name]["spec"]["schedulingGates"] for name in second[1:]] == [[{"name": "slacktide.io/gang"}]] * 3
    for name in first:
        world.delete(name)
    world.run()
    assert sorted(world.bound()) == second


def test_a_plan_leaves_no_room_for_others_before_its_pods_are_bound() -> None:
    world = GangWorld(nodes=1, batch=4_000)
    world.gang("g", 4)
    world.tick()
    assert world.try_pod("g-0")
    world.pod("other", gated=False)
    assert not world.try_pod("other")
    assert "batch_short:cpu: pod requests 1000m, but only 0m is free" in world.refused["other"]


def test_what_is_planned_counts_by_kubernetes_own_figures_too() -> None:
    """Production pods of 3 CPUs: by its load, a node takes more of them than by Kubernetes' own figures."""
    world = GangWorld(nodes=2)
    for node in world.nodes:
        world.has(node, cpu_milli=4_000)
    requests = {"requests": {"cpu": "3", "memory": "1Gi"}}
    containers = [{"name": "main", "resources": requests}]
    world.gang("g", 3, gated=False, containers=containers, priority=9500)
    assert not world.try_pod("g-0")
    assert "places for 2 of 3 pods" in world.refused["g-0"]
    assert "unrequested_short:cpu: pod requests 3000m, but only 1000m is free" in world.refused["g-0"]


def test_pods_that_keep_apart_get_a_node_each() -> None:
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "g"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    world = GangWorld(nodes=3)
    world.gang("g", 3, affinity=affinity, labels={"app": "g"})
    world.run(5)
    assert sorted(world.bound().values()) == world.nodes
    world.gang("h", 4, gated=False, affinity=affinity, labels={"app": "g"})
    assert not world.try_pod("h-0")
    assert "gang_no_room: places for 3 of 4" in world.refused["h-0"]


def test_each_shape_asks_before_there_is_a_plan() -> None:
    world = GangWorld()
    world.pod("driver", "g", 3, cpu="2000")
    for number in range(2):
        world.pod(f"worker-{number}", "g", 3)
    assert world.tick()[0] == ["driver", "worker-0"]
    assert not world.try_pod("driver")
    assert "gang_probing" in world.refused["driver"]
    assert world.try_pod("worker-0")
    assert world.tick() == (["worker-1"], ["driver"])
    world.run(5)
    assert len(world.bound()) == 3


def test_a_planned_pod_whose_node_was_lost_moves_to_another() -> None:
    world = GangWorld(nodes=2)
    world.gang("g", 2)
    world.tick()
    first = world.try_pod("g-0")
    world.tick()
    planned = world.log[-1].places[1].node
    other = next(node for node in world.nodes if node != planned)
    assert world.try_pod("g-1", [other]) == other
    assert first


@pytest.mark.parametrize(("mode", "kept"), [("Strict", False), ("NonStrict", True)])
def test_a_plan_that_lost_a_node_before_anything_was_bound_ends_if_its_gang_is_strict(mode: str, *, kept: bool) -> None:
    world = GangWorld(nodes=2, batch=2_000)
    world.gang("g", 4, gated=False, annotations={MODE: mode})
    held = world.replicas["a"]
    held.answers.gangs.ask(parsed(world.pods["g-0"]), world.nodes, held.now)
    world.tick()
    world.offers("n1", 0)
    on_n1 = next(place.name for place in world.log[0].places if place.node == "n1")
    assert not world.try_pod(on_n1)
    world.tick()
    assert (held.answers.gangs.count()["gang_planned"] == 1) == kept
    assert ("broken" in [record.reason for record in world.log]) != kept


def test_once_satisfied_a_later_pod_is_judged_alone() -> None:
    world = GangWorld()
    world.gang("g", 2)
    world.run(5)
    world.delete("g-0")
    world.pod("g-3", "g", 2)
    world.run(5)
    assert sorted(world.bound()) == ["g-1", "g-3"]


@pytest.mark.parametrize(("policy", "reason"), [("waiting-and-running", ""), ("only-waiting", "gang_forming")])
def test_with_other_policies_bound_pods_count_or_do_not(policy: str, reason: str) -> None:
    world = GangWorld()
    world.gang("g", 2, annotations={MATCH: policy})
    world.run(5)
    world.pod("late", "g", 2, gated=False, annotations={MATCH: policy})
    world.run(5)
    assert ("late" in world.bound()) == (not reason)


def test_gangs_of_a_group_start_together() -> None:
    world = GangWorld(nodes=1, batch=4_000)
    together = {TOGETHER: '["batch/a","batch/b"]'}
    world.gang("a", 2, annotations=together)
    world.run(3)
    assert not world.bound()
    world.gang("b", 2, annotations=together)
    world.run(5)
    assert len(world.bound()) == 4


def test_gangs_that_list_unlike_groups_are_invalid() -> None:
    world = GangWorld()
    world.gang("a", 1, gated=False, annotations={TOGETHER: '["batch/a","batch/b"]'})
    world.gang("b", 1, gated=False)
    assert not world.try_pod("a-0")
    assert "gang_invalid: gang batch/b: its groups are batch/b, not batch/a,batch/b" in world.refused["a-0"]
    assert world.try_pod("b-0")


@pytest.mark.parametrize("least", ["0", "-1", "two", "2147483648"])
def test_a_gang_without_a_valid_minimum_starts_nothing(least: str) -> None:
    world = GangWorld()
    world.pod("g-0", "g", least, gated=False)
    assert not world.try_pod("g-0")
    assert "gang_invalid: gang batch/g: annotation gang.scheduling.koordinator.sh/min-available" in world.refused["g-0"]


def test_the_pods_of_a_pod_group_wait_until_it_exists() -> None:
    world = GangWorld()
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    for number in range(2):
        world.pod(f"g-{number}", labels=labels, gated=number > 0)
    assert not world.try_pod("g-0")
    assert "gang_forming: PodGroup batch/g does not exist" in world.refused["g-0"]
    gangs = world.replicas["a"].answers.gangs
    gangs.take_options("pod_group", "batch/g", options_of_group("batch/g", 2, 30, {}, {}))
    world.run(30)
    assert len(world.bound()) == 2
    assert world.log[0].deadline_ms <= world.log[0].decided_ms + 600_000


def test_a_gang_does_not_begin_before_the_cluster_has_its_least_resources_free() -> None:
    """The nodes have 8 CPUs; a pod of another workload requests half a CPU."""
    world = GangWorld()
    for node in world.nodes:
        world.has(node, cpu_milli=4_000)
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    for number in range(2):
        world.pod(f"g-{number}", labels=labels, gated=False)
    gangs = world.replicas["a"].answers.gangs
    gangs.take_options("pod_group", "batch/g", options_of_group("batch/g", 2, 30, {}, {"cpu": "8", "memory": "1Mi"}))
    container = {"name": "main", "resources": {"requests": {"cpu": "500m"}}}
    world.pod("other", gated=False, containers=[container])
    assert world.try_pod("other")
    world.run(30)
    assert list(world.bound()) == ["other"]
    assert (
        "gang_min_resources: minResources asks for 8000 milli of cpu, and all nodes together have 7500"
        in world.refused["g-0"]
    )
    world.delete("other")
    world.run(30)
    assert sorted(world.bound()) == ["g-0", "g-1"]


def test_a_native_gang_is_left_to_kubernetes_and_its_place_is_free_after_half_a_minute() -> None:
    world = GangWorld(nodes=1, batch=1_000)
    native = {"schedulingGroup": {"podGroupName": "g"}}
    world.pod("g-0", gated=False, **native)
    world.replicas["a"].filter(world.pods["g-0"], world.nodes)
    world.pod("other", gated=False)
    assert not world.try_pod("other")
    world.passes(31)
    assert world.try_pod("other")


def test_a_plan_ends_at_its_deadline_and_its_places_are_free() -> None:
    world = GangWorld(nodes=1, batch=2_000)
    world.gang("g", 2, gated=False, annotations={"gang.scheduling.koordinator.sh/waiting-time": "20s"})
    lead = world.replicas["a"]
    assert not isinstance(lead.filter(world.pods["g-0"], world.nodes), Held)
    world.passes(21)
    world.tick()
    assert world.log[-1].reason == "expired"
    world.delete("g-0"), world.delete("g-1")
    world.pod("other", cpu="2000", gated=False)
    assert world.try_pod("other")


def test_another_gate_keeps_a_pod_and_its_gang() -> None:
    world = GangWorld()
    world.pod("g-0", "g", 2)
    world.pod("g-1", "g", 2, schedulingGates=[{"name": "example.com/quota"}])
    world.run(3)
    assert not world.bound()
    gates = [one["name"] for one in world.pods["g-1"]["spec"]["schedulingGates"]]
    assert gates == ["example.com/quota", "slacktide.io/gang"]
    world.pods["g-1"]["spec"]["schedulingGates"] = [{"name": "slacktide.io/gang"}]
    world.bind("g-1", "")
    world.run(25)
    assert len(world.bound()) == 2


def test_a_restarted_replica_carries_on_a_plan() -> None:
    world = GangWorld("a", "b", nodes=1, batch=3_000)
    world.gang("g", 3)
    world.tick("a")
    assert world.try_pod("g-0")
    world.lead = "b"
    world.tick("b")
    world.pod("other", gated=False)
    assert not world.try_pod("other")
    world.passes(3)
    assert world.tick("b")[0] == ["g-1", "g-2"]
    world.run(5)
    assert sorted(world.bound()) == ["g-0", "g-1", "g-2"]


def test_of_two_plans_that_do_not_fit_together_the_first_in_the_topic_is_in_force() -> None:
    world = GangWorld("a", "b", nodes=3, batch=2_000)
    world.gang("x", 4, gated=False), world.gang("y", 4, gated=False)
    a, b = world.replicas["a"], world.replicas["b"]
    a.answers.gangs.ask(parsed(world.pods["x-0"]), world.nodes, a.now)
    b.answers.gangs.ask(parsed(world.pods["y-0"]), world.nodes, b.now)
    world.tick("a"), world.tick("b")
    assert world.replicas["b"].answers.gangs.count()["gang_planned"] == 1
    world.lead = "a"
    world.run(10)
    assert sorted(world.bound()) == [f"x-{number}" for number in range(4)]


def test_a_pod_bound_behind_the_extenders_back_is_told_and_satisfies_nothing() -> None:
    world = GangWorld()
    world.gang("g", 3, least=3)
    world.delete("g-2")
    world.tick()
    world.bind("g-0", "n0")
    gangs = world.replicas["a"].answers.gangs
    assert [pod.key[1] for pod in gangs.unplanned] == ["g-0"]
    world.pod("g-2", "g", 3)
    world.run(25)
    assert len(world.bound()) == 3


def test_in_a_dry_run_nothing_is_held_back() -> None:
    world = GangWorld()
    world.gang("g", 1, least=5)
    world.replicas["a"].view.dry_run = True
    assert world.tick()[0] == ["g-0"]
    assert world.try_pod("g-0")


def test_a_gang_that_was_made_anew_under_its_name_starts_together_again() -> None:
    world = GangWorld(nodes=1, batch=2_000)
    world.gang("g", 2)
    world.run(5)
    assert len(world.bound()) == 2
    world.delete("g-0"), world.delete("g-1")
    world.gang("g", 3, least=3)
    world.run(30)
    assert not world.bound()


def test_a_group_whose_pods_are_gone_is_forgotten_after_a_minute() -> None:
    world = GangWorld()
    world.gang("g", 2)
    world.run(5)
    world.delete("g-0"), world.delete("g-1")
    world.run(70)
    assert world.topic[-1] == ("batch/g", None)
    assert not world.replicas["a"].answers.gangs._groups


def test_a_plan_is_counted_for_other_pods_by_kubernetes_own_figures_too() -> None:
    """A kube-scheduler knows only pods that it has placed itself."""
    world = GangWorld(nodes=1)
    world.has("n0", cpu_milli=4_000)
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]
    world.gang("g", 2, containers=containers, priority=9500)
    world.tick()
    assert world.try_pod("g-0")
    world.pod("other", gated=False, containers=containers, priority=9500)
    assert not world.try_pod("other")
    assert "unrequested_short:cpu: pod requests 2000m, but only 0m is free" in world.refused["other"]


def test_of_waiting_gangs_the_one_with_the_higher_sub_priority_gets_the_room() -> None:
    world = GangWorld(nodes=1, batch=2_000)
    world.gang("running", 2)
    world.run(5)
    world.gang("a", 2), world.gang("b", 2, labels={"koordinator.sh/priority": "7"})
    world.run(5)
    world.delete("running-0"), world.delete("running-1")
    world.run(30)
    assert sorted(world.bound()) == ["b-0", "b-1"]
