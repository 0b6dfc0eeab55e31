"""Which pods burst, and by whose configuration."""

import json

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.node_burst import burst_policy, may_burst, pod_burst_config
from testbed.vectors import stated_test

test_cases = stated_test("cpu_burst_pod", pod_burst_config, may_burst, burst_policy)

NODE = CpuBurst(
    policy="cpuBurstOnly",
    cpu_burst_pct=500,
    cfs_quota_burst_pct=200,
    cfs_quota_burst_period_s=60,
    share_pool_threshold_pct=40,
)


def test_an_annotation_that_is_nested_too_deep_is_ignored() -> None:
    assert pod_burst_config(NODE, '{"policy": "auto", "x": ' + "[" * 100_000) is NODE


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_an_annotation_holds_there_is_a_configuration(annotation: str) -> None:
    assert isinstance(pod_burst_config(NODE, annotation), CpuBurst)
