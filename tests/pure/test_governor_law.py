"""The governor's law: in no window are there more evictions than the budget, whatever is lost, late, or starts anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import EvictionBudget
from testbed.governed import NAMESPACES, Cluster

NODES = 3
NODE = st.integers(0, NODES - 1)
WAIT = st.tuples(st.just("wait"), st.integers(1, 5_000))
PRESS = st.tuples(st.just("press"), st.sampled_from(NAMESPACES))
EVENTS = st.one_of(
    WAIT,
    WAIT,
    PRESS,
    PRESS,
    st.tuples(st.just("evict"), NODE, st.sampled_from(NAMESPACES)),
    st.tuples(st.just("reboot"), NODE),
    st.tuples(st.just("silent"), NODE),
    st.tuples(st.just("repeat")),
    st.tuples(st.just("take over"), st.integers(0, 9_000), st.booleans(), st.booleans()),
)


@st.composite
def budgets(draw: st.DrawFn) -> EvictionBudget:
    most = draw(st.integers(1, 4))
    return EvictionBudget(
        cluster_max=most,
        node_max=draw(st.integers(1, most)),
        namespace_max=draw(st.integers(1, most)),
        interval_s=draw(st.sampled_from([4, 20])),
        lease_s=draw(st.sampled_from([3, 6])),
    )


def happens(cluster: Cluster, event: tuple) -> None:
    match event:
        case "press", namespace:
            for agent in cluster.agents:
                cluster.evict(agent, namespace)
        case "evict", number, namespace:
            cluster.evict(cluster.agents[number], namespace)
        case "wait", wait_ms:
            cluster.wait(wait_ms)
        case "reboot", number:
            cluster.agents[number].reboot()
        case ("repeat",):
            cluster.repeat_outcomes()
        case "take over", gap_ms, same, zombie:
            cluster.take_over(gap_ms, same=same, zombie=zombie)


@given(budgets(), st.lists(EVENTS, min_size=10, max_size=60), st.sampled_from([0.2, 0.5, 0.9]), st.integers(0, 2**32))
def test_in_no_window_are_there_more_evictions_than_the_budget(budget, events, faults, seed) -> None:
    cluster = Cluster(NODES, budget=budget, faults=faults, seed=seed)
    cluster.wait(5_000)
    for event in events:
        happens(cluster, event)

    assert cluster.most() <= budget.cluster_max
    assert cluster.most(1) <= budget.node_max
    assert cluster.most(2) <= budget.namespace_max


@pytest.mark.parametrize(
    ("limit", "reached"),
    [
        (EvictionBudget(cluster_max=4, node_max=4, namespace_max=4, interval_s=20, lease_s=6), (4, None)),
        (EvictionBudget(cluster_max=4, node_max=1, namespace_max=4, interval_s=20, lease_s=6), (1, 1)),
        (EvictionBudget(cluster_max=4, node_max=4, namespace_max=2, interval_s=20, lease_s=6), (2, 2)),
    ],
)
def test_who_is_pressed_for_long_gets_all_that_there_is(limit: EvictionBudget, reached: tuple) -> None:
    """A law that holds because nothing is ever granted would be none."""
    most, key = reached
    cluster = Cluster(3, budget=limit)
    for _ in range(300):
        for agent in cluster.agents:
            cluster.evict(agent, NAMESPACES[0])
        cluster.wait(500)

    assert cluster.most(key) == most
    windows = 150 / limit.interval_s
    assert len(cluster.evictions) >= 0.7 * windows * min(limit.cluster_max, limit.namespace_max, 3 * limit.node_max)
