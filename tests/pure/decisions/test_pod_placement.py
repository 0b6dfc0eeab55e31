"""Which nodes take a pod, and which of them should."""

from typing import Any

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


BATCH, SERVICE = asked((500, GIB), of_class="koord-batch"), asked((500, GIB))


def node(name: str = "a", used: tuple[int, int] = (1_000, GIB), **said: Any) -> NodeView:
    """One that reported its use and has half of itself left for batch pods."""
    load = AssignCache(args=ARGS.load, report=report(used)).load()
    state = NodeState(allocatable=WHOLE, custom=Thresholds(), load=load, args=ARGS.load)
    return NodeView(**{"name": name, "state": state, "batch_left": LEFT, **said})


def chosen(pod: LoadAwarePod, *nodes: NodeView, args: PlacementArgs = ARGS) -> Choice:
    return choose(asking(pod, args), nodes, args)


def order(choice: Choice) -> list[str]:
    return [one.name for one in choice.ranked]


def test_a_score_is_whole() -> None:
    assert chosen(BATCH).most == (0, 0), "of no node"
    args = PlacementArgs(load_weight=2)
    assert all(isinstance(one.score_permille, int) for one in chosen(BATCH, node("a"), node("b"), args=args).ranked)


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
    choice = chosen(SERVICE, *(node(name) for name in "dcab"), node("e", (4_000, 10 * GIB)))
    assert choice.names == ["d", "c", "a", "b", "e"]
    assert order(choice) == ["a", "b", "c", "d", "e"]
    assert [[one.name for one in choice.best(count)] for count in (0, 1, 5, 6)] == [[], ["a"], [*"abcde"], [*"abcde"]]
    assert chosen(SERVICE).best(1) == ()


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
