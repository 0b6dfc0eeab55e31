"""Which pods burst, and by whose configuration."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_value import burst_policy, may_burst, pod_burst_config

NODE = CpuBurst(
    policy="cpuBurstOnly",
    cpu_burst_pct=500,
    cfs_quota_burst_pct=200,
    cfs_quota_burst_period_s=60,
    share_pool_threshold_pct=40,
)


def changed(**more) -> CpuBurst:
    fields = {name: getattr(NODE, name) for name in NODE.__struct_fields__}
    return CpuBurst(**fields | more)


@pytest.mark.parametrize(
    ("qos_label", "phase", "bursts"),
    [
        pytest.param("LS", "Running", True, id="a latency-sensitive pod"),
        pytest.param("LS", "Pending", True, id="also before it runs"),
        pytest.param("LS", "Succeeded", False, id="not when it is done"),
        pytest.param("LS", "Failed", False, id="or has failed"),
        pytest.param("LS", "Unknown", False, id="or nobody knows"),
        pytest.param(None, "Running", True, id="a pod without a class"),
        pytest.param("weird", "Running", True, id="or of one nobody knows"),
        pytest.param("SYSTEM", "Running", True, id="a system pod"),
        pytest.param("LSR", "Running", False, id="not one with CPUs of its own"),
        pytest.param("LSE", "Running", False, id="or exclusive ones"),
        pytest.param("BE", "Running", False, id="not a best-effort pod"),
    ],
)
def test_which_pods_burst(qos_label: str | None, phase: str, *, bursts: bool) -> None:
    """Only the label counts: a Kubernetes BestEffort or Guaranteed pod without one bursts."""
    for kube_qos in ("BestEffort", "Burstable", "Guaranteed"):
        pod = Pod(uid="u", namespace="shop", name="web", qos_label=qos_label, phase=phase, kube_qos=kube_qos)
        assert may_burst(pod) is bursts


@pytest.mark.parametrize(
    ("annotation", "config"),
    [
        pytest.param(None, NODE, id="none"),
        pytest.param("{}", NODE, id="one that says nothing"),
        pytest.param('{"policy": "auto"}', changed(policy="auto"), id="the policy"),
        pytest.param('{"policy": "none"}', changed(policy="none"), id="off for this pod"),
        pytest.param('{"policy": "Auto"}', changed(policy="none"), id="a policy nobody knows is off"),
        pytest.param('{"policy": ""}', NODE, id="an empty policy says nothing"),
        pytest.param('{"cpuBurstPercent": 800}', changed(cpu_burst_pct=800), id="the burst"),
        pytest.param('{"cfsQuotaBurstPercent": 50}', changed(cfs_quota_burst_pct=50), id="the ceiling, also below 100"),
        pytest.param('{"cfsQuotaBurstPeriodSeconds": 0}', changed(cfs_quota_burst_period_s=0), id="a period of 0"),
        pytest.param(
            '{"policy": "auto", "cpuBurstPercent": 1, "cfsQuotaBurstPercent": 2, "cfsQuotaBurstPeriodSeconds": -1}',
            changed(policy="auto", cpu_burst_pct=1, cfs_quota_burst_pct=2, cfs_quota_burst_period_s=-1),
            id="all",
        ),
        pytest.param('{"cpuBurstPercent": null, "policy": null}', NODE, id="null says nothing"),
        pytest.param('{"sharePoolThresholdPercent": 10}', NODE, id="the node's threshold is not the pod's to set"),
        pytest.param('{"cpuBurstPercent": 2147483647}', changed(cpu_burst_pct=2**31 - 1), id="the largest number"),
        pytest.param('{"cpuBurstPercent": -2147483648}', changed(cpu_burst_pct=-(2**31)), id="the smallest"),
    ],
)
def test_a_pods_annotation_replaces_what_it_says(annotation: str | None, config: CpuBurst) -> None:
    assert pod_burst_config(NODE, annotation) == config


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param("", id="empty"),
        pytest.param("auto", id="no JSON"),
        pytest.param('{"policy": "auto"', id="cut off"),
        pytest.param('["auto"]', id="no object"),
        pytest.param("null", id="null"),
        pytest.param('{"policy": "auto", "cpuBurstPercent": "800"}', id="a number as text"),
        pytest.param('{"policy": "auto", "cpuBurstPercent": 12.5}', id="a broken number"),
        pytest.param('{"policy": 1}', id="a policy as a number"),
        pytest.param('{"policy": "auto", "cpuBurstPercent": 2147483648}', id="more than 32 bits"),
        pytest.param('{"policy": "auto", "cfsQuotaBurstPeriodSeconds": -2147483649}', id="less than 32 bits"),
        pytest.param('{"policy": "\ud800"}', id="half a surrogate pair"),
        pytest.param('{"policy": "auto", "x": ' + "[" * 100_000, id="nested too deep"),
    ],
)
def test_an_unreadable_annotation_is_ignored_as_a_whole(annotation: str) -> None:
    assert pod_burst_config(NODE, annotation) is NODE


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_an_annotation_holds_there_is_a_configuration(annotation: str) -> None:
    assert isinstance(pod_burst_config(NODE, annotation), CpuBurst)


@pytest.mark.parametrize("policy", ["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"])
def test_policies_by_name(policy: str) -> None:
    assert burst_policy(policy) == policy


@pytest.mark.parametrize("text", [None, "", "AUTO", "auto "])
def test_what_names_no_policy_is_none(text: str | None) -> None:
    assert burst_policy(text) == "none"
