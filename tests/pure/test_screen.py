"""The arrays of the screen give what the suppress rule gives, on any samples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy import Colocation, Policy, ResourceThreshold
from slacktide.schemas.policy.strategies import SuppressSignal
from slacktide.schemas.sample import Limits, LsPressure, NodeSample, NodeUse, PodUse, PressureGate, PressureLook
from slacktide.schemas.sample_columns_codec import LOOKS as LOOKS_FIELD
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.streams.columns.looks import NOT_TAKEN, OPEN, UNPROVEN, gates, text_behind
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
from slacktide.streams.decisions.suppress.learned_cap import SLOT_MS, SLOTS, learned_cap, slot_of
from testbed.samples import sample as sample_of
from testbed.stalls import GATES, LOOKS

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
        slope_permille=draw(st.just(0) | st.integers(0, 5_000)),
    )
    colocation = Colocation(
        enable=True, learned_caps=draw(st.sampled_from(["on", "shadow"])), explore=draw(st.booleans())
    )
    threshold = ResourceThreshold(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_pct=draw(st.integers(0, 100)),
        cpu_suppress_min_pct=draw(st.none() | st.integers(0, 100)),
        mem_evict_threshold_pct=draw(st.none() | st.integers(1, 100)),
        cpu_suppress_signal=draw(st.sampled_from(["usage", "pressure", "both"])),
    )
    pressure = st.builds(LsPressure, gate=st.just(PressureGate()) | GATES, looks=st.lists(LOOKS, max_size=4))
    policy = Policy(version="p", colocation=colocation, resource_threshold=threshold)
    cap_us, explored_us, slot = learned_cap(policy, facts, threshold) or (0, 0, slot_of(facts.name))
    begin_ms = (draw(st.integers(1, 9)) * SLOTS + slot) * SLOT_MS
    near = draw(st.integers(0, 4 * capacity) | st.integers(0, AMOUNT_MAX) | st.sampled_from([cap_us, explored_us]))
    sample = sample_of(
        1,
        observed_ms=begin_ms + draw(st.integers(-2, SLOT_MS + 1)),
        use=NodeUse(cpu_milli=draw(AMOUNTS), mem_bytes=draw(st.integers(0, mem))),
        pod_use=[PodUse(uid=pod.uid, cpu_milli=draw(AMOUNTS), mem_bytes=0) for pod in PODS],
        limits=Limits(be_cfs_quota_us=draw(st.none() | st.just(near))),
        since_raise_ms=draw(st.none() | st.integers(0, 2_000)),
        ls_pressure=draw(st.none() | pressure),
    )
    return sample, facts, policy


@given(cases())
def test_what_the_arrays_give_the_rule_gives(case: tuple[NodeSample, NodeFacts, Policy]) -> None:
    """Answer, bound, quota and terms; where the arrays pass, the rule may give anything."""
    agree(*case)


@given(
    at_ms=st.integers(-2, SLOT_MS + 1),
    slope=st.integers(224, 5_000),
    quota=st.sampled_from(["cap_us", "explored_us"]),
    more_us=st.integers(-1, 1),
    signal=st.sampled_from(["usage", "both"]),
)
def test_the_arrays_see_a_slot_begin_and_end_as_the_rule_does(
    at_ms: int, slope: int, quota: str, more_us: int, signal: SuppressSignal
) -> None:
    capacity = Resources(cpu_milli=16_000, mem_bytes=64 << 30)
    facts = NodeFacts(name="n", capacity=capacity, allocatable=capacity, slope_permille=slope)
    threshold = ResourceThreshold(
        enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=95, cpu_suppress_signal=signal
    )
    colocation = Colocation(enable=True, learned_caps="on", explore=True)
    policy = Policy(version="p", colocation=colocation, resource_threshold=threshold)
    cap = learned_cap(policy, facts, threshold)
    assert cap is not None
    sample = sample_of(
        1,
        observed_ms=(SLOTS + cap.slot) * SLOT_MS + at_ms,
        use=NodeUse(cpu_milli=0, mem_bytes=0),
        pod_use=[PodUse(uid=pod.uid, cpu_milli=0, mem_bytes=0) for pod in PODS],
        limits=Limits(be_cfs_quota_us=getattr(cap, quota) + more_us),
    )
    agree(sample, facts, policy)


def agree(sample: NodeSample, facts: NodeFacts, policy: Policy) -> None:
    """Check that the arrays give what the rule gives, or leave it to the rule."""
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


CALM = PressureLook(
    span_us=100_000, ls_cpu_us=100_000, be_cpu_us=80_000, idle_us=0, cpu_stall_us=9_000, throttled_us=4_000
)


@pytest.mark.parametrize("signal", ["pressure", "both"])
def test_samples_of_an_open_gate_without_a_limit_are_left_to_no_rule(signal: SuppressSignal) -> None:
    capacity = Resources(cpu_milli=16_000, mem_bytes=64 << 30)
    facts = NodeFacts(name="n", capacity=capacity, allocatable=capacity)
    threshold = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_signal=signal)
    fits = fit(facts, Policy(version="p", resource_threshold=threshold), pods=2)
    limits = Limits(be_cfs_quota_us=None if signal == "pressure" else 930_000)
    sample = sample_of(
        1,
        use=NodeUse(cpu_milli=2_000, mem_bytes=20 << 30),
        pod_use=[PodUse(uid=pod.uid, cpu_milli=900, mem_bytes=1 << 30) for pod in PODS],
        limits=limits,
        ls_pressure=LsPressure(gate=PressureGate(), looks=[CALM] * 10),
    )

    assert screened(sample, fits).bound[0] == KEEP


@pytest.mark.parametrize(("signal", "looks"), [("usage", 0), ("pressure", 10)])
@pytest.mark.parametrize("explore", [False, True])
def test_samples_of_a_node_at_its_learned_cap_are_left_to_no_rule(
    signal: SuppressSignal, looks: int, *, explore: bool
) -> None:
    capacity = Resources(cpu_milli=16_000, mem_bytes=64 << 30)
    facts = NodeFacts(name="n", capacity=capacity, allocatable=capacity, slope_permille=1_000)
    threshold = ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_signal=signal)
    colocation = Colocation(enable=True, learned_caps="on", explore=explore)
    policy = Policy(version="p", colocation=colocation, resource_threshold=threshold)
    cap = learned_cap(policy, facts, threshold)
    assert cap is not None
    at_ms = (SLOTS + cap.slot) * SLOT_MS
    cap_us = cap.most_us(at_ms)
    sample = sample_of(
        1,
        observed_ms=at_ms,
        use=NodeUse(cpu_milli=2_000, mem_bytes=20 << 30),
        pod_use=[PodUse(uid=pod.uid, cpu_milli=900, mem_bytes=1 << 30) for pod in PODS],
        limits=Limits(be_cfs_quota_us=cap_us),
        ls_pressure=LsPressure(gate=PressureGate(), looks=[CALM] * looks) if looks else None,
    )

    assert cap_us == 16_000 * 22 // 100 * 100 // (4 if explore else 1)  # ln 1.25 is 22% of a slope of 1
    assert screened(sample, fit(facts, policy, pods=2)).bound[0] == KEEP


GATE = b"0,0,0,0,0,0,500,0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", NOT_TAKEN),
        (GATE, OPEN),
        (GATE + b",100000,100000,80000,0,40000,0,0", OPEN),
        (GATE + b",100000,100000,80000,0,40100,0,0", UNPROVEN),
        (GATE.replace(b"0,0,", b"0,1,", 1), UNPROVEN),
        (GATE.replace(b"500", b"8001"), UNPROVEN),
        (GATE + b",1", UNPROVEN),
        (GATE + b",100000,100000,80000,0,0,0," + b"9" * 18, UNPROVEN),
        (GATE + b",100000,100000,80000,0,0,0,null", UNPROVEN),
        (GATE + b",1" * 7 * 257, UNPROVEN),
        (b"0,0,0", UNPROVEN),
        (b"-", UNPROVEN),
    ],
)
def test_what_is_no_list_of_looks_is_the_rules_and_costs_no_other_sample(text: bytes, found: int) -> None:
    assert gates([GATE, text, b"", GATE]).tolist() == [OPEN, found, NOT_TAKEN, OPEN]


def test_limits_that_are_no_plain_quota_are_the_rules() -> None:
    odd: list[Limits | None] = [
        None,
        Limits(be_cfs_quota_us=50_000, be_cfs_period_us=50_000),
        Limits(be_cfs_quota_us=None, be_cpuset=[1]),
        Limits(be_cfs_quota_us=-1),
    ]

    assert [quota_of(limits) for limits in odd] == [OTHER_LIMITS] * len(odd)


def looks_text(value: bytes) -> bytes:
    at = value.find(LOOKS_FIELD)
    return b"" if at < 0 else text_behind(value, at)[0]


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
        gates=gates([looks_text(encoded(sample, PODS))]),
        observed_ms=np.array([sample.observed_ms]),
    )
    return screen(np.array([fits], np.int64), columns)
