"""Descheduling in the operator's ConfigMap."""

from __future__ import annotations

import pytest

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.descheduling import Anomaly, Descheduling, UsagePercents, UsageWeights
from slacktide.schemas.policy.idle import unused
from testbed.policies import config_map, policy_from

BAND = {"lowThresholds": {"cpu": 45}, "highThresholds": {"cpu": 65}}


def test_each_field_of_low_node_load_is_read() -> None:
    said = {
        "dryRun": False,
        "lowThresholds": {"cpu": 45, "memory": 55},
        "highThresholds": {"cpu": 65, "memory": 75},
        "prodLowThresholds": {"cpu": 30},
        "prodHighThresholds": {"cpu": 40},
        "numberOfNodes": 2,
        "nodeFit": False,
        "resourceWeights": {"memory": 3},
        "anomalyCondition": {"consecutiveAbnormalities": 3},
        "intervalSeconds": 30,
    }

    parsed = parse(config_map(descheduling=said), "policy.yaml")

    assert parsed.policy.descheduling == Descheduling(
        dry_run=False,
        low=UsagePercents(cpu_pct=45, mem_pct=55),
        high=UsagePercents(cpu_pct=65, mem_pct=75),
        prod_low=UsagePercents(cpu_pct=30),
        prod_high=UsagePercents(cpu_pct=40),
        too_few_targets=2,
        node_fit=False,
        weights=UsageWeights(mem=3),
        anomaly=Anomaly(consecutive_abnormalities=3),
        interval_s=30,
    )
    assert parsed.notes == ()
    assert not list(unused(parsed.policy))


def test_a_policy_that_does_not_say_it_keeps_its_version_and_has_no_pass() -> None:
    assert policy_from(descheduling={}).version == DEFAULT.version
    assert policy_from(descheduling=BAND).version != DEFAULT.version
    assert not DEFAULT.descheduling.wanted
    found = policy_from(descheduling=BAND).descheduling
    assert (found.wanted, found.dry_run) == (True, True), "it only says whom it would evict, until it is told otherwise"


def test_evicting_without_thresholds_is_said_to_do_nothing() -> None:
    [idle] = unused(policy_from(descheduling={"dryRun": False}))

    assert (idle.field, idle.because) == (
        "dry_run",
        "neither lowThresholds nor prodLowThresholds is set: no pass runs",
    )


@pytest.mark.parametrize(
    ("said", "finding"),
    [
        (
            {"lowThresholds": {"cpu": 70}, "highThresholds": {"cpu": 65}},
            "lowThresholds.cpu: 70: accepted: at most highThresholds.cpu, which is 65",
        ),
        (
            {"lowThresholds": {"memory": 70}},
            "lowThresholds.memory: 70: accepted: highThresholds.memory beside it, or neither",
        ),
        (
            {"prodHighThresholds": {"cpu": 70}},
            "prodHighThresholds.cpu: 70: accepted: prodLowThresholds.cpu beside it, or neither",
        ),
        (BAND | {"lowThresholds": {"cpu": 101}}, "lowThresholds.cpu: 101: accepted: a whole number from 0 to 100"),
        (
            BAND | {"anomalyCondition": {"consecutiveAbnormalities": 0}},
            "anomalyCondition.consecutiveAbnormalities: 0: accepted: a whole number from 1 to 1000",
        ),
        (BAND | {"dryRun": "no"}, "dryRun: 'no': accepted: true or false"),
    ],
)
def test_what_does_not_go_together_or_is_out_of_range_is_refused(said: dict, finding: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        policy_from(descheduling=said)

    assert f'policy.yaml: data["descheduling-config"].{finding}' in str(refusal.value)


def test_distances_to_the_mean_go_in_any_order() -> None:
    said = {"lowThresholds": {"cpu": 20}, "highThresholds": {"cpu": 10}, "useDeviationThresholds": True}

    assert policy_from(descheduling=said).descheduling.use_deviation
