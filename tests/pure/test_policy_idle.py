"""What is set and does nothing: caught before the policy is applied, not in a node's log each second."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.features import CARRIED_OUT, FEATURES
from slacktide.schemas.policy.fields import leaves
from slacktide.schemas.policy.idle import idle, lacking, not_taken, unused
from slacktide.schemas.policy.names import NAMES, name_of
from slacktide.schemas.policy.node_overlay import ANNOTATION_STRATEGY
from slacktide.schemas.policy.strategies import CpuBurst, ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.cpu_evict import CpuEvictNode, cpu_evict
from slacktide.streams.decisions.evict.evict_candidates import Order
from slacktide.streams.decisions.evict.memory_evict import memory_evict
from testbed.policies import policy_from

NODE = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
KINDS = {config.strategy: type(config.default) for config in CONFIGS}


def told(policy: Policy, facts: NodeFacts = NODE) -> dict[str, str]:
    """What is set in vain on a node: the ConfigMap's name of it, and why."""
    return {name_of(KINDS[one.strategy], one.field): one.because for one in idle(effective(policy, facts))}


def thresholds(**said: object) -> Policy:
    return policy_from(threshold={"clusterStrategy": {"enable": True, **said}})


UNSET = "evictEnabledPriorityThreshold is unset"


@pytest.mark.parametrize(
    ("said", "in_vain"),
    [
        pytest.param({"memoryEvictThresholdPercent": 80, "evictEnabledPriorityThreshold": 5999}, {}, id="all there"),
        pytest.param({"memoryEvictThresholdPercent": 80}, {}, id="one of two features that go by it acts"),
        pytest.param(
            {"memoryEvictLowerPercent": 60},
            {},
            id="memory, and where it ends alone: its threshold has a default",
        ),
        pytest.param(
            {"evictEnabledPriorityThreshold": 5999, "cpuEvictThresholdPercent": 80},
            {},
            id="a priority for one of two features",
        ),
        pytest.param(
            {"evictEnabledPriorityThreshold": 5999},
            {},
            id="a priority alone: memory's threshold has a default",
        ),
        pytest.param({"cpuEvictThresholdPercent": 80}, {"cpuEvictThresholdPercent": UNSET}, id="no priority"),
        pytest.param({"cpuSuppressMinPercent": 64}, {}, id="a minimum below the threshold"),
        pytest.param(
            {"cpuSuppressMinPercent": 65},
            {
                "cpuSuppressThresholdPercent": "cpuSuppressMinPercent 65 is not below it: "
                "best-effort pods always get that much"
            },
            id="a minimum at the threshold",
        ),
        pytest.param(
            {"cpuEvictLowerPercent": 50},
            {"cpuEvictLowerPercent": "cpuEvictThresholdPercent is unset"},
            id="where it ends, not where it begins",
        ),
        pytest.param(
            {"memoryAllocatableEvictThresholdPercent": 110, "allocatableEvictPriorityThreshold": 5999},
            {
                "memoryAllocatableEvictThresholdPercent": "memoryAllocatableEvictLowerPercent is unset",
                "allocatableEvictPriorityThreshold": "memoryAllocatableEvictLowerPercent is unset; "
                "cpuAllocatableEvictThresholdPercent is unset",
            },
            id="no lower percent",
        ),
        pytest.param(
            {"cpuAllocatableEvictThresholdPercent": 110, "cpuAllocatableEvictLowerPercent": 100},
            {
                "cpuAllocatableEvictThresholdPercent": "allocatableEvictPriorityThreshold is unset",
                "cpuAllocatableEvictLowerPercent": "allocatableEvictPriorityThreshold is unset",
            },
            id="no priority for what was oversold",
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictTimeWindowSeconds": 60},
            {
                "cpuEvictBESatisfactionLowerPercent": "cpuEvictBESatisfactionUpperPercent is unset",
                "cpuEvictTimeWindowSeconds": "cpuEvictBESatisfactionUpperPercent is unset; "
                "cpuEvictThresholdPercent is unset",
            },
            id="half of the satisfaction",
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 61, "cpuEvictBESatisfactionUpperPercent": 80},
            dict.fromkeys(
                ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
                "cpuEvictBESatisfactionLowerPercent 61 must be from 1 to 60",
            ),
            id="satisfied too late",
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 100},
            dict.fromkeys(
                ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
                "cpuEvictBESatisfactionUpperPercent 100 must be from 60 (the lower percentage) to 99",
            ),
            id="never satisfied",
        ),
        pytest.param(
            {"cpuSuppressMinPercent": 70},
            {
                "cpuSuppressThresholdPercent": "cpuSuppressMinPercent 70 is not below it: "
                "best-effort pods always get that much"
            },
            id="a minimum over the threshold",
        ),
        pytest.param(
            {"enable": False, "cpuSuppressMinPercent": 5, "cpuSuppressThresholdPercent": 65},
            {"cpuSuppressMinPercent": "enable is false"},
            id="disabled; what equals its default is not worth a word",
        ),
    ],
)
def test_a_threshold_that_changes_nothing_says_why(said: dict, in_vain: dict) -> None:
    assert told(thresholds(**said)) == in_vain


