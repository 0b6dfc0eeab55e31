"""A policy under which a kubelet does not restart is named before it is applied, with what to do.

`tests/cluster/v2` shows the rest on a real kubelet: it ends, and starts as soon as the policy asks no more for it.
"""

from slacktide.deploy.cli.doctor.finding import Finding
from slacktide.deploy.cli.doctor.policy_checks import policy_findings
from slacktide.schemas.policy import parse
from testbed.doctor_facts import V2
from testbed.policies import config_map


def doctor(sched_idle: int) -> list[Finding]:
    """What doctor reports of the tier's weight."""
    asked = {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": sched_idle}}}
    parsed = parse(config_map(qos={"clusterStrategy": asked}), "policy.yaml")
    return [one for one in policy_findings("policy.yaml", parsed, V2, 8) if one.check == "policy.idle-weight"]


def test_doctor_names_the_field_the_cause_and_the_remedy() -> None:
    (found,) = doctor(1)

    assert found.found == "resource-qos-config: beClass.cpuQOS.schedIdle 1 (cluster strategy)"
    assert "Linux rejects a weight for an idle cgroup (EINVAL)" in found.advice
    assert "set schedIdle to 0" in found.advice


def test_without_it_there_is_nothing_to_name() -> None:
    assert doctor(0) == []
