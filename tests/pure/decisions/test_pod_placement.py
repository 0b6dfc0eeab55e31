"""Which nodes take a pod, and which of them should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_estimator import (
    Amounts,
    LoadAwareArgs,
    LoadAwarePod,
    Percents,
    Thresholds,
)
from slacktide.streams.decisions.load.load_aware_existing import AssignCache
from slacktide.streams.decisions.load.load_aware_scheduling import NodeState, place
from slacktide.streams.decisions.load.pod_placement import Asking, Choice, NodeView, PlacementArgs, asking, choose
from testbed.load_aware_cases import GIB, T, asked, report

ARGS = PlacementArgs()
WHOLE = Amounts(8_000, 16 * GIB)
LEFT = Amounts(4_000, 8 * GIB)


def batch(cpu_milli: int = 500, mem_bytes: int = GIB, **said: Any) -> LoadAwarePod:
    return asked((cpu_milli, mem_bytes), of_class="koord-batch", **said)


def service() -> LoadAwarePod:
    pod = asked((500, GIB))
    return replace(pod, pod=msgspec.structs.replace(pod.pod, kube_qos="Burstable"))


def node(name: str = "a", used: tuple[int, int] = (1_000, GIB), *, args: PlacementArgs = ARGS, **said: Any) -> NodeView:
    """One that reported its use and has half of itself left for batch pods."""
    load = AssignCache(args=args.load, report=report(used)).load()
    state = NodeState(allocatable=WHOLE, custom=Thresholds(), load=load, args=args.load)
    return NodeView(**{"name": name, "state": state, "batch_left": LEFT, **said})


def unknown(name: str = "a", **said: Any) -> NodeView:
    return node(name, **said)._replace(state=NodeState(
        allocatable=Amounts(), custom=Thresholds(), load=None, args=ARGS.load
    ))  # fmt: skip


def chosen(pod: LoadAwarePod, *nodes: NodeView, args: PlacementArgs = ARGS) -> Choice:
    return choose(asking(pod, args), nodes, args)


def reason(pod: LoadAwarePod, on: NodeView) -> str:
    refusal = chosen(pod, on).refused.get(on.name)
    return "" if refusal is None else refusal.reason


def order(choice: Choice) -> list[str]:
    return [one.name for one in choice.ranked]


@pytest.mark.parametrize("silent", ["stale", "frozen"])
def test_a_silent_node_takes_no_best_effort_pod_and_attracts_no_other(silent: str) -> None:
    there = node(silent=silent)
    assert reason(batch(), there) == silent
    assert reason(asked(of_class="koord-free", requests=(100, GIB)), there) == silent
    mid = asked((500, GIB), of_class="koord-mid")
    assert reason(mid, there._replace(mid_left=LEFT)) == silent, "what is sold there may be gone"
    assert reason(service(), there) == ""
    [ranked] = chosen(service(), there).ranked
    assert (ranked.score_permille, ranked.level, ranked.bound) == (0, 0, silent)


def test_a_pod_is_best_effort_by_its_qos_class_or_by_its_priority() -> None:
    by_class, by_priority = service(), batch()
    by_class = replace(by_class, pod=msgspec.structs.replace(by_class.pod, qos_label="BE"))
    by_priority = replace(by_priority, pod=msgspec.structs.replace(by_priority.pod, qos_label="LS"))
    assert {reason(one, node(silent="stale")) for one in (by_class, by_priority)} == {"stale"}


def test_a_silent_node_comes_behind_every_other() -> None:
    choice = chosen(service(), node("silent", (0, 0), silent="stale"), node("busy", (4_000, 10 * GIB)))
    assert order(choice) == ["busy", "silent"]
    assert [one.level for one in choice.ranked] == [10, 0]


def test_a_node_whose_best_effort_pods_leave_takes_no_new_one() -> None:
    for pressure in ("mem_over_line", "evicting"):
        assert reason(batch(), node(pressure=[pressure])) == pressure
        assert reason(service(), node(pressure=[pressure])) == ""


def test_a_node_that_holds_best_effort_pods_back_takes_one_only_where_no_other_does() -> None:
    choice = chosen(batch(), node("a", (0, 0), pressure=["cpu_suppressed"]), node("b", (4_000, 10 * GIB)))
    assert order(choice) == ["b", "a"]
    assert [one.level for one in choice.ranked] == [10, 0]


def test_what_is_sold_and_not_asked_for_yet_bounds_a_pod() -> None:
    exact = node(batch_left=Amounts(500, GIB))
    assert reason(batch(500, GIB), exact) == ""
    assert reason(batch(501, GIB), exact) == "batch_short:cpu"
    assert reason(batch(500, GIB + 1), exact) == "batch_short:memory"
    mid = asked((500, GIB), of_class="koord-mid")
    assert reason(mid, exact) == "mid_short:cpu"
    assert reason(mid, node(mid_left=Amounts(500, GIB - 1))) == "mid_short:memory"
    free = asked((500, GIB), of_class="koord-free")
    assert reason(free, exact) == "free_short:cpu"
    assert reason(free, node(free_left=Amounts(500, GIB))) == ""


def test_an_overloaded_node_is_refused_by_the_core() -> None:
    busy = node(used=(5_000, GIB))
    assert reason(batch(1_000), busy) == "usage_exceeds_threshold:cpu"


def test_a_daemonsets_pod_goes_everywhere() -> None:
    hopeless = node(used=(8_000, 16 * GIB), silent="stale", expired=True, batch_left=Amounts())
    assert reason(batch(daemonset=True), hopeless) == ""


def test_figures_that_have_expired_turn_services_away_too() -> None:
    assert reason(service(), node(silent="frozen", expired=True)) == "node_metric_expired"


def test_a_node_that_nobody_spoke_of_takes_services_and_attracts_none() -> None:
    assert order(chosen(service(), unknown("a"), node("b", (4_000, GIB)))) == ["b", "a"]
    assert reason(batch(), unknown(batch_left=Amounts())) == "batch_short:cpu"


def test_most_left_is_preferred_whatever_the_size_of_nodes() -> None:
    args = PlacementArgs(load_weight=0)
    small, large = node("small", batch_left=Amounts(2_000, 8 * GIB)), node("large", batch_left=Amounts(6_000, 8 * GIB))
    choice = chosen(batch(), small, large, args=args)
    assert order(choice) == ["large", "small"]
    # With the pod there 1.5 of at most 5.5 CPUs are left: memory is not what is short.
    assert [one.score_permille for one in choice.ranked] == [1_000, 272]


def test_what_is_left_is_told_with_the_pod_there_and_of_what_it_asks_for_alone() -> None:
    def left(pod: LoadAwarePod, **said: Any) -> Amounts:
        [ranked] = chosen(pod, node(**said)).ranked
        return ranked.willing.left

    assert left(batch(500, GIB)) == (3_500, 7 * GIB)
    assert left(batch(500, 0)) == (3_500, 0)
    assert left(batch(0, GIB)) == (0, 7 * GIB)
    assert left(batch(500, GIB, daemonset=True), batch_left=Amounts(100, 10)) == (0, 0), "it goes where too little is"
    assert left(service()) == (0, 0)
    assert chosen(batch()).most == (0, 0)


def test_load_and_balance_count_alike_unless_told_otherwise_and_load_alone_where_nothing_is_sold() -> None:
    [ranked] = chosen(batch(), node()).ranked
    assert ranked.score_permille == (ranked.willing.load_score * 10 + 1_000) // 2
    [alone] = chosen(service(), node(), args=PlacementArgs(load_weight=3)).ranked
    assert alone.score_permille == alone.willing.load_score * 10
    assert alone.terms["balance_permille"] == 0


def test_a_score_is_whole() -> None:
    args = PlacementArgs(load_weight=2)
    assert all(isinstance(one.score_permille, int) for one in chosen(batch(), node("a"), node("b"), args=args).ranked)


def test_the_weights_say_which_counts() -> None:
    idle = node("idle", (0, 0), batch_left=Amounts(1_000, 8 * GIB))
    roomy = node("roomy", (4_000, 8 * GIB))
    assert order(chosen(batch(), idle, roomy, args=PlacementArgs(balance_weight=0))) == ["idle", "roomy"]
    assert order(chosen(batch(), idle, roomy, args=PlacementArgs(load_weight=0))) == ["roomy", "idle"]
    nobody = chosen(batch(), idle, roomy, args=PlacementArgs(load_weight=0, balance_weight=0))
    assert [one.level for one in nobody.ranked] == [0, 0]


def test_terms_add_up_to_the_score() -> None:
    choice = chosen(batch(), node("a"), node("b", (2_000, 3 * GIB), batch_left=Amounts(2_000, 4 * GIB)))
    for one in choice.ranked:
        terms = one.terms
        total = terms["load_score"] * 10 * terms["load_weight"] + terms["balance_permille"] * terms["balance_weight"]
        assert terms["score_permille"] == total // (terms["load_weight"] + terms["balance_weight"])
        assert terms["used_milli"] == terms["existing_milli"] + terms["pod_milli"]
        assert terms["balance_permille"] == min(
            terms["left_milli"] * 1_000 // terms["most_left_milli"],
            terms["left_bytes"] * 1_000 // terms["most_left_bytes"],
        )


NODES = st.lists(
    st.builds(
        node,
        st.sampled_from("abcdefgh"),
        st.tuples(st.integers(0, 8_000), st.integers(0, 16 * GIB)),
        silent=st.sampled_from(["", "", "stale", "frozen"]),
        pressure=st.lists(st.sampled_from(["cpu_suppressed", "mem_over_line", "evicting"]), max_size=1),
        batch_left=st.builds(Amounts, st.integers(0, 4_000), st.integers(0, 8 * GIB)),
    ),
    unique_by=lambda one: one.name,
    max_size=8,
)
PODS = st.builds(
    lambda of_class, cpu, mem: asked((cpu, mem), of_class=of_class),
    st.sampled_from(["koord-prod", "koord-mid", "koord-batch", "koord-free"]),
    st.integers(0, 4_000),
    st.integers(0, 8 * GIB),
)


@given(PODS, NODES)
def test_each_node_either_refuses_or_is_ranked_and_the_order_they_are_asked_in_says_nothing(
    pod: LoadAwarePod, nodes: list[NodeView]
) -> None:
    choice = chosen(pod, *nodes)
    assert sorted([*choice.refused, *order(choice)]) == sorted(one.name for one in nodes)
    again = chosen(pod, *reversed(nodes))
    assert again.refused == choice.refused
    assert [(one.name, one.level) for one in again.ranked] == [(one.name, one.level) for one in choice.ranked]


def test_of_equal_nodes_the_first_by_name_are_the_best_however_many_are_asked_for() -> None:
    choice = chosen(service(), *(node(name) for name in "dcab"), node("e", (4_000, 10 * GIB)))
    assert choice.names == ["d", "c", "a", "b", "e"]
    assert order(choice) == ["a", "b", "c", "d", "e"]
    assert [[one.name for one in choice.best(count)] for count in (0, 1, 5, 6)] == [[], ["a"], [*"abcde"], [*"abcde"]]
    assert chosen(service()).best(1) == ()


@given(PODS, NODES)
def test_a_silent_node_never_attracts_and_takes_nothing_that_may_go(pod: LoadAwarePod, nodes: list[NodeView]) -> None:
    best_effort = asking(pod, ARGS).best_effort
    for one in chosen(pod, *nodes).ranked:
        assert not one.willing.node.silent or (one.level == 0 and not best_effort)


@given(PODS, NODES)
def test_the_core_has_the_last_word_on_load(pod: LoadAwarePod, nodes: list[NodeView]) -> None:
    """What the core turns away nobody lets in; what is ranked by load alone is ranked as the core scores it."""
    args = PlacementArgs(load=LoadAwareArgs(thresholds=Thresholds(usage=Percents(65, 95))), balance_weight=0)
    ask: Asking = asking(pod, args)
    for one in choose(ask, nodes, args).ranked:
        told = place(ask.candidate, one.willing.node.state, args.load, now_s=T)
        assert told.filtered.schedulable
        assert one.bound != "scored" or one.score_permille == told.scored.score * 10


@given(PODS, NODES, st.integers(0, 4_000), st.integers(0, 8 * GIB))
def test_more_left_never_makes_a_node_refuse_or_fall_behind(
    pod: LoadAwarePod, nodes: list[NodeView], cpu_milli: int, mem_bytes: int
) -> None:
    if not nodes:
        return
    first, *rest = nodes
    more = Amounts(first.batch_left.cpu_milli + cpu_milli, first.batch_left.mem_bytes + mem_bytes)
    before, after = chosen(pod, first, *rest), chosen(pod, first._replace(batch_left=more), *rest)
    if first.name in order(before):
        assert first.name in order(after)
        assert order(after).index(first.name) <= order(before).index(first.name)
