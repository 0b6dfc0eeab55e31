"""What is set and does nothing: caught before the policy is applied, not in a node's log each second."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.features import CARRIED_OUT, FEATURES
from slacktide.schemas.policy.idle import idle, lacking, not_taken, unused
from slacktide.schemas.policy.keys import NAMES, leaves, name_of
from slacktide.schemas.policy.strategies import CpuBurst, ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.evict_tasks import Order
from slacktide.streams.decisions.evict.node_evict import CpuEvictNode, cpu_evict, memory_evict
from testbed.policies import policy_from
from testbed.snapshots import cases, situations

CASES = cases(__file__)

NODE = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
KINDS = {config.strategy: type(config.default) for config in CONFIGS}


def told(policy: Policy, facts: NodeFacts = NODE) -> str:
    """What is set in vain on a node: the ConfigMap's name of it, and why."""
    found = idle(effective(policy, facts))
    return "\n".join(f"{name_of(KINDS[one.strategy], one.field)}: {one.because}" for one in found)


def thresholds(**said: object) -> Policy:
    return policy_from(threshold={"clusterStrategy": {"enable": True, **said}})


@situations("said", CASES["a_threshold_that_changes_something_needs_no_word"])
def test_a_threshold_that_changes_something_needs_no_word(said: dict) -> None:
    assert told(thresholds(**said)) == ""


@situations("said", CASES["a_threshold_that_changes_nothing_says_why"])
def test_a_threshold_that_changes_nothing_says_why(said: dict, snapshot) -> None:
    assert told(thresholds(**said)) == snapshot


@situations("configs", CASES["what_another_field_switches_off_says_so"])
def test_what_another_field_switches_off_says_so(configs: dict, snapshot) -> None:
    assert told(policy_from(**configs)) == snapshot


@situations("given", CASES["a_feature_that_has_all_acts"])
def test_a_feature_that_has_all_acts(given: tuple[str, dict]) -> None:
    """Where its strategy is enabled."""
    feature, configs = given
    said = {name: body if name == "burst" else {"enable": True} | body for name, body in configs.items()}
    policy = policy_from(**{
        name: body if name == "colocation" else {"clusterStrategy": body} for name, body in said.items()
    })  # fmt: skip
    lacks = {each.name: lack for each, lack in lacking(effective(policy, NODE)).items()}

    assert lacks[feature] == ""


def test_a_quota_burst_without_its_percent_lacks_it() -> None:
    [quota_burst] = [feature for feature in FEATURES if feature.name == "CFSQuotaBurst"]

    assert quota_burst.lacks(CpuBurst(policy="auto", cfs_quota_burst_pct=None)) == "cfsQuotaBurstPercent is unset"


NONE = BeCpu(usage_milli=0, request_milli=0, limit_milli=0)
WINDOW = BeCpuWindow(average=NONE, current=NONE, samples=0, interval_s=1)
NODE_SHORT_OF_CPU = CpuEvictNode(capacity=1_000, used=1_000, allocatable=Resources(), pods=[], be=WINDOW)
EVICTIONS = ("BEMemoryEvict", "MemoryEvict", "MemoryAllocatableEvict", "BECPUEvict", "CPUEvict", "CPUAllocatableEvict")
percents = st.none() | st.sampled_from([0, 1, 2, 59, 60, 61, 70, 99, 100])


@given(
    threshold=st.builds(
        ResourceThreshold,
        enable=st.just(value=True),
        mem_evict_threshold_pct=percents,
        mem_evict_lower_pct=percents,
        cpu_evict_threshold_pct=percents,
        cpu_evict_lower_pct=percents,
        cpu_evict_be_satisfaction_lower_pct=percents,
        cpu_evict_be_satisfaction_upper_pct=percents,
        mem_allocatable_evict_threshold_pct=percents,
        mem_allocatable_evict_lower_pct=percents,
        cpu_allocatable_evict_threshold_pct=percents,
        cpu_allocatable_evict_lower_pct=percents,
        evict_enabled_priority_threshold=st.none() | st.just(5_999),
        allocatable_evict_priority_threshold=st.sampled_from([None, 7_999, 8_000]),
    )
)
def test_an_eviction_lacks_something_just_where_its_decision_would_refuse_the_thresholds(
    threshold: ResourceThreshold,
) -> None:
    lacks = {feature.name: feature.lacks(threshold) for feature in FEATURES if feature.name in EVICTIONS}
    tasks = [
        decide(NODE_SHORT_OF_CPU, features=EVICTIONS, policy=threshold, order=Order()).tasks
        for decide in (memory_evict, cpu_evict)
    ]

    assert {task.feature for both in tasks for task in both if task.release.status == "invalid_config"} == {
        name for name, lack in lacks.items() if lack
    }


