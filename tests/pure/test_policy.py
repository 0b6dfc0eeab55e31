"""The operator's ConfigMap: what is read, what is refused and how it is said."""

import json

import pytest

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold

FILE = "policy.yaml"


def config_map(colocation: object = None, threshold: object = None, **data: str) -> dict:
    if colocation is not None:
        data["colocation-config"] = json.dumps(colocation)
    if threshold is not None:
        data["resource-threshold-config"] = json.dumps(threshold)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data}


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
            {"degradeTimeMinutes": 15, "cpuReclaimThreshold": 60},
            {"clusterStrategy": {"memoryEvictThresholdPercent": 70}, "nodeStrategies": [], "clusterStrategies": {}},
            **{"cpu-burst-config": '{"clusterStrategy": {"policy": "auto"}}', "system-config": "{}", "typo-config": ""},
        ),
        FILE,
    )

    assert [note.split(": ", 1)[1] for note in parsed.notes] == [
        'data["system-config"]: not yet in effect',
        'data["typo-config"]: unknown, ignored',
        'data["colocation-config"].cpuReclaimThreshold: unknown, ignored',
        'data["colocation-config"].degradeTimeMinutes: checked, not yet in effect',
        'data["resource-threshold-config"].clusterStrategies: unknown, ignored',
        'data["resource-threshold-config"].clusterStrategy.memoryEvictThresholdPercent: checked, not yet in effect',
        'data["cpu-burst-config"].clusterStrategy: checked, not yet in effect',
    ]


def test_only_enable_means_cpuset_which_is_said_to_be_carried_out_as_quota() -> None:
    parsed = parse(config_map(threshold={"clusterStrategy": {"enable": True}}), FILE)

    assert parsed.policy.resource_threshold.cpu_suppress_policy == "cpuset"
    assert "carried out as cfsQuota" in parsed.notes[0]


def test_the_version_is_the_content() -> None:
    one, same = (parse(config_map({"enable": True}), name).policy for name in ("a.yaml", "b.yaml"))
    other = parse(config_map({"enable": True, "cpuReclaimThresholdPercent": 61}), FILE).policy

    assert one.version == same.version != other.version
