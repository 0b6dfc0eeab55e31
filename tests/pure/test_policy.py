"""The operator's ConfigMap: what is read, what is refused and how it is said."""

import msgspec
import pytest

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.configmap import NODE_STRATEGIES_MAX
from slacktide.schemas.policy.resource_qos import BEST_EFFORT, BlkioBlock, BlkioLimits, ResourceQos
from slacktide.schemas.policy.selector import Requirement, Selector
from slacktide.schemas.policy.strategies import Colocation, CpuBurst, ResourceThreshold
from testbed.policies import config_map, policy_from

FILE = "policy.yaml"


def test_an_empty_config_map_is_the_reference_defaults_everything_off() -> None:
    assert parse(config_map(), FILE).policy == DEFAULT
    assert not DEFAULT.colocation.enable
    assert not DEFAULT.resource_threshold.enable


def test_every_field_of_the_loop_is_read() -> None:
    parsed = parse(
        config_map(
            {"enable": True, "metricAggregateDurationSeconds": 10, "cpuReclaimThresholdPercent": 80},
            {
                "clusterStrategy": {
                    "enable": True,
                    "cpuSuppressThresholdPercent": 70,
                    "cpuSuppressMinPercent": 5,
                    "cpuSuppressPolicy": "cfsQuota",
                }
            },
        ),
        FILE,
    )

    assert parsed.policy.colocation == Colocation(
        enable=True, metric_aggregate_duration_s=10, cpu_reclaim_threshold_pct=80
    )
    assert parsed.policy.resource_threshold == ResourceThreshold(
        enable=True, cpu_suppress_threshold_pct=70, cpu_suppress_min_pct=5, cpu_suppress_policy="cfsQuota"
    )
    assert parsed.notes == ()


THRESHOLD_PATH = 'data["resource-threshold-config"].clusterStrategy'


@pytest.mark.parametrize(
    ("strategy", "field", "value", "accepted"),
    [
        ({"cpuSuppressThresholdPercent": 101}, "cpuSuppressThresholdPercent", "101", "a whole number from 0 to 100"),
        ({"cpuSuppressThresholdPercent": -1}, "cpuSuppressThresholdPercent", "-1", "a whole number from 0 to 100"),
        ({"cpuSuppressThresholdPercent": 6.5}, "cpuSuppressThresholdPercent", "6.5", "a whole number from 0 to 100"),
        ({"cpuSuppressMinPercent": True}, "cpuSuppressMinPercent", "true", "a whole number from 0 to 100"),
        ({"cpuSuppressThresholdPercent": "65"}, "cpuSuppressThresholdPercent", "'65'", "a whole number from 0 to 100"),
        ({"enable": "yes"}, "enable", "'yes'", "true or false"),
        ({"cpuSuppressPolicy": "quota"}, "cpuSuppressPolicy", "'quota'", '"cpuset" or "cfsQuota"'),
    ],
)
def test_a_refusal_names_file_field_value_and_range(strategy: dict, field: str, value: str, accepted: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(config_map(threshold={"clusterStrategy": strategy}), FILE)

    assert str(refused.value) == f"{FILE}: {THRESHOLD_PATH}.{field}: {value}: accepted: {accepted}"


def test_all_findings_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        parse(
            config_map(
                {"enable": 1, "metricAggregateDurationSeconds": 0}, {"clusterStrategy": {"cpuSuppressMinPercent": 200}}
            ),
            FILE,
        )

    assert [finding.field.rpartition(".")[2] for finding in refused.value.findings] == [
        "enable",
        "metricAggregateDurationSeconds",
        "cpuSuppressMinPercent",
    ]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"kind": "Node"},
        {"kind": "ConfigMap", "data": []},
        {"kind": "ConfigMap", "data": {"colocation-config": "{"}},
        {"kind": "ConfigMap", "data": {"colocation-config": "[1]"}},
        {"kind": "ConfigMap", "data": {"resource-threshold-config": '{"clusterStrategy": 3}'}},
        {"kind": "ConfigMap", "data": {"colocation-config": 7}},
    ],
)
def test_what_is_no_config_map_is_refused(document: object) -> None:
    with pytest.raises(ConfigError):
        parse(document, FILE)


