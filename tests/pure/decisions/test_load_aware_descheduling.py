"""Load-aware descheduling: which pods leave overloaded nodes, pass by pass.

Nodes have 1000 millicores; below 300 they have room, above 600 they give pods away.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_classify import Survey, SurveyPolicy, survey
from slacktide.streams.decisions.load.load_aware_descheduling import PassState, deschedule
from slacktide.streams.decisions.load.load_aware_phase import DeschedulingPolicy, load_score, view_of
from testbed.descheduling_cases import (
    answered,
    node,
    one_pass,
    passes,
    pod,
    policies,
    policy,
    random_cluster,
    seeds,
    survey_policies,
    surveys,
    victims,
)

IDLE = node("idle")
BOTH_VIEWS = policy((30, 60), (20, 40))


def reason(done, of: str):
    (because,) = (one for one in done.because if one.of == of)
    return because


def busy(name: str = "busy", count: int = 8):
    """Pods of 101, 102, ... millicores, the newest the largest; eight of them use 836, and three are too many."""
    return node(name, *(pod(f"{name}-{number}", 100 + number, created_s=number) for number in range(1, count + 1)))


def test_a_node_gives_pods_until_it_is_no_longer_over() -> None:
    full = node("full", *(pod(name, 100, created_s=ord(name)) for name in "abcdefgh"))

    done = one_pass(full, IDLE)

    assert victims(done) == ["h", "g"]
    assert {one.node for one in done.evictions} == {"full"}
    assert reason(done, "pass").bound == "acted"
    assert reason(done, "whole/sources/full").bound == "relieved"


def test_no_more_leave_than_the_others_have_room_for() -> None:
    """At 590 of 600 the first victim fills the room, and more than that."""
    done = one_pass(node("full", *(pod(str(n), 100) for n in range(9))), node("b", system=290), node("c"))

    assert victims(done) == ["0", "1", "2"]
    tight = one_pass(node("full", *(pod(str(n), 100) for n in range(9))), node("b", system=600), by=policy((60, 61)))
    assert victims(tight) == ["0"]
    assert reason(tight, "whole/sources/full").bound == "budget_spent"
    assert reason(tight, "whole/sources/full").terms["budget_cpu_milli"] == -90


def test_a_budget_that_is_just_spent_is_spent() -> None:
    done = one_pass(node("full", *(pod(str(n), 100) for n in range(9))), node("b", system=500), by=policy((60, 60)))

    assert victims(done) == ["0"]


def test_a_budget_of_one_is_not_spent() -> None:
    done = one_pass(node("full", *(pod(str(n), 100) for n in range(9))), node("b", system=499), by=policy((60, 60)))

    assert victims(done) == ["0", "1"]


def test_what_a_metric_does_not_tell_is_not_moved() -> None:
    full = node("full", replace(pod("a"), used={"cpu": 700}), system=100)

    source = reason(one_pass(full, IDLE), "whole/sources/full")

    assert (source.terms["used_cpu_milli"], source.terms["used_memory_bytes"]) == (100, 0)
    assert (source.terms["budget_cpu_milli"], source.terms["budget_memory_bytes"]) == (-100, 1_000)


def test_any_resource_without_room_stops_all() -> None:
    full_of_memory = node("b", besides={"memory": 1_000})

    done = one_pass(node("full", pod("a", 700)), full_of_memory)

    assert victims(done) == []
    assert reason(done, "whole/sources/full").bound == "budget_spent"


def test_a_threshold_for_a_resource_that_no_node_has_stops_all() -> None:
    """Of nothing no room can be left."""
    by = policy((30, 60))
    by = replace(by, whole=replace(by.whole, low=by.whole.low | {"example.com/gpu": 30}))

    assert victims(one_pass(node("full", pod("a", 700)), IDLE, by=by)) == []


def test_what_has_no_metric_leaves_without_a_trace_in_the_figures() -> None:
    full = node("full", pod("known", 50), *(pod(f"unknown-{n}", None) for n in range(3)), system=700)

    done = one_pass(full, IDLE)

    assert victims(done) == ["known", "unknown-0", "unknown-1", "unknown-2"]
    assert reason(done, "whole/sources/full").terms["used_cpu_milli"] == 700


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param(pod("x", 700, evictable=False), id="not evictable"),
        pytest.param(pod("x", 700, phase="Succeeded"), id="succeeded"),
        pytest.param(pod("x", 700, phase="Failed"), id="failed"),
        pytest.param(pod("x", 700, phase="Unknown"), id="of a node that nobody hears of"),
    ],
)
def test_only_running_and_pending_pods_that_may_be_evicted_are(spared) -> None:
    done = one_pass(node("full", spared), IDLE)

    assert victims(done) == []
    assert reason(done, "whole/sources/full").bound == "no_more_pods"
    assert reason(done, "whole/sources/full").terms["candidate_pods"] == 0
    assert victims(one_pass(node("full", replace(spared, evictable=True, pod=pod("x").pod)), IDLE)) == ["x"]


def test_a_pending_pod_leaves() -> None:
    assert victims(one_pass(node("full", pod("x", 700, phase="Pending")), IDLE)) == ["x"]


def test_the_most_loaded_node_gives_first_and_equals_by_name() -> None:
    """All usage is above the capacity for b and c, which counts as all of it."""
    cluster = [node("a", pod("in-a", 900)), node("c", pod("in-c", 1_100)), node("b", pod("in-b", 1_200)), IDLE]

    assert victims(one_pass(*cluster, node("idle-too"))) == ["in-b"]
    assert victims(one_pass(*cluster, *(node(f"idle-{n}") for n in range(9)))) == ["in-b", "in-c", "in-a"]


@pytest.mark.parametrize(
    ("weights", "score"),
    [
        pytest.param({"cpu": 1, "memory": 1}, 479, id="the mean of what is rounded down, rounded down"),
        pytest.param({"cpu": 3, "memory": 1}, 617, id="weighted"),
        pytest.param({"memory": 5}, 204, id="an absent weight is none"),
        pytest.param({"cpu": 1, "example.com/gpu": 9}, 755, id="what is not watched does not count"),
        pytest.param({}, 0, id="no weights"),
        pytest.param({"cpu": 0, "memory": 0}, 0, id="weights of nothing"),
    ],
)
def test_how_loaded_a_node_is(weights: dict, score: int) -> None:
    one = node("a", besides={"cpu": 755_999, "memory": 204_999}, cpu=1_000_000, memory=1_000_000)
    (seen,) = survey([one], policy()).classes["high"]

    assert load_score(seen, "whole", weights) == score
    assert load_score(seen, "prod", weights) == 0


def test_a_resource_the_node_lacks_does_not_load_it() -> None:
    lacking = node("a", system=700, besides={"example.com/gpu": 7})
    by = policy()
    by = replace(by, whole=replace(by.whole, low=by.whole.low | {"example.com/gpu": 30}))
    (seen,) = survey([lacking], by).classes["high"]

    assert load_score(seen, "whole", {"example.com/gpu": 1}) == 0


@pytest.mark.parametrize(
    ("cluster", "how", "bound"),
    [
        pytest.param([IDLE, node("b", system=400)], {}, "none_over", id="no node is over"),
        pytest.param([], {}, "none_over", id="there is no node"),
        pytest.param([busy(), IDLE], {"consecutive_abnormalities": 2}, "none_lasting", id="not for long enough"),
        pytest.param([busy(), node("b", system=400, schedulable=False)], {}, "no_targets", id="no node has room"),
        pytest.param([busy()], {"too_few_targets": -1}, "no_targets", id="no node has room, and none is wanted"),
        pytest.param([busy(), IDLE], {"too_few_targets": 1}, "too_few_targets", id="as few as are too few"),
        pytest.param([busy(), IDLE, node("b")], {"too_few_targets": 1}, "acted", id="one more"),
        pytest.param([busy(), IDLE, node("b", system=400)], {"too_few_targets": 1}, "acted", id="room for prod counts"),
    ],
)
def test_when_a_pass_acts(cluster: list, how: dict, bound: str) -> None:
    done = one_pass(*cluster, **how)

    assert reason(done, "pass").bound == bound
    assert bool(done.evictions) == (bound == "acted")


def test_the_pass_tells_what_it_counted() -> None:
    done = one_pass(busy(), busy("second"), IDLE, node("b", system=400), consecutive_abnormalities=3)

    assert list(reason(done, "pass").terms.items()) == [
        ("over_nodes", 2),
        ("lasting_nodes", 0),
        ("too_few_nodes", 0),
        ("target_nodes", 2),
    ]


def test_room_for_production_pods_alone_is_no_room_for_others() -> None:
    assert victims(one_pass(busy(), node("b", system=400))) == []


# -- the two phases


def test_nodes_over_by_production_pods_give_production_pods() -> None:
    over = node("over", pod("batch", 50), *(pod(f"prod-{n}", 150, band="prod") for n in range(3)))

    done = one_pass(over, IDLE, by=BOTH_VIEWS)

    assert [(one.pod.pod.name, one.because_of_prod) for one in done.evictions] == [("prod-0", True)]
    assert reason(done, "prod/sources/over").bound == "relieved"


def test_production_pods_go_to_what_has_room_for_them() -> None:
    over = node("over", pod("x", 450, band="prod"))

    assert victims(one_pass(over, node("prod-low", pod("y", 350)), by=BOTH_VIEWS)) == ["x"]
    assert victims(one_pass(over, node("low", pod("y", 250, band="prod")), by=BOTH_VIEWS)) == []


def test_nodes_over_by_all_come_first() -> None:
    prod, batch = node("a", pod("x", 450, band="prod")), node("b", pod("y", 700))

    done = one_pass(prod, batch, IDLE, node("idle-too"), by=BOTH_VIEWS)

    assert [(one.pod.pod.name, one.because_of_prod) for one in done.evictions] == [("y", False), ("x", True)]


LOW = node("low", pod("in-low", 250, band="prod"))
PROD_LOW = node("prod-low", pod("in-prod-low", 350))


# An idle node has room for 600, and for 400 of production pods.
@pytest.mark.parametrize(
    ("cluster", "moved", "bound", "terms"),
    [
        pytest.param([IDLE], 0, "prod_room", (0, 400, 600, 600, 400), id="nothing was moved before"),
        pytest.param([IDLE, node("b")], 700, "whole_room", (0, 800, 1_200, 500, 500), id="what the node phase left"),
        pytest.param([IDLE, LOW], 700, "whole_room", (0, 400, 600, 250, 250), id="of all its targets"),
        pytest.param([IDLE, LOW], 0, "prod_room", (0, 400, 600, 950, 400), id="more than the common ones have"),
        pytest.param([node("b", system=250), LOW], 0, "whole_room", (0, 400, 350, 700, 350), id="common room for all"),
        pytest.param([node("b", system=200)], 0, "prod_room", (0, 400, 400, 400, 400), id="as much for all"),
        pytest.param([IDLE, PROD_LOW], 0, "prod_room", (400, 400, 600, 600, 800), id="and on nodes with room for prod"),
        pytest.param([LOW, PROD_LOW], 700, "whole_room", (400, 0, 0, -350, 50), id="less what was moved too much"),
    ],
)
def test_the_production_phase_has_what_the_node_phase_left(cluster: list, moved: int, bound: str, terms: tuple) -> None:
    sources = [
        node("over", pod("x", 450, band="prod")),
        node("full", pod("y", moved)) if moved else node("gone", age_s=None),
    ]

    budget = reason(one_pass(*sources, *cluster, by=BOTH_VIEWS), "prod/budget/cpu")

    assert (budget.bound, tuple(budget.terms.values())) == (bound, terms)
    assert list(budget.terms) == [
        "prod_low_cpu_milli",
        "both_low_prod_cpu_milli",
        "both_low_whole_cpu_milli",
        "left_cpu_milli",
        "budget_cpu_milli",
    ]


def test_the_node_phase_has_the_room_of_its_targets() -> None:
    budget = reason(one_pass(busy(), IDLE, LOW, PROD_LOW, by=BOTH_VIEWS), "whole/budget/cpu")

    assert budget.bound == "formula"
    assert list(budget.terms.items()) == [
        ("low_cpu_milli", 350),
        ("both_low_cpu_milli", 600),
        ("budget_cpu_milli", 950),
    ]


def test_a_source_tells_how_far_it_came() -> None:
    stuck = pod("stuck", 50, evictable=False)
    without = pod("without", None)

    source = reason(
        one_pass(node("full", stuck, pod("a", 700, memory=7), without), IDLE, node_fit=True), "whole/sources/full"
    )

    # The mean of 75 and 0.7 percent; 100 of 600 millicores are free on the idle node, but not 700.
    assert source.bound == "no_more_pods"
    assert list(source.terms.items()) == [
        ("score", 378),
        ("candidate_pods", 2),
        ("removable_pods", 0),
        ("high_cpu_milli", 600),
        ("high_memory_bytes", 1_000),
        ("used_cpu_milli", 750),
        ("used_memory_bytes", 7),
        ("budget_cpu_milli", 600),
        ("budget_memory_bytes", 1_000),
        ("evicted_pods", 0),
    ]


def test_reasons_come_in_the_order_things_are_done() -> None:
    over = node("over", pod("x", 450, band="prod"))

    done = one_pass(over, busy(), IDLE, by=BOTH_VIEWS)

    assert [one.of for one in done.because] == [
        "nodes/busy/whole/row",
        "nodes/over/prod/row",
        "pass",
        "whole/budget/cpu",
        "whole/budget/memory",
        "whole/sources/busy",
        "prod/budget/cpu",
        "prod/budget/memory",
        "prod/sources/over",
    ]


# -- node_fit


def test_with_node_fit_only_what_finds_a_place_leaves() -> None:
    full = node("full", pod("fits", 300), pod("large", 601), pod("unknown", None))

    assert victims(one_pass(full, IDLE, node_fit=True)) == ["fits"]
    assert victims(one_pass(full, IDLE, node_fit=False)) == ["large"]


def test_by_default_a_place_must_be_found() -> None:
    seen = survey([node("full", pod("large", 601)), IDLE], policy())

    assert victims(deschedule(seen, DeschedulingPolicy(consecutive_abnormalities=1), PassState())) == []


def test_places_are_given_to_the_oldest_first_though_the_newest_leave_first() -> None:
    """Only two of three find a place, and these leave by the order of eviction."""
    full = node(
        "full", *(pod(name, 250, created_s=created_s) for name, created_s in zip("abc", (3, 1, 2), strict=True))
    )

    assert victims(one_pass(full, node("b", system=100), node_fit=True)) == ["c"]


def test_equally_old_pods_are_given_places_by_namespace_name_and_uid() -> None:
    for first, then in (
        (pod("b", 400, namespace="a"), pod("a", 400, namespace="b")),
        (pod("a", 400, uid="2"), pod("b", 400, uid="1")),
        (pod("a", 400, uid="1"), pod("a", 400, uid="2")),
    ):
        # The one that is given the place is the one that would leave last.
        full = node("full", replace(then, eviction_cost=-1), first)
        (evicted,) = one_pass(full, node("b", system=200), node_fit=True).evictions
        assert evicted.pod == first


def test_places_stay_taken_from_one_source_to_the_next() -> None:
    cluster = [node("a", pod("in-a", 400), system=600), node("b", pod("in-b", 300), system=600), IDLE]

    assert victims(one_pass(*cluster, node_fit=True)) == ["in-a"]
    assert victims(one_pass(*cluster, node_fit=False)) == ["in-a", "in-b"]


def test_places_are_counted_in_the_view_of_the_phase_alone() -> None:
    """The node phase fills the idle node to its threshold; for production pods it is as empty as before."""
    cluster = [node("full", pod("y", 601)), node("over", pod("x", 401, band="prod")), node("b", cpu=1_002), IDLE]

    assert victims(one_pass(*cluster, by=BOTH_VIEWS, node_fit=True)) == ["y"]
    cluster[1] = node("over", pod("x", 390, band="prod"), pod("z", 20, band="prod"))
    assert victims(one_pass(*cluster, by=BOTH_VIEWS, node_fit=True)) == ["y", "z"]


# -- overload that lasts


def test_by_default_a_node_gives_when_it_is_over_for_the_sixth_time_in_a_row() -> None:
    done = passes(8, survey([busy(), IDLE], policy()), DeschedulingPolicy(node_fit=False))

    assert [len(one.evictions) for one in done] == [0, 0, 0, 0, 0, 3, 0, 0]
    assert [reason(one, "nodes/busy/whole/row").terms["row_passes"] for one in done] == [1, 2, 3, 4, 5, 6, 1, 2]
    assert [reason(one, "nodes/busy/whole/row").bound for one in done] == ["waiting"] * 5 + ["lasting"] + [
        "waiting"
    ] * 2


def test_a_node_that_is_not_relieved_gives_in_each_pass() -> None:
    stuck = node("stuck", pod("a", 100), system=900)

    done = passes(4, survey([stuck, IDLE], policy()), DeschedulingPolicy(consecutive_abnormalities=2))

    assert [len(one.evictions) for one in done] == [0, 0, 1, 1]


def test_a_node_is_relieved_when_that_is_seen_before_another_pod_would_leave() -> None:
    """With the last pod gone nobody looks again in this pass: the row goes on while the node is still reported over."""
    last = node("last", pod("a", 100), system=600)

    done = passes(4, survey([last, IDLE], policy()), DeschedulingPolicy(consecutive_abnormalities=2))

    assert [len(one.evictions) for one in done] == [0, 0, 1, 1]


@pytest.mark.parametrize("tolerated", [1, 0, -3])
def test_who_tolerates_nothing_does_not_wait(tolerated: int) -> None:
    done = passes(2, survey([busy(), IDLE], policy()), DeschedulingPolicy(consecutive_abnormalities=tolerated))

    assert [len(one.evictions) for one in done] == [3, 3]


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
    *early, then = passes(tolerated + 1, seen, replace(how, consecutive_abnormalities=tolerated))

    assert all(done.evictions == () for done in early)
    assert then.evictions == deschedule(seen, how, PassState()).evictions


# -- as slacktide calc


CASE_POD = {"name": "a", "usage": {"cpu_milli": 400}}
CASE_NODES = [
    {
        "name": "full",
        "allocatable": {"cpu_milli": 1_000, "memory_bytes": 1_000},
        "metric_age_seconds": 1,
        "pods": [CASE_POD, CASE_POD | {"name": "b"}],
    },
    {"name": "idle", "allocatable": {"cpu_milli": 1_000, "memory_bytes": 1_000}, "metric_age_seconds": 1},
]
CASE = {
    "low_thresholds": {"cpu": 30},
    "high_thresholds": {"cpu": 60},
    "consecutive_abnormalities": 1,
    "nodes": CASE_NODES,
}


def case_victims(**said) -> list[list[str]]:
    return [[one["pod"] for one in done] for done in answered(CASE | said)["output"]["evicted_per_round"]]


def on_full(**said) -> dict:
    """The case's nodes, the first one different."""
    return {"nodes": [CASE_NODES[0] | said, CASE_NODES[1]]}


