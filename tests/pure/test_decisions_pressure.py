"""What the policy's signal makes of pressure: which limit holds, by which knob."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Pod, Processor, Resources
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import Limits, LsPressure, NodeSample, NodeUse, PodUse, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_suppress import Decision, decide
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import QUOTA_US_MIN

CAPACITY = Resources(cpu_milli=8_000, mem_bytes=16 << 30)
FACTS = NodeFacts(
    name="node-1",
    capacity=CAPACITY,
    allocatable=CAPACITY,
    processors=[Processor(cpu=cpu, core=cpu, socket=0, numa_node=0) for cpu in range(8)],
)
PODS = [
    Pod(uid="ls", namespace="shop", name="web", qos_label="LS", kube_qos="Burstable"),
    Pod(uid="be", namespace="batch", name="job", qos_label="BE", kube_qos="BestEffort"),
]
STALLED = PressureLook(span_us=100_000, ls_cpu_us=100_000, be_cpu_us=500_000, idle_us=0, cpu_stall_us=90_000)
CALM = PressureLook(span_us=100_000, ls_cpu_us=100_000, be_cpu_us=500_000, idle_us=0, cpu_stall_us=0)


def policy(signal: str, knob: str = "cfsQuota", **more) -> Policy:
    return policy_of(
        Colocation(),
        ResourceThreshold(enable=True, cpu_suppress_policy=knob, cpu_suppress_signal=signal, **more),
    )


def sample(*looks: PressureLook, quota_us: int | None = None, ls_milli: int = 1_000, known: bool = True, **more):
    fields = {
        "node": "node-1",
        "boot_id": "000000000001-00000000",
        "seq": 1,
        "observed_ms": 1_000,
        "interval_ms": 1_000,
        "policy_version": "p",
        "facts_revision": "f",
        "pods_revision": "p",
        "use": NodeUse(cpu_milli=ls_milli + 5_000),
        "pod_use": [PodUse(uid="ls", cpu_milli=ls_milli), PodUse(uid="be", cpu_milli=5_000, best_effort_group=True)],
        "limits": Limits(be_cfs_quota_us=quota_us),
        "ls_pressure": LsPressure(gate=PressureGate(), looks=list(looks)) if known else None,
    }
    return NodeSample(**fields | more)


def decided(taken: NodeSample, by: Policy) -> Decision:
    return decide(taken, FACTS, PODS, by)


@given(st.integers(0, 8_000), st.none() | st.integers(QUOTA_US_MIN, 800_000), st.sampled_from([STALLED, CALM]))
def test_a_policy_by_use_is_blind_to_pressure(ls_milli: int, quota_us: int | None, one: PressureLook) -> None:
    with_looks = decided(sample(one, quota_us=quota_us, ls_milli=ls_milli), policy("usage"))
    assert with_looks == decided(sample(quota_us=quota_us, ls_milli=ls_milli, known=False), policy("usage"))


@pytest.mark.parametrize("signal", ["pressure", "both"])
def test_stall_leaves_the_least_at_once_and_shows_the_arithmetic(signal: str) -> None:
    found = decided(sample(CALM, STALLED, since_raise_ms=0), policy(signal))
    assert found.limits == Limits(be_cfs_quota_us=QUOTA_US_MIN)
    assert (found.answer, found.bound) == ("set", "pressure_cut")
    shown = {name: found.terms[name] for name in ("stall_permille", "base_permille", "line_permille")}
    assert shown == {"stall_permille": 900, "base_permille": 0, "line_permille": 400}


def test_the_policys_minimum_is_left_in_a_cut_too() -> None:
    found = decided(sample(STALLED), policy("pressure", cpu_suppress_min_pct=10))
    assert found.limits == Limits(be_cfs_quota_us=80_000)


def test_by_pressure_alone_use_above_the_threshold_takes_nothing() -> None:
    found = decided(sample(CALM, quota_us=100_000, ls_milli=7_900), policy("pressure"))
    assert (found.answer, found.limits) == ("set", Limits(be_cfs_quota_us=None))
    assert found.terms["base_permille"] == 0


@given(st.integers(0, 8_000), st.none() | st.integers(QUOTA_US_MIN, 800_000), st.integers(0, 2_000))
def test_by_both_an_open_gate_gives_what_use_allows(ls_milli: int, quota_us: int | None, since_ms: int) -> None:
    taken = sample(CALM, quota_us=quota_us, ls_milli=ls_milli, since_raise_ms=since_ms)
    by_both, by_use = decided(taken, policy("both")), decided(taken, policy("usage"))
    assert (by_both.answer, by_both.limits, by_both.bound) == (by_use.answer, by_use.limits, by_use.bound)


def test_a_raise_waits_900_ms_after_the_last() -> None:
    spaced = decided(sample(CALM, quota_us=2_000, since_raise_ms=899), policy("pressure"))
    assert (spaced.answer, spaced.bound) == ("keep", "raise_spaced")
    assert decided(sample(CALM, quota_us=2_000, since_raise_ms=900), policy("pressure")).answer == "set"


def test_without_pressure_a_policy_goes_by_use_and_its_bound_says_so() -> None:
    by_pressure = decided(sample(known=False, ls_milli=4_000), policy("pressure"))
    by_use = decided(sample(known=False, ls_milli=4_000), policy("usage"))
    assert by_pressure.bound == f"no_pressure_{by_use.bound}"
    assert (by_pressure.answer, by_pressure.limits) == (by_use.answer, by_use.limits)


def test_by_cpu_set_a_cut_leaves_the_fewest_cpus_and_giving_back_takes_all() -> None:
    everything = Limits(be_cfs_quota_us=None, be_cpuset=list(range(8)))
    found = decided(sample(STALLED, limits=everything), policy("pressure", "cpuset"))
    assert found.limits is not None
    assert found.limits.be_cpuset is not None
    assert len(found.limits.be_cpuset) == 2

    back = decided(sample(CALM, limits=found.limits), policy("pressure", "cpuset"))
    assert back.limits == everything