def test_keys_known_but_not_carried_out_and_unknown_keys_are_called_out() -> None:
    parsed = parse(
        config_map(
            {"metricMemoryCollectPolicy": "usageWithPageCache", "cpuReclaimThreshold": 60},
            {"clusterStrategy": {}, "nodeStrategies": [], "clusterStrategies": {}},
            **{"system-config": "{}", "typo-config": ""},
        ),
        FILE,
    )

    assert [note.split(": ", 1)[1] for note in parsed.notes] == [
        'data["system-config"]: not yet in effect',
        'data["typo-config"]: unknown, ignored; did you mean agent-config?',
        'data["colocation-config"].cpuReclaimThreshold: unknown, ignored; did you mean cpuReclaimThresholdPercent?',
        'data["colocation-config"].metricMemoryCollectPolicy: checked, not yet in effect',
        'data["resource-threshold-config"].clusterStrategies: unknown, ignored; did you mean clusterStrategy?',
    ]
    assert [note.split(": ", 1)[1].split(":")[0] for note in parsed.unknown] == [
        'data["typo-config"]',
        'data["colocation-config"].cpuReclaimThreshold',
        'data["resource-threshold-config"].clusterStrategies',
    ]


def test_only_enable_means_cpuset_which_acts() -> None:
    parsed = parse(config_map(threshold={"clusterStrategy": {"enable": True}}), FILE)

    assert parsed.policy.resource_threshold.cpu_suppress_policy == "cpuset"
    assert parsed.notes == ()


def test_the_version_is_the_content() -> None:
    one, same = (parse(config_map({"enable": True}), name).policy for name in ("a.yaml", "b.yaml"))
    other = parse(config_map({"enable": True, "cpuReclaimThresholdPercent": 61}), FILE).policy

    assert one.version == same.version != other.version


def refused(**configs: object) -> list[str]:
    """Findings, without the file's name."""
    with pytest.raises(ConfigError) as refusal:
        parse(config_map(**configs), FILE)
    return [str(finding).removeprefix(f"{FILE}: ") for finding in refusal.value.findings]


def pool(name: str, **said: object) -> dict:
    return {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}, **said}


def test_a_nodes_strategy_is_the_clusters_with_its_own_fields_in_place() -> None:
    policy = policy_from(
        colocation={"enable": True, "cpuReclaimThresholdPercent": 70, "nodeConfigs": [pool("a", degradeTimeMinutes=5)]},
        burst={"clusterStrategy": {"policy": "auto"}, "nodeStrategies": [pool("a", cfsQuotaBurstPercent=400)]},
    )
    [colocation], [burst] = policy.node_colocation, policy.node_cpu_burst

    assert (colocation.name, colocation.said) == ("a", ["degrade_time_min"])
    assert colocation.selector == Selector(match_labels={"pool": "a"})
    assert colocation.strategy == Colocation(enable=True, cpu_reclaim_threshold_pct=70, degrade_time_min=5)
    assert burst.strategy == CpuBurst(policy="auto", cfs_quota_burst_pct=400)
    assert policy.said == ["colocation.enable", "colocation.cpu_reclaim_threshold_pct", "cpu_burst.policy"]


def test_classes_of_pods_have_their_own_defaults_and_what_is_said_of_one_leaves_the_others() -> None:
    memory = {"enable": True, "wmarkRatio": 90}
    block = {"name": "/dev/sdb", "type": "device", "ioCfg": {"readIOPS": 20480, "ioWeightPercent": 60}}
    blkio = {"enable": True, "blocks": [block]}
    qos = policy_from(
        qos={"clusterStrategy": {"beClass": {"memoryQOS": memory, "blkioQOS": blkio,
                                             "networkQOS": {"egressLimit": "50M", "ingressLimit": 30}}}}
    ).resource_qos  # fmt: skip

    assert (qos.lsr, qos.ls) == (ResourceQos().lsr, ResourceQos().ls)
    assert qos.be.mem == msgspec.structs.replace(BEST_EFFORT.mem, enable=True, wmark_ratio_pct=90)
    assert (qos.be.cpu.group_identity, qos.ls.cpu.group_identity) == (-1, 2)
    assert qos.be.blkio.blocks == (BlkioBlock(name="/dev/sdb", limits=BlkioLimits(read_iops=20480, io_weight_pct=60)),)
    assert (qos.be.network.egress_limit, qos.be.network.ingress_limit) == ("50M", 30)