def test_a_case_needs_no_more_than_nodes_and_thresholds() -> None:
    assert answered(CASE)["output"] == {
        "low": [],
        "high": ["full"],
        "prod_low": [],
        "prod_high": [],
        "both_low": ["idle"],
        "evicted_per_round": [[{"pod": "a", "node": "full", "because_of_prod_usage": False}]],
    }
    assert answered({})["output"]["evicted_per_round"] == [[]]


def test_what_is_null_is_not_said() -> None:
    optional = [
        "number_of_nodes",
        "node_fit",
        "node_metric_expiration_seconds",
        "use_deviation_thresholds",
        "prod_low_thresholds",
        "prod_high_thresholds",
        "resource_weights",
        "rounds",
    ]
    of_nodes = ["raw_allocatable", "unschedulable", "has_metric", "system_usage", "usage_of_pods_no_longer_on_node"]
    of_pods = [
        "qos_class",
        "priority_class",
        "priority",
        "requests",
        "evictable",
        "creation_time_seconds",
        "deletion_cost",
        "eviction_cost",
    ]
    pods_ = [one | dict.fromkeys(of_pods) for one in CASE_NODES[0]["pods"]]
    nodes_ = [
        one | dict.fromkeys(of_nodes) for one in (CASE_NODES[0] | {"pods": pods_}, CASE_NODES[1] | {"pods": None})
    ]

    assert answered(CASE | dict.fromkeys(optional) | {"nodes": nodes_})["output"] == answered(CASE)["output"]
    assert case_victims(consecutive_abnormalities=None, rounds=6) == [[], [], [], [], [], ["a"]]
    assert case_victims(low_thresholds=None) == [[]]
    assert case_victims(high_thresholds=None) == [[]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({"rounds": 3}, [["a"], ["a"], ["a"]], id="as many rounds as wanted"),
        pytest.param({"rounds": 0}, [], id="none"),
        pytest.param({"number_of_nodes": 1}, [[]], id="too few nodes with room"),
        pytest.param({"use_deviation_thresholds": True}, [[]], id="60 above the average"),
        pytest.param(
            {"use_deviation_thresholds": True, "high_thresholds": {"cpu": 19.5}}, [["a"]], id="19.5 above the average"
        ),
        pytest.param({"node_metric_expiration_seconds": 1}, [[]], id="expired metrics"),
        pytest.param({"node_metric_expiration_seconds": 0}, [["a"]], id="metrics that never expire"),
        pytest.param(on_full(has_metric=False), [[]], id="no metric"),
        pytest.param(on_full(metric_age_seconds=None), [[]], id="a metric of unknown age"),
        pytest.param(on_full(raw_allocatable={"cpu_milli": 2_000}), [[]], id="percents of the raw allocatable"),
        pytest.param(on_full(raw_allocatable={}) | {"node_fit": False}, [["a", "b"]], id="which may be nothing"),
        pytest.param(
            on_full(system_usage={"cpu_milli": 300}) | {"node_fit": False}, [["a", "b"]], id="with the system's usage"
        ),
        pytest.param(
            on_full(usage_of_pods_no_longer_on_node={"cpu_milli": 300}) | {"node_fit": False},
            [["a", "b"]],
            id="with pods that are gone",
        ),
        pytest.param(on_full(pods=[CASE_POD | {"usage": {"cpu_milli": 700}}]), [[]], id="too large to find a place"),
        pytest.param(
            on_full(pods=[CASE_POD | {"usage": {"cpu_milli": 700}}]) | {"node_fit": False}, [["a"]], id="without asking"
        ),
    ],
)
def test_what_a_case_may_say(said: dict, expected: list) -> None:
    assert case_victims(**said) == expected


