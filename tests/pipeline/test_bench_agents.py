"""What `make bench` measures of agents' connections, with few of them: that it holds, not what it costs."""

import pytest
from bench import agents
from bench.rig import Rig

from testbed.brokers import KafkaCluster

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.timeout(300)]
AGENTS = 12


def test_agents_on_three_brokers_are_answered_and_everything_they_cost_is_told(kafka_cluster: KafkaCluster) -> None:
    with Rig(virtual=True, brief=True, nodes=AGENTS) as rig:
        whole, brokers, connections, requests, worker = agents.on(rig, kafka_cluster)

    assert all(f" {AGENTS} agents" in row.figure for row in (whole, brokers, connections, requests, worker))
    assert whole.values["sum_pct"] > whole.values["agent_pct"] > 0.1
    # At least a producer and a reader that follows leaders on three brokers.
    assert int(connections.n) >= 4 * AGENTS
    assert requests.values["kinds"].keys() >= {"Fetch", "Produce"}
    assert requests.values["per_1000"] > 1_000
    assert worker.values["per_1000_pct"] > 0.0
