"""How well the zones of a node suit a pod."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.filter import Node
from slacktide.streams.decisions.numa.score import STRATEGIES, Score, Strategy, numa_score
from slacktide.streams.decisions.numa.topology import Kubelet, Pod, Zone
from testbed.numa_nodes import init, nodes, pod, pods, zone

ZONES = [zone(0, 8000), zone(1, 4000)]


def score(
    one: Pod,
    strategy: Strategy = "LeastAllocated",
    zones: list[Zone] | None = ZONES,
    *,
    corrected: bool = False,
    **kubelet: str,
) -> Score:
    settings = Kubelet(**({"policy": "single-numa-node"} | kubelet))
    return numa_score(one, settings, zones, strategy, {}, corrected=corrected)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_guaranteed_pods_are_scored_and_only_with_a_topology(strategy: Strategy) -> None:
    burstable = score(pod({"cpu": 1000}, qos="Burstable"), strategy, None)
    unknown = score(pod({"cpu": 1000}), strategy, None)

    assert (burstable.score, burstable.because.bound) == (100, "not_guaranteed")
    assert (unknown.score, unknown.because.bound) == (0, "no_topology")


def test_least_numa_nodes_scores_under_every_policy_and_the_others_under_one() -> None:
    one = pod({"cpu": 2000})
    other = score(one, policy="restricted")

    assert (other.score, other.because.bound) == (0, "other_policy")
    assert score(one, "LeastNUMANodes", policy="none").score == 94
    assert score(one).because.terms == {"total_score": 50, "request_count": 1, "score": 50}
    assert score(one, "LeastNUMANodes").because.terms == {"max_zone_count": 8, "zone_count": 1, "score": 94}
    assert score(one, "LeastNUMANodes").because.of == "score"


def test_in_container_scope_the_mean_is_truncated_and_init_containers_count() -> None:
    one = pod({"cpu": 2000}, {"cpu": 1000}, inits=[init({"cpu": 3000})])

    assert score(one).score == (50 + 75 + 25) // 3
    assert score(pod({"cpu": 2000}, {"cpu": 3000})).score == 37
    assert score(one, scope="pod").score == 25
    assert score(pod()).score == 0


def test_corrected_a_pod_level_request_is_one_request() -> None:
    one = pod({}, {}, pod_level={"cpu": 2000})

    assert score(one).score == 0
    assert score(one, corrected=True).score == 50
    assert score(one, "LeastNUMANodes", corrected=True).score == 94


def test_corrected_cpu_counts_in_millicores() -> None:
    single = Kubelet(policy="single-numa-node")

    assert numa_score(pod({"cpu": 200}), single, [zone(0, 500)], "LeastAllocated", {}).score == 0
    assert score(pod({"cpu": 200}), zones=[zone(0, 500)], corrected=True).score == 60


@given(pods(), nodes(), st.sampled_from(STRATEGIES))
def test_corrected_scores_are_0_to_100(one: Pod, node: Node, strategy: Strategy) -> None:
    assert 0 <= numa_score(one, node.kubelet, node.zones, strategy, {}, corrected=True).score <= 100
