"""The budget of evictions in the operator's ConfigMap."""

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.idle import unused
from slacktide.schemas.policy.strategies import EvictionBudget
from testbed.policies import config_map, policy_from
from testbed.snapshots import cases, refusal, situations

CASES = cases(__file__)

NODE = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
SAID = {"clusterMax": 8, "nodeMax": 2, "namespaceMax": 4, "intervalSeconds": 120, "leaseSeconds": 20}


def test_it_is_the_clusters_alone_and_each_field_is_read() -> None:
    parsed = parse(config_map(budget={**SAID, "nodeStrategies": []}), "policy.yaml")

    assert parsed.policy.eviction_budget == EvictionBudget(
        cluster_max=8, node_max=2, namespace_max=4, interval_s=120, lease_s=20
    )
    assert parsed.notes == ('policy.yaml: data["eviction-budget-config"].nodeStrategies: unknown, ignored',)
    assert not list(unused(parsed.policy))
    found = effective(parsed.policy, NODE)
    assert found.eviction_budget == parsed.policy.eviction_budget
    assert str(found.source("eviction_budget.node_max")) == "cluster strategy"


def test_a_policy_that_does_not_say_it_keeps_its_version() -> None:
    """Agents and workers that run already compare versions."""
    burst = {"clusterStrategy": {"policy": "auto"}}

    assert policy_from(budget={}).version == policy_from(budget={"clusterMax": 20}).version == DEFAULT.version
    assert policy_from(burst=burst).version == "964ea6235cd1"
    assert len({policy_from(burst=burst, budget=said).version for said in ({}, {"nodeMax": 3}, SAID)}) == 3


@situations("said", CASES["what_does_not_go_together_or_is_out_of_range_is_refused"])
def test_what_does_not_go_together_or_is_out_of_range_is_refused(said: dict, snapshot) -> None:
    assert refusal(ConfigError, lambda: policy_from(budget=said)) == snapshot