@pytest.mark.parametrize(
    ("durations", "seconds"),
    [(["5m", "10m", "30m"], (300, 600, 1800)), (["1h30m"], (5400,)), (["90s", "1500ms"], (90, 1)), (["1.5h"], (5400,))],
)
def test_spans_are_written_as_go_writes_them(durations: list[str], seconds: tuple[int, ...]) -> None:
    policy = policy_from(colocation={"metricAggregatePolicy": {"durations": durations}})

    assert policy.colocation.metric_aggregate_policy.durations_s == seconds


@pytest.mark.parametrize("durations", [[], "5m", ["5"], ["0s"], ["-5m"], ["5 m"], [5], ["999ms"]])
def test_what_is_no_span_is_refused(durations: object) -> None:
    [finding] = refused(colocation={"metricAggregatePolicy": {"durations": durations}})

    assert finding.startswith('data["colocation-config"].metricAggregatePolicy.durations: ')
    assert finding.endswith("accepted: a list of durations such as 5m or 1h30m, 1s or more each")


@pytest.mark.parametrize(
    ("configs", "finding"),
    [
        pytest.param(
            {"colocation": {"nodeConfigs": [pool("a"), pool("b", cpuReclaimThresholdPercent=-1)]}},
            'data["colocation-config"].nodeConfigs[1].cpuReclaimThresholdPercent: -1: '
            "accepted: a whole number from 0 to 2147483647",
            id="a field of a node's strategy",
        ),
        pytest.param(
            {"qos": {"nodeStrategies": [pool("a", beClass={"memoryQOS": {"wmarkMinAdj": 51}})]}},
            'data["resource-qos-config"].nodeStrategies[0].beClass.memoryQOS.wmarkMinAdj: 51: '
            "accepted: a whole number from -25 to 50",
            id="a field of a part",
        ),
        pytest.param(
            {"qos": {"clusterStrategy": {"cgroupRoot": {"blkioQOS": {"blocks": [{"type": "disk"}]}}}}},
            "data[\"resource-qos-config\"].clusterStrategy.cgroupRoot.blkioQOS.blocks[0].type: 'disk': "
            'accepted: "device" or "volumegroup" or "podvolume"',
            id="a field of a list's item",
        ),
        pytest.param(
            {"qos": {"clusterStrategy": {"beClass": {"networkQOS": {"egressLimit": "fast"}}}}},
            "data[\"resource-qos-config\"].clusterStrategy.beClass.networkQOS.egressLimit: 'fast': "
            "accepted: a whole number from 0 to 100, or a quantity such as 50M",
            id="one of two kinds",
        ),
        pytest.param(
            {"burst": {"clusterStrategy": {"cpuBurstPercent": 0}}},
            'data["cpu-burst-config"].clusterStrategy.cpuBurstPercent: 0: accepted: a whole number from 1 to 10000',
            id="burst",
        ),
        pytest.param(
            {"threshold": {"clusterStrategy": {"cpuEvictPolicy": "evictByMood"}}},
            "data[\"resource-threshold-config\"].clusterStrategy.cpuEvictPolicy: 'evictByMood': "
            'accepted: "evictByRealLimit" or "evictByAllocatable"',
            id="what the reference would take for the default without a word",
        ),
        pytest.param(
            {"colocation": {"cpuReclaimThresholdPercent": 2**63}},
            'data["colocation-config"].cpuReclaimThresholdPercent: 9223372036854775808: '
            "accepted: a whole number from 0 to 2147483647",
            id="more than 64 bits",
        ),
        pytest.param(
            {"colocation": {"resourceDiffThreshold": 0}},
            'data["colocation-config"].resourceDiffThreshold: 0: accepted: a number above 0, up to 1',
            id="a fraction",
        ),
        pytest.param(
            {"colocation": {"nodeConfigs": 3}},
            'data["colocation-config"].nodeConfigs: 3: accepted: a list',
            id="no list",
        ),
        pytest.param(
            {"burst": {"nodeStrategies": ["a"]}},
            "data[\"cpu-burst-config\"].nodeStrategies[0]: 'a': accepted: a JSON object",
            id="no object",
        ),
        pytest.param(
            {"burst": {"nodeStrategies": [pool("a") | {"name": 7}]}},
            'data["cpu-burst-config"].nodeStrategies[0].name: 7: accepted: a text',
            id="no name",
        ),
    ],
)
def test_a_refusal_names_the_path_wherever_the_field_is(configs: dict, finding: str) -> None:
    assert finding in refused(**configs)


SELECTOR = 'data["cpu-burst-config"].nodeStrategies[0].nodeSelector'
NAMED = "a label's value, as text"


