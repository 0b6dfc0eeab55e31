"""Descheduling in the operator's ConfigMap."""

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import DEFAULT, parse
from slacktide.schemas.policy.idle import unused
from testbed.policies import config_map, policy_from
from testbed.snapshots import cases, json_text, refusal, situations

CASES = cases(__file__)

BAND = {"lowThresholds": {"cpu": 45}, "highThresholds": {"cpu": 65}}


def test_each_field_of_low_node_load_is_read(snapshot) -> None:
    parsed = parse(config_map(descheduling=CASES["each_field_of_low_node_load_is_read"]), "policy.yaml")

    assert json_text(parsed.policy.descheduling) == snapshot
    assert parsed.notes == ()
    assert not list(unused(parsed.policy))


def test_a_policy_that_does_not_say_it_keeps_its_version_and_has_no_pass() -> None:
    assert policy_from(descheduling={}).version == DEFAULT.version
    assert policy_from(descheduling=BAND).version != DEFAULT.version
    assert not DEFAULT.descheduling.wanted
    found = policy_from(descheduling=BAND).descheduling
    assert (found.wanted, found.dry_run) == (True, True), "it only says whom it would evict, until it is told otherwise"


def test_evicting_without_thresholds_is_said_to_do_nothing(snapshot) -> None:
    [idle] = unused(policy_from(descheduling={"dryRun": False}))
    assert f"{idle.field}: {idle.because}" == snapshot


@situations("said", CASES["what_does_not_go_together_or_is_out_of_range_is_refused"])
def test_what_does_not_go_together_or_is_out_of_range_is_refused(said: dict, snapshot) -> None:
    assert refusal(ConfigError, lambda: policy_from(descheduling=said)) == snapshot


def test_distances_to_the_mean_go_in_any_order() -> None:
    said = {"lowThresholds": {"cpu": 20}, "highThresholds": {"cpu": 10}, "useDeviationThresholds": True}

    assert policy_from(descheduling=said).descheduling.use_deviation