@pytest.mark.parametrize(
    ("configs", "in_vain"),
    [
        pytest.param(
            {"colocation": {"cpuReclaimThresholdPercent": 70, "freeClassEnable": True}},
            {"cpuReclaimThresholdPercent": "enable is false", "freeClassEnable": "enable is false"},
            id="colocation is off",
        ),
        pytest.param(
            {"colocation": {"enable": True, "midStaticCPUReservedPercent": 10, "midCPUThresholdPercent": 50}},
            {"midStaticCPUReservedPercent": "midReclaimMode is not static"},
            id="a fixed share, but mid is predicted",
        ),
        pytest.param(
            {"colocation": {"enable": True, "midReclaimMode": "static", "midUnallocatedPercent": 10}},
            {"midUnallocatedPercent": "midReclaimMode is static"},
            id="a share of what is left, but mid is fixed",
        ),
        pytest.param(
            {"burst": {"clusterStrategy": {"cpuBurstPercent": 500, "cfsQuotaBurstPercent": 400}}},
            {"cpuBurstPercent": "policy is none", "cfsQuotaBurstPercent": "policy is none"},
            id="burst is off",
        ),
        pytest.param(
            {"burst": {"clusterStrategy": {"policy": "cpuBurstOnly", "sharePoolThresholdPercent": 40}}},
            {"sharePoolThresholdPercent": "policy is cpuBurstOnly"},
            id="the other burst",
        ),
        pytest.param(
            {"burst": {"clusterStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 100}}},
            {"cfsQuotaBurstPercent": "cfsQuotaBurstPercent 100 allows no quota above the limit"},
            id="a burst to the limit itself",
        ),
        pytest.param(
            {"qos": {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}}},
            {"beClass.cpuQOS.schedIdle": "policies.cpuPolicy is groupIdentity"},
            id="cpu.idle is the other policy's",
        ),
        pytest.param(
            {
                "qos": {
                    "clusterStrategy": {
                        "policies": {"cpuPolicy": "coreSched"},
                        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 1, "coreExpeller": True}},
                    }
                }
            },
            {"lsClass.cpuQOS.groupIdentity": "policies.cpuPolicy is coreSched"},
            id="group identity is the other policy's",
        ),
        pytest.param(
            {"qos": {"clusterStrategy": {"beClass": {"memoryQOS": {"enable": True, "priority": 3}}}}},
            {"beClass.memoryQOS.priority": "beClass.memoryQOS.priorityEnable is 0"},
            id="a kill priority without its switch",
        ),
        pytest.param(
            {"qos": {"clusterStrategy": {"beClass": {"resctrlQOS": {"catRangeEndPercent": 20}}}}},
            {"beClass.resctrlQOS.catRangeEndPercent": "beClass.resctrlQOS.enable is false"},
            id="a part of a class that is off",
        ),
    ],
)
def test_what_another_field_switches_off_says_so(configs: dict, in_vain: dict) -> None:
    assert told(policy_from(**configs)) == in_vain


