"""Which pod leaves an overloaded node first, and which would find a place on another."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_classify import survey
from slacktide.streams.decisions.load.load_aware_phase import Targets, eviction_order, usage_score, view_of
from testbed.descheduling_cases import amounts, node, pod, policy, random_pod, resources, seeds

WEIGHTS = {"cpu": 1, "memory": 1}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(pod(band="free", priority=9), pod(band="batch", priority=1), id="free before batch"),
        pytest.param(pod(band="batch", priority=9), pod(band="mid", priority=1), id="batch before mid"),
        pytest.param(pod(band="mid", priority=9), pod(band="prod", priority=1), id="mid before prod"),
        pytest.param(pod(qos_label="LS"), pod(priority=1, qos_label="BE"), id="a lower number first, none is 0"),
        pytest.param(pod(priority=-1), pod(), id="also below 0"),
        pytest.param(pod(qos_label="LSR"), pod(kube_qos="Burstable", qos_label="BE"), id="BestEffort before Burstable"),
        pytest.param(
            pod(kube_qos="Burstable", qos_label="LSR"),
            pod(kube_qos="Guaranteed", qos_label="BE"),
            id="Burstable before Guaranteed",
        ),
        pytest.param(
            pod(kube_qos="weird", qos_label="LSR"),
            pod(kube_qos="Guaranteed", qos_label="BE"),
            id="as is an unknown one",
        ),
        pytest.param(
            pod(qos_label="LS"), pod(kube_qos="weird", qos_label="BE"), id="an unknown QoS counts as Burstable"
        ),
        pytest.param(pod(qos_label="BE", costs={"deletion_cost": 9}), pod(qos_label="LS"), id="BE before LS"),
        pytest.param(pod(qos_label="LS", costs={"deletion_cost": 9}), pod(qos_label="LSR"), id="LS before LSR"),
        pytest.param(pod(qos_label="LSR", costs={"deletion_cost": 9}), pod(qos_label="LSE"), id="LSR before LSE"),
        pytest.param(
            pod(qos_label="LSE"), pod(qos_label="SYSTEM", costs={"deletion_cost": 1}), id="LSE and SYSTEM are equal"
        ),
        pytest.param(pod(qos_label="SYSTEM"), pod(qos_label="LSE", costs={"deletion_cost": 1}), id="either way"),
        pytest.param(pod(costs={"deletion_cost": -1, "eviction_cost": 9}), pod(), id="a lower deletion cost first"),
        pytest.param(pod(costs={"eviction_cost": -1}, cpu=None), pod(cpu=100), id="a lower eviction cost first"),
        pytest.param(pod(), pod(costs={"deletion_cost": 1}), id="without a deletion cost it is 0"),
        pytest.param(pod(), pod(costs={"eviction_cost": 1}), id="without an eviction cost, too"),
        pytest.param(pod(costs={"deletion_cost": 0}, created_s=1), pod(), id="not less"),
        pytest.param(pod(costs={"eviction_cost": 0}, created_s=1), pod(), id="nor that"),
        pytest.param(pod(created_s=1), pod(costs={"deletion_cost": 0}), id="not more"),
        pytest.param(pod(created_s=1), pod(costs={"eviction_cost": 0}), id="nor that one"),
        pytest.param(pod(cpu=0), pod(cpu=None, created_s=9), id="with a metric before without"),
        pytest.param(pod(cpu=100), pod(cpu=99, created_s=9), id="what covers the excess better first"),
        pytest.param(pod(created_s=9, name="b"), pod(created_s=8, name="a"), id="newer first"),
        pytest.param(pod(cpu=None, created_s=9), pod(cpu=None, created_s=8), id="also without metrics"),
        pytest.param(pod(name="b", namespace="a"), pod(name="a", namespace="b"), id="equals by namespace"),
        pytest.param(pod(name="a", uid="2"), pod(name="b", uid="1"), id="then by name"),
        pytest.param(pod(uid="1"), pod(uid="2"), id="then by UID"),
    ],
)
def test_who_leaves_first(first, then) -> None:
    for listed in ([first, then], [then, first]):
        assert eviction_order(listed, {"cpu": 100}, WEIGHTS) == [first, then]


# The node is over by 100 millicores.
@pytest.mark.parametrize(
    ("cpu", "score"),
    [
        pytest.param(0, 0, id="nothing"),
        pytest.param(25, 0.25, id="a quarter of the excess"),
        pytest.param(99, 0.99, id="almost all of it"),
        pytest.param(100, 2, id="just all of it"),
        pytest.param(200, 1.5, id="twice the excess"),
        pytest.param(400, 1.25, id="four times"),
    ],
)
def test_the_best_victim_just_covers_the_excess(cpu: int, score: float) -> None:
    assert usage_score({"cpu": cpu}, {"cpu": 100}, WEIGHTS) == score


@pytest.mark.parametrize(
    ("used", "excess", "weights", "score"),
    [
        pytest.param({"cpu": 50, "memory": 10}, {"cpu": 100, "memory": 100}, {"cpu": 3, "memory": 1}, 0.4, id="mean"),
        pytest.param({"cpu": 50, "memory": 10}, {"cpu": 100}, WEIGHTS, 0.5, id="only what the node is over in"),
        pytest.param({"cpu": 50}, {"cpu": 100, "memory": 100}, WEIGHTS, 0.5, id="only what the metric has"),
        pytest.param({"cpu": 50, "memory": 10}, {"cpu": 100, "memory": 100}, {"memory": 2}, 0.1, id="only with weight"),
        pytest.param({"cpu": 50}, {"cpu": 100}, {}, 0, id="no weights"),
        pytest.param({"cpu": 50}, {"cpu": 100}, {"cpu": 0}, 0, id="no weight"),
        pytest.param({"cpu": 50}, {"memory": 100}, WEIGHTS, 0, id="not over in what the pod uses"),
        pytest.param({}, {"cpu": 100}, WEIGHTS, 0, id="an empty metric"),
    ],
)
def test_the_score_is_a_weighted_mean(used: dict, excess: dict, weights: dict, score: float) -> None:
    assert usage_score(used, excess, weights) == pytest.approx(score)


def test_a_label_that_names_no_class_hides_the_number() -> None:
    """Priority 5500 is batch; under the label "bogus" the QoS class decides, and that is production here."""
    bogus = pod("a", priority_class_label="bogus", priority=5_500, qos_label="LS")

    assert eviction_order([bogus, pod("b", band="mid")], {}, {})[-1] == bogus


@given(seeds)
def test_the_order_pods_are_listed_in_does_not_matter(of: Random) -> None:
    listed = [random_pod(of, f"pod-{number}") for number in range(9)]
    shuffled = of.sample(listed, len(listed))

    assert eviction_order(shuffled, {"cpu": 100}, WEIGHTS) == eviction_order(listed, {"cpu": 100}, WEIGHTS)


def targets(*nodes, kind: str = "whole") -> Targets:
    """Nodes that are under 30 percent of their CPU, and may be filled up to 60; of all memory."""
    seen = survey(nodes, policy((30, 60), (30, 40)))
    return Targets([(one.node, view_of(one, kind)) for one in seen.classes["both_low"]])


@pytest.mark.parametrize(
    ("one", "fits"),
    [
        pytest.param(pod(cpu=400), True, id="up to the high threshold"),
        pytest.param(pod(cpu=401), False, id="not above it"),
        pytest.param(pod(memory=1_000), True, id="of any watched resource"),
        pytest.param(pod(memory=1_001), False, id="nor above that"),
        pytest.param(pod(cpu=None), False, id="a pod without a metric"),
        pytest.param(pod(requests={"cpu": 700}), True, id="all that is not requested"),
        pytest.param(pod(requests={"cpu": 701}), False, id="more than that"),
        pytest.param(pod(requests={"cpu": 700, "memory": 1_001}), False, id="more than that of one resource"),
        pytest.param(pod(requests={"example.com/gpu": 1}), False, id="a resource the node does not have"),
        pytest.param(pod(requests={"example.com/gpu": 0}), True, id="none of a resource the node does not have"),
        pytest.param(pod(requests={"full": 0}), True, id="none of a resource that is used up"),
        pytest.param(pod(requests={"full": 1}), False, id="some of a resource that is used up"),
        pytest.param(pod(requests={"overfull": 0}), False, id="even none of what is promised twice"),
    ],
)
def test_a_place_needs_free_requests_and_room_below_the_high_thresholds(one, fits: bool) -> None:  # noqa: FBT001
    running = pod("running", 200, requests={"cpu": 200, "full": 5, "overfull": 6}, phase="Running")
    pending = pod("pending", 0, requests={"cpu": 100}, phase="Pending")
    ended = pod("ended", 0, requests={"cpu": 500}, phase="Succeeded")

    assert targets(node("a", running, pending, ended, full=5, overfull=5)).take(one) is fits


def test_a_node_that_lacks_a_resource_has_none_of_it() -> None:
    """Another one has promised what it lacks; nobody has more than nothing."""
    lacking, promising = node("a"), node("b", pod("x", requests={"odd": 1}))
    careful = node("b", pod("x", requests={"odd": 0}))
    wants_none = pod(requests={"odd": 0})

    assert not targets(promising).take(wants_none)
    assert targets(careful).take(wants_none)
    assert targets(lacking, promising).take(wants_none)
    assert targets(promising, replace(lacking, name="c")).take(wants_none)


def test_what_a_metric_does_not_tell_is_not_used() -> None:
    places = targets(node("a"))

    assert places.take(replace(pod(), used={}))
    assert places.take(pod(cpu=600, memory=1_000))
    assert places.take(replace(pod(), used={}))
    assert not places.take(pod(cpu=1))
    assert not places.take(pod(memory=1))


def test_a_node_over_its_high_threshold_takes_not_even_what_uses_nothing() -> None:
    """It is under its low threshold, which the operator set above the high one."""
    (full,) = survey([node("a", system=101)], policy((30, 10))).classes["both_low"]

    assert not Targets([(full.node, full.whole)]).take(replace(pod(), used={}))


def test_usage_of_what_is_watched_counts_even_where_nobody_may_request_it() -> None:
    by = replace(policy(), whole=replace(policy().whole, low={"example.com/gpu": 30}, high={"example.com/gpu": 60}))
    seen = survey([node("a")], by)
    places = Targets([(one.node, one.whole) for one in seen.classes["both_low"]])

    assert not places.take(replace(pod(), used={"example.com/gpu": 1}))
    assert places.take(pod())


def test_what_pods_may_request_is_not_the_capacity_that_percents_are_of() -> None:
    amplified = node("a", cpu=2_000, capacity={"cpu": 1_000, "memory": 1_000})

    assert targets(amplified).take(pod(requests={"cpu": 2_000}))
    assert not targets(amplified).take(pod(cpu=601))


def test_a_node_takes_no_more_pods_than_it_may_hold() -> None:
    full = node("a", pod("x"), pod("y", phase="Failed"), pod("z"), most={"pods_max": 2})

    assert not targets(full).take(pod())
    assert targets(replace(full, pods_max=3)).take(pod())


def test_a_node_may_hold_110_pods() -> None:
    assert targets(node("a", *(pod(str(number)) for number in range(109)))).take(pod())
    assert not targets(node("a", *(pod(str(number)) for number in range(110)))).take(pod())


def test_what_has_found_a_place_keeps_it() -> None:
    places = targets(node("a"), node("b"))

    # 600 on each: 400 go to a, 300 to b, 200 to a, 300 to b.
    assert [places.take(pod(cpu=cpu)) for cpu in (400, 300, 200, 301, 300, 1, 0)] == [
        True,
        True,
        True,
        False,
        True,
        False,
        True,
    ]


def test_requests_of_those_that_have_found_a_place_are_not_counted() -> None:
    places = targets(node("a"))

    assert [places.take(pod(requests={"cpu": 1_000})) for _ in range(3)] == [True, True, True]


def test_a_pod_finds_a_place_in_the_view_of_the_phase() -> None:
    """Of 1000 millicores 600 may be used, 400 by production pods; 100 are, all by batch pods."""
    batch = node("a", pod("batch", 100))

    assert not targets(batch, kind="whole").take(pod(cpu=501))
    assert not targets(batch, kind="prod").take(pod(cpu=401))
    assert targets(batch, kind="prod").take(pod(cpu=400))


def test_without_targets_there_is_no_place() -> None:
    assert not targets().take(pod())


@given(
    st.lists(amounts, min_size=1, max_size=9),
    st.lists(st.builds(pod, cpu=amounts, requests=st.dictionaries(resources, amounts)), max_size=9),
)
def test_the_first_node_with_room_takes_the_pod(systems: list[int], asking: list) -> None:
    """As if each node were asked in turn: nodes used by so much, with pods that ask for a place one by one."""
    cluster = [node(f"{number}", system=min(system, 300)) for number, system in enumerate(systems)]
    together, each = targets(*cluster), [targets(one) for one in cluster]

    for one in asking:
        assert together.take(one) == any(alone.take(one) for alone in each)
