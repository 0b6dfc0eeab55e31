"""Load-aware descheduling: which pods leave overloaded nodes, pass by pass.

Nodes have 1000 millicores; below 300 they have room, above 600 they give pods away.
"""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_classify import Survey, SurveyPolicy, survey
from slacktide.streams.decisions.load.load_aware_descheduling import DeschedulingPolicy, PassState, deschedule, view_of
from testbed.descheduling_cases import (
    clusters,
    node,
    pod,
    policies,
    policy,
    random_cluster,
    seeds,
    survey_policies,
    surveys,
    victims,
)
from testbed.load_aware_cases import answered

IDLE = node("idle")
BOTH_VIEWS = policy((30, 60), (20, 40))


def busy(name: str = "busy"):
    """Pods of 101, 102, ... millicores, the newest the largest; all of them use 836, and three are too many."""
    return node(name, *(pod(f"{name}-{number}", 100 + number, created_s=number) for number in range(1, 9)))


def test_equally_old_pods_are_given_places_by_namespace_name_and_uid() -> None:
    for first, then in (
        (pod("b", 400, namespace="a"), pod("a", 400, namespace="b")),
        (pod("a", 400, uid="2"), pod("b", 400, uid="1")),
        (pod("a", 400, uid="1"), pod("a", 400, uid="2")),
    ):
        # The one that is given the place is the one that would leave last.
        full = node("full", replace(then, eviction_cost=-1), first)
        seen = survey([full, node("b", system=200)], policy())
        (evicted,) = deschedule(seen, DeschedulingPolicy(consecutive_abnormalities=1), PassState()).evictions
        assert evicted.pod == first


def test_each_view_has_rows_of_its_own() -> None:
    how = DeschedulingPolicy(consecutive_abnormalities=2, node_fit=False)
    over = node("a", pod("x", 450, band="prod"), pod("y", 10))
    by_prod, by_all = survey([over, IDLE], BOTH_VIEWS), survey([busy("a"), IDLE], BOTH_VIEWS)

    state = deschedule(by_prod, how, PassState(whole={"a": 5}, prod={"a": 1})).state
    assert state == PassState(prod={"a": 2})
    assert victims(deschedule(by_prod, how, state)) == ["x"]
    assert victims(deschedule(by_all, how, state)) == []


def test_a_relieved_node_starts_a_new_row_in_its_view_alone() -> None:
    over = node("over", *(pod(f"x{n}", 150, band="prod") for n in range(3)))
    stuck = node("stuck", pod("y", 50), system=800)
    before = PassState(whole={"busy": 9, "stuck": 9}, prod={"over": 9})

    done = deschedule(survey([busy(), over, stuck, IDLE, node("b")], BOTH_VIEWS), DeschedulingPolicy(), before)

    assert done.state == PassState(whole={"stuck": 10}, prod={})


def test_a_pass_in_which_a_node_is_not_over_ends_its_row() -> None:
    how = DeschedulingPolicy(consecutive_abnormalities=2)
    state = PassState(whole={"busy": 2})

    for other in ([node("busy", system=400), IDLE], [IDLE], [node("busy", system=900, age_s=None), IDLE]):
        assert deschedule(survey(other, policy()), how, state).state == PassState()


# -- laws


@given(seeds, survey_policies, policies)
def test_the_order_of_nodes_and_pods_does_not_matter(of: Random, by: SurveyPolicy, how: DeschedulingPolicy) -> None:
    cluster = random_cluster(of)
    mixed = [replace(one, pods=of.sample(one.pods, len(one.pods))) for one in of.sample(cluster, len(cluster))]

    first, second = (deschedule(survey(nodes, by), how, PassState()) for nodes in (cluster, mixed))

    assert [(one.pod, one.node) for one in second.evictions] == [(one.pod, one.node) for one in first.evictions]
    assert (second.because, second.state) == (first.because, first.state)


@given(surveys, policies)
def test_only_nodes_that_are_over_lose_pods(seen: Survey, how: DeschedulingPolicy) -> None:
    high, prod_high = ({one.node.name for one in seen.classes[name]} for name in ("high", "prod_high"))

    for one in deschedule(seen, how, PassState()).evictions:
        assert one.node in (prod_high if one.because_of_prod else high)
        assert one.pod.is_prod or not one.because_of_prod


@given(surveys, policies)
def test_a_victim_may_be_evicted_runs_on_that_node_and_leaves_once(seen: Survey, how: DeschedulingPolicy) -> None:
    evictions = deschedule(seen, how, PassState()).evictions
    pods_of = {one.node.name: one.node.pods for nodes in seen.classes.values() for one in nodes}

    for one in evictions:
        assert one.pod in pods_of[one.node]
        assert one.pod.evictable
        assert one.pod.pod.phase in {"Running", "Pending"}
        assert one.pod.used is not None or not how.node_fit
    assert len({one.pod.pod.name for one in evictions}) == len(evictions)


@given(surveys, policies)
def test_evictions_stop_once_the_node_is_no_longer_over(seen: Survey, how: DeschedulingPolicy) -> None:
    """Whoever leaves, the node was over until then."""
    views = {one.node.name: one for name in ("high", "prod_high") for one in seen.classes[name]}
    views = {name: view_of(one, "prod" if one in seen.classes["prod_high"] else "whole") for name, one in views.items()}

    for one in deschedule(seen, how, PassState()).evictions:
        assert views[one.node].excess
        views[one.node] = views[one.node].minus(one.pod.used or {})


@given(surveys, policies)
def test_with_node_fit_all_victims_together_fit_on_the_targets(seen: Survey, how: DeschedulingPolicy) -> None:
    evictions = deschedule(seen, replace(how, node_fit=True), PassState()).evictions

    for kind, names in (("whole", ("low", "both_low")), ("prod", ("prod_low", "both_low"))):
        targets = [view_of(one, kind) for name in names for one in seen.classes[name]]
        for resource in seen.resources:
            moved = sum(one.pod.used.get(resource, 0) for one in evictions if one.because_of_prod == (kind == "prod"))
            assert moved <= sum(max(view.limits.high[resource] - view.used[resource], 0) for view in targets)


@given(surveys, policies, st.integers(2, 4))
def test_nothing_is_evicted_until_overload_has_lasted(seen: Survey, how: DeschedulingPolicy, tolerated: int) -> None:
    state = PassState()
    for _ in range(tolerated):
        done = deschedule(seen, replace(how, consecutive_abnormalities=tolerated), state)
        assert done.evictions == ()
        state = done.state

    then = deschedule(seen, replace(how, consecutive_abnormalities=tolerated), state)
    assert then.evictions == deschedule(seen, how, PassState()).evictions


@given(clusters, survey_policies)
def test_every_node_with_a_usable_metric_is_in_one_class(cluster: list, by: SurveyPolicy) -> None:
    seen = survey(cluster, by)

    usable = sorted(one.name for one in cluster if one.metric_age_s == 10)
    assert sorted(one.node.name for nodes in seen.classes.values() for one in nodes) == usable


@given(surveys)
def test_only_schedulable_nodes_have_room(seen: Survey) -> None:
    assert all(one.node.schedulable for name in ("low", "prod_low", "both_low") for one in seen.classes[name])


# -- as slacktide calc


def test_twin_nodes_are_refused() -> None:
    nodes = [{"name": name, "allocatable": {}} for name in ("full", "idle", "full")]

    assert answered("load_aware_descheduling", {"nodes": nodes}) == {
        "error": "input.nodes[2].name: 'full' is not unique: an earlier node has this name"
    }