def test_koord_free_sells_nothing_until_it_is_enabled_and_the_feature_says_it() -> None:
    off, on = (
        {feature.name: lack for feature, lack in lacking(effective(policy_from(colocation=said), NODE)).items()}
        for said in ({"enable": True}, {"enable": True, "freeClassEnable": True})
    )

    assert off["FreeResource"] == "freeClassEnable is false: pods of koord-free get no resources"
    assert on["FreeResource"] == ""


def test_what_the_cluster_says_may_wait_for_a_node_strategy_that_enables_it() -> None:
    """One begins with some nodes."""
    waiting = {"clusterStrategy": {"cpuSuppressMinPercent": 5}}
    some = {"name": "some", "nodeSelector": {"matchLabels": {"pool": "a"}}}

    def fields(*nodes: dict) -> list[tuple[str, str]]:
        found = unused(policy_from(threshold=waiting | {"nodeStrategies": list(nodes)}))
        return [(one.field, str(one.source)) for one in found]

    assert fields() == [("cpu_suppress_min_pct", "cluster strategy")]
    assert fields(some | {"enable": True}) == []
    assert fields(some | {"cpuSuppressThresholdPercent": 50}) == [
        ("cpu_suppress_min_pct", "cluster strategy"),
        ("cpu_suppress_threshold_pct", "node strategy some"),
    ]
    assert fields(some | {"enable": True, "cpuSuppressMinPercent": 6}) == [("cpu_suppress_min_pct", "cluster strategy")]


@pytest.mark.parametrize(
    ("policy", "field"), [("cpuBurstOnly", "cfs_quota_burst_pct"), ("cfsQuotaBurstOnly", "cpu_burst_pct")]
)
def test_of_what_waits_some_may_wait_in_vain(policy: str, field: str) -> None:
    burst = {
        "clusterStrategy": {"cpuBurstPercent": 500, "cfsQuotaBurstPercent": 400},
        "nodeStrategies": [{"name": "some", "nodeSelector": {"matchLabels": {"pool": "a"}}, "policy": policy}],
    }

    assert [one.field for one in unused(policy_from(burst=burst))] == [field]


def test_a_feature_may_lack_for_the_cluster_what_a_node_strategy_adds() -> None:
    cluster = {"clusterStrategy": {"enable": True, "cpuEvictThresholdPercent": 80}}
    node = {"name": "some", "nodeSelector": {"matchLabels": {"pool": "a"}}, "evictEnabledPriorityThreshold": 5999}

    assert [one.field for one in unused(policy_from(threshold=cluster))] == ["cpu_evict_threshold_pct"]
    assert list(unused(policy_from(threshold=cluster | {"nodeStrategies": [node]}))) == []


@situations("said", CASES["what_is_not_taken_of_a_nodes_annotation_or_label_is_told"])
def test_what_is_not_taken_of_a_nodes_annotation_or_label_is_told(said: dict, snapshot) -> None:
    found = not_taken(msgspec.structs.replace(NODE, **said))
    assert "\n".join(f"{what}: {why}" for what, why in found) == snapshot


def test_every_field_has_a_name_in_the_config_map_and_a_feature_that_goes_by_it() -> None:
    """Or it switches others."""
    for kind, names in NAMES.items():
        assert set(names.values()) == {field.name for field in msgspec.structs.fields(kind)}
    for config in CONFIGS:
        read = {field for one in FEATURES if one.strategy == config.strategy for field in one.fields}
        assert {field for field, _ in leaves(config.default) if field.rpartition(".")[2] != "enable"} == read


def test_what_is_carried_out_is_a_feature() -> None:
    assert {feature.name for feature in FEATURES} >= CARRIED_OUT
