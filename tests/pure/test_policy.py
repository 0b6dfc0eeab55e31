"""The operator's ConfigMap: what is read, what is refused and how it is said."""

import msgspec
import pytest

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.configmap import NODE_STRATEGIES_MAX
from slacktide.schemas.policy.resource_qos import BEST_EFFORT, BlkioBlock, BlkioLimits, ResourceQos
from slacktide.schemas.policy.selector import Requirement, Selector
from slacktide.schemas.policy.strategies import Colocation, CpuBurst
from testbed.policies import config_map, policy_from
from testbed.snapshots import cases, json_text, refusal, situations
from testbed.vectors import each_row

CASES = cases(__file__)

FILE = "policy.yaml"


def test_an_empty_config_map_is_the_reference_defaults_everything_off() -> None:
    assert parse(config_map(), FILE).policy == DEFAULT
    assert not DEFAULT.colocation.enable
    assert not DEFAULT.resource_threshold.enable


def pool(name: str, **said: object) -> dict:
    return {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}, **said}


def test_every_field_of_the_loop_is_read(snapshot) -> None:
    parsed = parse(config_map(**CASES["every_field_of_the_loop_is_read"]), FILE)

    assert json_text([parsed.policy.colocation, parsed.policy.resource_threshold]) == snapshot
    assert parsed.notes == ()


@situations("config", CASES["a_refusal_names_file_field_value_and_range"])
def test_a_refusal_names_file_field_value_and_range(config: dict, snapshot) -> None:
    assert refusal(ConfigError, lambda: parse(config_map(**config), FILE)) == snapshot


def test_more_strategies_than_a_sample_can_be_held_against_are_refused(snapshot) -> None:
    many = [pool(f"p{number}") for number in range(NODE_STRATEGIES_MAX + 1)]
    config = config_map(burst={"nodeStrategies": many})
    assert refusal(ConfigError, lambda: parse(config, FILE)) == snapshot


@each_row("document")
def test_what_is_no_config_map_is_refused(document: object, snapshot) -> None:
    assert refusal(ConfigError, lambda: parse(document, FILE)) == snapshot


@situations("config", CASES["what_deserves_a_note_gets_one"])
def test_what_deserves_a_note_gets_one(config: dict, snapshot) -> None:
    parsed = parse(config_map(**config), FILE)
    assert "\n".join([*parsed.notes, "unknown:", *parsed.unknown]) == snapshot


def test_only_enable_means_cpuset_which_acts() -> None:
    parsed = parse(config_map(threshold={"clusterStrategy": {"enable": True}}), FILE)

    assert parsed.policy.resource_threshold.cpu_suppress_policy == "cpuset"
    assert parsed.notes == ()


def test_the_version_is_the_content() -> None:
    one, same = (parse(config_map({"enable": True}), name).policy for name in ("a.yaml", "b.yaml"))
    other = parse(config_map({"enable": True, "cpuReclaimThresholdPercent": 61}), FILE).policy

    assert one.version == same.version != other.version


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


@each_row("durations", "seconds")
def test_spans_are_written_as_go_writes_them(durations: list[str], seconds: tuple[int, ...]) -> None:
    policy = policy_from(colocation={"metricAggregatePolicy": {"durations": durations}})

    assert policy.colocation.metric_aggregate_policy.durations_s == seconds


@pytest.mark.parametrize("durations", [[], "5m", ["5"], ["0s"], ["-5m"], ["5 m"], [5], ["999ms"]])
def test_what_is_no_span_is_refused(durations: object, snapshot) -> None:
    config = config_map(colocation={"metricAggregatePolicy": {"durations": durations}})
    assert refusal(ConfigError, lambda: parse(config, FILE)) == snapshot


@situations("selector", CASES["a_bad_selector_is_refused"])
def test_a_bad_selector_is_refused(selector: object, snapshot) -> None:
    """The reference would apply the strategy to no node, or to all, and say so in a log."""
    config = config_map(burst={"nodeStrategies": [{"name": "a", "nodeSelector": selector}]})
    assert refusal(ConfigError, lambda: parse(config, FILE)) == snapshot


def test_selectors_are_read_whole() -> None:
    expressions = [{"key": "koordinator.sh/pool", "operator": "NotIn", "values": ["a", ""]}]
    selector = {"matchLabels": {"x": ""}, "matchExpressions": expressions}
    [node] = policy_from(burst={"nodeStrategies": [{"nodeSelector": selector, "policy": "auto"}]}).node_cpu_burst

    assert node.name == "nodeStrategies[0]"
    assert node.selector == Selector(
        match_labels={"x": ""},
        match_expressions=(Requirement(key="koordinator.sh/pool", operator="NotIn", values=("a", "")),),
    )


def test_a_name_that_is_taken_is_told_apart_by_place() -> None:
    twice = [pool("a", policy="auto"), pool("b", policy="auto") | {"name": "a"}]
    assert [node.name for node in policy_from(burst={"nodeStrategies": twice}).node_cpu_burst] == [
        "a",
        "a (nodeStrategies[1])",
    ]


@situations("given", CASES["fields_that_do_not_go_together_are_refused_once"])
def test_fields_that_do_not_go_together_are_refused_once(given: tuple[dict, dict], snapshot) -> None:
    """Of the layer that brought it about; a layer above it inherits, and is not blamed."""
    cluster, node = given
    threshold = {"clusterStrategy": cluster, "nodeStrategies": [pool("a", **node), pool("b")]}
    assert refusal(ConfigError, lambda: parse(config_map(threshold=threshold), FILE)) == snapshot


@each_row("said")
def test_what_just_goes_together_is_accepted(said: dict) -> None:
    assert policy_from(threshold={"clusterStrategy": said}).said


def test_capitals_do_not_matter_as_they_do_not_in_the_reference() -> None:
    """Its own manual writes CPUEvictTimeWindowSeconds."""
    policy = policy_from(
        threshold={
            "ClusterStrategy": {"CPUEvictTimeWindowSeconds": 60},
            "NodeStrategies": [{"NodeSelector": {"MatchLabels": {"pool": "a"}}, "Enable": True}],
        }
    )
    assert policy.resource_threshold.cpu_evict_time_window_s == 60
    assert policy.node_resource_threshold[0].strategy.enable


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