@pytest.mark.parametrize(
    ("selector", "finding"),
    [
        (None, ": null: accepted: a selector with matchLabels or matchExpressions"),
        ({}, ": {}: accepted: a selector with matchLabels or matchExpressions"),
        ({"matchLabels": {"pool": 7}}, f'.matchLabels["pool"]: 7: accepted: {NAMED}'),
        ({"matchLabels": {"pool": "a b"}}, f".matchLabels[\"pool\"]: 'a b': accepted: {NAMED}"),
        ({"matchLabels": {"-pool": "a"}}, ".matchLabels: '-pool': accepted: a label's key"),
        ({"matchLabels": {f"{'x' * 254}/pool": "a"}}, f".matchLabels: '{'x' * 79}: accepted: a label's key"),
        ({"matchLabels": []}, ".matchLabels: []: accepted: a JSON object"),
        (
            {"matchExpressions": [{"key": "pool", "operator": "is"}]},
            '.matchExpressions[0].operator: \'is\': accepted: "In" or "NotIn" or "Exists" or "DoesNotExist"',
        ),
        (
            {"matchExpressions": [{"key": "pool", "operator": "In"}]},
            ".matchExpressions[0].values: []: accepted: values for In and NotIn, none for Exists and DoesNotExist",
        ),
        ({"matchExpressions": [{"operator": "Exists"}]}, ".matchExpressions[0].key: null: accepted: a label's key"),
    ],
)
def test_a_bad_selector_is_refused(selector: object, finding: str) -> None:
    """The reference would apply the strategy to no node, or to all, and say so in a log."""
    assert refused(burst={"nodeStrategies": [{"name": "a", "nodeSelector": selector}]}) == [SELECTOR + finding]


def test_selectors_are_read_whole() -> None:
    expressions = [{"key": "koordinator.sh/pool", "operator": "NotIn", "values": ["a", ""]}]
    selector = {"matchLabels": {"x": ""}, "matchExpressions": expressions}
    [node] = policy_from(burst={"nodeStrategies": [{"nodeSelector": selector, "policy": "auto"}]}).node_cpu_burst

    assert node.name == "nodeStrategies[0]"
    assert node.selector == Selector(
        match_labels={"x": ""},
        match_expressions=(Requirement(key="koordinator.sh/pool", operator="NotIn", values=("a", "")),),
    )


def test_strategies_that_meet_on_a_node_are_refused() -> None:
    """Which of them holds would be a matter of order."""
    both = {"name": "both", "nodeSelector": {"matchLabels": {"pool": "a", "zone": "z"}}}

    assert refused(burst={"nodeStrategies": [pool("b"), pool("a"), both]}) == [
        (
            'data["cpu-burst-config"].nodeStrategies[2].nodeSelector: {"matchLabels":{"pool":"a","zone":"z"}}: '
            "accepted: a selector of other nodes than nodeStrategies[1]'s"
        )
    ]


def test_more_strategies_than_a_sample_can_be_held_against_are_refused() -> None:
    many = [pool(f"p{number}") for number in range(NODE_STRATEGIES_MAX + 1)]

    assert refused(burst={"nodeStrategies": many}) == [
        "data[\"cpu-burst-config\"].nodeStrategies: '501 of them': accepted: at most 500"
    ]


def test_a_name_that_is_taken_is_told_apart_by_place() -> None:
    twice = [pool("a", policy="auto"), pool("b", policy="auto") | {"name": "a"}]
    parsed = parse(config_map(burst={"nodeStrategies": twice}), FILE)

    assert [node.name for node in parsed.policy.node_cpu_burst] == ["a", "a (nodeStrategies[1])"]
    assert parsed.notes[-1].endswith(
        "nodeStrategies[1].name: 'a' is also an earlier one's name: they are distinguished by position"
    )


