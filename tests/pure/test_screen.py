"""The arrays of the screen give what the suppress rule gives, on any samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy import Policy, ResourceThreshold
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.columns.screen import (
    BOUNDS,
    KEEP,
    MINIMUM,
    NONE,
    OTHER_LIMITS,
    SCALAR,
    Samples,
    fit,
    names,
    quota_of,
    screen,
)
from slacktide.streams.decisions.node_decision import decide_node
from testbed.samples import sample as sample_of

AMOUNTS = st.integers(0, 200_000) | st.integers(0, AMOUNT_MAX)
CAPACITIES = st.integers(1, 256_000) | st.integers(1, AMOUNT_MAX)
PODS = [
    Pod(uid="be", namespace="n", name="be", qos_label="BE", kube_qos="BestEffort"),
    Pod(uid="ls", namespace="n", name="ls", qos_label="LS", kube_qos="Burstable"),
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[NodeSample, NodeFacts, Policy]:
    """A node with a best-effort pod and another one."""
    capacity, mem = draw(CAPACITIES), draw(CAPACITIES)
    allocatable = draw(st.integers(0, capacity))
    facts = NodeFacts(
        name="n",
        capacity=Resources(cpu_milli=capacity, mem_bytes=mem),
        allocatable=Resources(cpu_milli=allocatable, mem_bytes=mem),
    )
    threshold = ResourceThreshold(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_pct=draw(st.integers(0, 100)),
        cpu_suppress_min_pct=draw(st.none() | st.integers(0, 100)),
        mem_evict_threshold_pct=draw(st.none() | st.integers(1, 100)),
    )
    near = draw(st.integers(0, 4 * capacity) | st.integers(0, AMOUNT_MAX))
    sample = sample_of(
        1,
        use=NodeUse(cpu_milli=draw(AMOUNTS), mem_bytes=draw(st.integers(0, mem))),
        pod_use=[PodUse(uid=pod.uid, cpu_milli=draw(AMOUNTS), mem_bytes=0) for pod in PODS],
        limits=Limits(be_cfs_quota_us=draw(st.none() | st.just(near))),
        since_raise_ms=draw(st.none() | st.integers(0, 2_000)),
    )
    return sample, facts, Policy(version="p", resource_threshold=threshold)


@given(cases())
def test_what_the_arrays_give_the_rule_gives(case: tuple[NodeSample, NodeFacts, Policy]) -> None:
    """Answer, bound, quota and terms; where the arrays pass, the rule may give anything."""
    sample, facts, policy = case
    decision = decide_node(sample, facts, PODS, policy)
    found = screened(sample, fit(facts, policy, pods=len(PODS)))
    bound = int(found.bound[0])
    if bound == SCALAR:
        return
    if bound == KEEP:
        assert decision.nothing_new
        return
    minimum, limited = bool(found.minimum[0]), bool(found.limited[0])
    terms = {
        name: int(found.terms[0, column]) for name, column in names(bound, minimum=minimum, limited=limited).items()
    }
    assert decision.limits.answer == "set"
    assert (decision.evict, decision.settings) == ((), ())
    assert decision.limits.limits == Limits(be_cfs_quota_us=int(found.quota_us[0]))
    assert decision.limits.bound == (MINIMUM if minimum else BOUNDS[bound])
    assert list(terms.items()) == list(decision.limits.terms.items())


def test_most_samples_are_left_to_no_rule() -> None:
    """A node below all lines is decided by the arrays."""
    facts = NodeFacts(
        name="n",
        capacity=Resources(cpu_milli=16_000, mem_bytes=64 << 30),
        allocatable=Resources(cpu_milli=15_000, mem_bytes=60 << 30),
    )
    policy = Policy(version="p", resource_threshold=ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"))
    sample = sample_of(
        1,
        use=NodeUse(cpu_milli=5_000, mem_bytes=20 << 30),
        pod_use=[PodUse(uid=pod.uid, cpu_milli=900, mem_bytes=1 << 30) for pod in PODS],
        limits=Limits(be_cfs_quota_us=200_000),
    )

    assert screened(sample, fit(facts, policy, pods=2)).bound[0] != SCALAR


def test_limits_that_are_no_plain_quota_are_the_rules() -> None:
    odd: list[Limits | None] = [
        None,
        Limits(be_cfs_quota_us=50_000, be_cfs_period_us=50_000),
        Limits(be_cfs_quota_us=None, be_cpuset=[1]),
        Limits(be_cfs_quota_us=-1),
    ]

    assert [quota_of(limits) for limits in odd] == [OTHER_LIMITS] * len(odd)


def screened(sample: NodeSample, fits: tuple[int, ...]) -> Any:
    """Give the screen's result for one sample."""
    used = {use.uid: use.cpu_milli or 0 for use in sample.pod_use}
    since = sample.since_raise_ms
    columns = Samples(
        quota_us=np.array([quota_of(sample.limits)]),
        node_milli=np.array([sample.use.cpu_milli]),
        node_bytes=np.array([sample.use.mem_bytes]),
        be_milli=np.array([used["be"]]),
        all_milli=np.array([sum(used.values())]),
        since_raise_ms=np.array([NONE if since is None else since]),
    )
    return screen(np.array([fits], np.int64), columns)
