"""Which pod leaves an overloaded node first, and which would find a place on another."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from slacktide.streams.decisions.load.load_aware_classify import survey
from slacktide.streams.decisions.load.load_aware_descheduling import Targets, eviction_order, usage_score, view_of
from testbed.descheduling_cases import amounts, node, pod, policy, random_pod, resources, seeds

WEIGHTS = {"cpu": 1, "memory": 1}


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


@given(seeds)
def test_the_order_pods_are_listed_in_does_not_matter(of: Random) -> None:
    listed = [random_pod(of, f"pod-{number}") for number in range(9)]
    shuffled = of.sample(listed, len(listed))

    assert eviction_order(shuffled, {"cpu": 100}, WEIGHTS) == eviction_order(listed, {"cpu": 100}, WEIGHTS)


@given(seeds)
def test_borrowed_pods_leave_first(of: Random) -> None:
    listed = [random_pod(of, f"pod-{number}") for number in range(9)]
    marked = [replace(one, pod=structs.replace(one.pod, borrowed=at < 3)) for at, one in enumerate(listed)]
    order = eviction_order(marked, {"cpu": 100}, WEIGHTS)

    assert [one.pod.borrowed for one in order] == [True] * 3 + [False] * 6
    assert order[3:] == eviction_order(listed[3:], {"cpu": 100}, WEIGHTS)


def targets(*nodes, kind: str = "whole") -> Targets:
    """Nodes that are under 30 percent of their CPU, and may be filled up to 60; of all memory."""
    seen = survey(nodes, policy((30, 60), (30, 40)))
    return Targets([(one.node, view_of(one, kind)) for one in seen.classes["both_low"]])


def test_a_node_takes_no_more_pods_than_it_may_hold() -> None:
    full = node("a", pod("x"), pod("y", phase="Failed"), pod("z"), most={"pods_max": 2})

    assert not targets(full).take(pod())
    assert targets(replace(full, pods_max=3)).take(pod())


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