@pytest.mark.parametrize(
    ("cluster", "node", "finding"),
    [
        pytest.param(
            {"memoryEvictLowerPercent": 70},
            {},
            "clusterStrategy.memoryEvictLowerPercent: 70: accepted: below memoryEvictThresholdPercent, which is 70",
            id="beside a default",
        ),
        pytest.param(
            {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 75},
            {"memoryEvictThresholdPercent": 60},
            "nodeStrategies[0].memoryEvictThresholdPercent: 60: accepted: above memoryEvictLowerPercent, which is 75",
            id="beside what the cluster says",
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 40},
            {},
            "clusterStrategy.cpuEvictBESatisfactionLowerPercent: 50: "
            "accepted: at most cpuEvictBESatisfactionUpperPercent, which is 40",
            id="the wrong way round",
        ),
        pytest.param(
            {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 60},
            {"cpuEvictBESatisfactionUpperPercent": 40},
            "nodeStrategies[0].cpuEvictBESatisfactionUpperPercent: 40: "
            "accepted: at least cpuEvictBESatisfactionLowerPercent, which is 50",
            id="the wrong way round on a node",
        ),
        pytest.param(
            {"allocatableEvictPriorityThreshold": 8000},
            {},
            "clusterStrategy.allocatableEvictPriorityThreshold: 8000: accepted: at most 7999, the maximum of koord-mid",
            id="a priority of production",
        ),
    ],
)
def test_fields_that_do_not_go_together_are_refused_once(cluster: dict, node: dict, finding: str) -> None:
    """Of the layer that brought it about; a layer above it inherits, and is not blamed."""
    threshold = {"clusterStrategy": cluster, "nodeStrategies": [pool("a", **node), pool("b")]}

    assert refused(threshold=threshold) == [f'data["resource-threshold-config"].{finding}']


def test_a_range_of_cache_begins_before_it_ends() -> None:
    assert refused(qos={"clusterStrategy": {"beClass": {"resctrlQOS": {"catRangeStartPercent": 30}}}}) == [
        (
            'data["resource-qos-config"].clusterStrategy.beClass.resctrlQOS.catRangeStartPercent: 30: '
            "accepted: below beClass.resctrlQOS.catRangeEndPercent, which is 30"
        )
    ]


@pytest.mark.parametrize(
    "said",
    [
        {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 50},
        {"memoryAllocatableEvictThresholdPercent": 110, "memoryAllocatableEvictLowerPercent": 100},
        {"cpuEvictThresholdPercent": 60, "cpuEvictLowerPercent": 59},
        {"allocatableEvictPriorityThreshold": 7999},
    ],
)
def test_what_just_goes_together_is_accepted(said: dict) -> None:
    assert policy_from(threshold={"clusterStrategy": said}).said


def test_capitals_do_not_matter_as_they_do_not_in_the_reference() -> None:
    """Its own manual writes CPUEvictTimeWindowSeconds."""
    body = {"ClusterStrategy": {"CPUEvictTimeWindowSeconds": 60}, "NodeStrategies": [
        {"Name": "a", "NodeSelector": {"MatchLabels": {"pool": "a"}}, "Enable": True}
    ]}  # fmt: skip
    parsed = parse(config_map(threshold=body), FILE)

    assert parsed.policy.resource_threshold.cpu_evict_time_window_s == 60
    assert parsed.policy.node_resource_threshold[0].strategy.enable
    assert [note.rpartition(": ")[2] for note in parsed.notes if "read as" in note] == [
        "read as clusterStrategy",
        "read as nodeStrategies",
        "read as cpuEvictTimeWindowSeconds",
        "read as name",
        "read as nodeSelector",
        "read as enable",
        "read as matchLabels",
    ]


def test_a_nodes_strategy_that_says_nothing_is_called_out() -> None:
    parsed = parse(config_map(burst={"nodeStrategies": [pool("a")]}), FILE)

    assert parsed.notes == (
        (
            f'{FILE}: data["cpu-burst-config"].nodeStrategies[0]: is empty: '
            "nodes that it matches use the cluster's strategy"
        ),
    )


def test_null_is_the_same_as_nothing() -> None:
    body = {"clusterStrategy": {"policy": None}, "nodeStrategies": None}

    assert policy_from(burst=body, threshold={"clusterStrategy": None}, qos=None) == DEFAULT


def test_what_is_equal_is_written_the_same_whoever_said_it() -> None:
    """A default that is said is the same bytes as one that is not."""
    said = policy_from(qos={"clusterStrategy": {"lsClass": {"cpuQOS": {"groupIdentity": 2}}}})

    assert said.version == DEFAULT.version
    assert b"resource_qos" not in msgspec.json.encode(msgspec.structs.replace(said, said=[]))


def test_slacktides_own_switches_are_read() -> None:
    policy = policy_from(
        colocation={"freeClassEnable": True},
        threshold={"clusterStrategy": {"subPriorityEnable": True, "memoryEvictFallback": "kill"}},
    )

    assert policy.colocation.free_class_enable
    assert policy.resource_threshold.sub_priority_enable
    assert policy.resource_threshold.mem_evict_fallback == "kill"