def test_twin_nodes_are_refused() -> None:
    assert answered({"nodes": [CASE_NODES[0], CASE_NODES[1], CASE_NODES[0]]})["error"] == (
        "input.nodes[2].name: 'full' is not unique: an earlier node has this name"
    )


def test_resources_go_by_their_kubernetes_names() -> None:
    """CPU is below its threshold on each node; batch CPU is not."""
    said = {
        "low_thresholds": {"kubernetes.io/batch-cpu": 30},
        "high_thresholds": {"kubernetes.io/batch-cpu": 60},
        "nodes": [
            {
                "name": name,
                "allocatable": {"batch_cpu_milli": 1_000, "memory_bytes": 1_000},
                "metric_age_seconds": 1,
                "pods": [CASE_POD | {"usage": {"batch_cpu_milli": used}}],
            }
            for name, used in (("full", 601), ("idle", 0))
        ],
        "node_fit": False,
    }

    assert case_victims(**said) == [["a"]]


def test_reasons_tell_their_round() -> None:
    because = answered(CASE | {"rounds": 2})["because"]

    assert [one["of"] for one in because if one["of"].endswith(("class", "pass"))] == [
        "nodes/full/class",
        "nodes/idle/class",
        "rounds/0/pass",
        "rounds/1/pass",
    ]


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 10**6, 2**53, 2**53 + 1, 10**30, 0.5, 1e300, "", "weird", [], {}]),
)