@pytest.mark.parametrize(
    ("feature", "configs"),
    [
        pytest.param("SubPriority", {"threshold": {"subPriorityEnable": True}}, id="switched on"),
        pytest.param(
            "BECPUEvict",
            {"threshold": {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 99}},
            id="at the ends of both ranges",
        ),
        pytest.param(
            "CPUAllocatableEvict",
            {
                "threshold": {
                    "cpuAllocatableEvictThresholdPercent": 110,
                    "cpuAllocatableEvictLowerPercent": 100,
                    "allocatableEvictPriorityThreshold": 5_999,
                }
            },
            id="below the highest priority",
        ),
        pytest.param(
            "MidResource",
            {"colocation": {"midReclaimMode": "usage", "midUnallocatedPercent": 1}},
            id="a share of what nobody asked for",
        ),
        pytest.param("CFSQuotaBurst", {"burst": {"policy": "auto"}}, id="the default burst"),
        pytest.param("CFSQuotaBurst", {"burst": {"policy": "auto", "cfsQuotaBurstPercent": 101}}, id="a little burst"),
    ],
)
def test_a_feature_that_has_all_acts(feature: str, configs: dict) -> None:
    """Where its strategy is enabled."""
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


@settings(max_examples=200, deadline=None)
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
    node = {
        "name": "some",
        "nodeSelector": {"matchLabels": {"pool": "a"}},
        "evictEnabledPriorityThreshold": 5999,
    }

    assert [one.field for one in unused(policy_from(threshold=cluster))] == ["cpu_evict_threshold_pct"]
    assert list(unused(policy_from(threshold=cluster | {"nodeStrategies": [node]}))) == []


CPU_LABEL = "node.koordinator.sh/cpu-reclaim-ratio"


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        pytest.param('{"cpuReclaimThresholdPercent": 70}', [], id="good"),
        pytest.param("{}", [], id="empty"),
        pytest.param("{", ["ignored: it is not a JSON object"], id="not JSON"),
        pytest.param("[1]", ["ignored: it is not a JSON object"], id="no object"),
        pytest.param(
            '{"cpuReclaimThresholdPercent": "70", "midUnallocatedPercent": 1}',
            ["ignored whole: a value in it is of another type than the strategy's"],
            id="one wrong type spoils all",
        ),
        pytest.param('{"enable": false}', ["ignored: no key that a node may set"], id="not a node's to say"),
        pytest.param(
            '{"midUnallocatedPercent": 250}',
            ["250 is taken, although it is not a whole number from 0 to 100"],
            id="out of range",
        ),
    ],
)
def test_of_a_nodes_annotation_it_is_told_what_is_not_taken(annotation: str, said: list[str]) -> None:
    facts = msgspec.structs.replace(NODE, annotations={ANNOTATION_STRATEGY: annotation})

    assert [why for _, why in not_taken(facts)] == said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        ("0.5", []),
        ("-0.5", ["'-0.5' is ignored: accepted: a decimal, 0 or more"]),
        ("half", ["'half' is ignored: accepted: a decimal, 0 or more"]),
    ],
)
def test_a_ratio_label_that_is_no_ratio_is_told(ratio: str, said: list[str]) -> None:
    facts = msgspec.structs.replace(NODE, labels={CPU_LABEL: ratio})

    assert [why for _, why in not_taken(facts)] == said


def test_every_field_has_a_name_in_the_config_map_and_a_feature_that_goes_by_it() -> None:
    """Or it switches others."""
    for kind, names in NAMES.items():
        assert set(names.values()) == {field.name for field in msgspec.structs.fields(kind)}
    for config in CONFIGS:
        read = {field for one in FEATURES if one.strategy == config.strategy for field in one.fields}
        assert {field for field, _ in leaves(config.default) if field.rpartition(".")[2] != "enable"} == read


def test_what_is_carried_out_is_a_feature() -> None:
    assert {feature.name for feature in FEATURES} >= CARRIED_OUT
