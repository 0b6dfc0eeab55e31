"""Placement in the operator's ConfigMap: up to which load a node takes pods."""

import pytest

from slacktide.agents.cluster.scheduler.topic_reader import governed
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.idle import unused
from slacktide.schemas.policy.strategies import Placement, UsagePercents
from slacktide.streams.decisions.load.load_aware_estimator import DEFAULT_FACTORS, Factors, Percents
from slacktide.streams.decisions.load.load_aware_scheduling import DEFAULT_THRESHOLDS
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from testbed.policies import config_map, policy_from


def test_each_field_is_read_and_acts() -> None:
    said = {
        "usageThresholds": {"cpu": 80},
        "prodUsageThresholds": {"cpu": 55, "memory": 60},
        "estimatedScalingFactors": {"memory": 50},
    }
    parsed = parse(config_map(placement=said), "policy.yaml")

    assert parsed.policy.placement == Placement(
        usage=UsagePercents(cpu_pct=80, mem_pct=95),
        prod_usage=UsagePercents(cpu_pct=55, mem_pct=60),
        factors=UsagePercents(cpu_pct=85, mem_pct=50),
    )
    assert parsed.notes == ()
    assert not list(unused(parsed.policy))
    load = governed(PlacementArgs(), parsed.policy.placement).load
    assert (load.thresholds.usage, load.thresholds.prod, load.factors) == (
        Percents(80, 95),
        Percents(55, 60),
        Factors(85, 50),
    )


def test_a_policy_that_does_not_say_it_keeps_its_version_and_the_references_defaults() -> None:
    load = governed(PlacementArgs(), DEFAULT.placement).load

    assert policy_from(placement={}).version == DEFAULT.version
    assert policy_from(placement={"usageThresholds": {"cpu": 66}}).version != DEFAULT.version
    assert (load.thresholds.usage, load.thresholds.prod) == (DEFAULT_THRESHOLDS, None)
    assert load.factors == DEFAULT_FACTORS


def test_a_percent_beyond_the_range_is_refused_with_its_path() -> None:
    with pytest.raises(
        ConfigError, match=r'data\["placement-config"\]\.usageThresholds\.cpu: 165: accepted: .* 0 to 100'
    ):
        parse(config_map(placement={"usageThresholds": {"cpu": 165}}), "policy.yaml")