def spoilt(case, path: list, value):
    """The case with another value at the path; what the path does not lead to is left."""
    if not path:
        return value
    if isinstance(case, dict):
        return case | {path[0]: spoilt(case.get(path[0]), path[1:], value)}
    if isinstance(case, list) and case:
        return [spoilt(case[0], path, value), *case[1:]]
    return case


fields = st.one_of(
    st.tuples(st.sampled_from([*CASE, "prod_low_thresholds", "resource_weights", "rounds", "number_of_nodes"])),
    st.tuples(st.sampled_from(["low_thresholds", "high_thresholds", "resource_weights"]), st.just("cpu")),
    st.tuples(st.just("nodes"), st.sampled_from([*CASE_NODES[0], "raw_allocatable", "system_usage", "has_metric"])),
    st.tuples(
        st.just("nodes"), st.sampled_from(["allocatable", "system_usage"]), st.sampled_from(["cpu_milli", "gpu"])
    ),
    st.tuples(
        st.just("nodes"),
        st.just("pods"),
        st.sampled_from(["usage", "requests", "phase", "priority", "qos_class", "name"]),
    ),
    st.tuples(st.just("nodes"), st.just("pods"), st.just("usage"), st.sampled_from(["cpu_milli", "gpu"])),
)


@given(st.lists(st.tuples(fields, odd), max_size=4))
def test_however_odd_a_case_is_it_has_an_answer(spoils: list) -> None:
    case = CASE
    for path, value in spoils:
        case = spoilt(case, list(path), value)

    assert answered(case).keys() in ({"error"}, {"output", "because"})
