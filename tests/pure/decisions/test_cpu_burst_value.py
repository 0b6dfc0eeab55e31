"""How much CPU time a container may save up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.cpu_burst_value import cfs_burst, pod_cfs_burst
from testbed.cpu_cases import answered

AUTO = CpuBurst(policy="auto")


@pytest.mark.parametrize(
    ("limit_milli", "config", "burst_us", "bound"),
    [
        pytest.param(2_000, CpuBurst(), 0, "off", id="nothing without a policy"),
        pytest.param(2_000, CpuBurst(policy="cfsQuotaBurstOnly"), 0, "off", id="nothing under quota burst alone"),
        pytest.param(2_000, AUTO, 2_000_000, "formula", id="ten times the limit unless told otherwise"),
        pytest.param(2_000, CpuBurst(policy="cpuBurstOnly"), 2_000_000, "formula", id="as without quota burst"),
        pytest.param(None, AUTO, 0, "no_limit", id="nothing without a limit"),
        pytest.param(0, AUTO, 0, "no_limit", id="of which 0 is none"),
        pytest.param(1, CpuBurst(policy="auto", cpu_burst_pct=1), 1, "formula", id="the smallest"),
        pytest.param(9, CpuBurst(policy="auto", cpu_burst_pct=200), 1_799, "formula", id="doubles are cut off"),
        pytest.param(11, CpuBurst(policy="auto"), 10_999, "formula", id="in the reference's order"),
        pytest.param(2_000, CpuBurst(policy="auto", cpu_burst_pct=-100), 0, "formula", id="never below nothing"),
    ],
)
def test_the_burst_of_a_container(limit_milli: int | None, config: CpuBurst, burst_us: int, bound: str) -> None:
    burst = cfs_burst(limit_milli, config)

    assert (burst.burst_us, burst.bound, burst.terms["burst_us"]) == (burst_us, bound, burst_us)


def test_the_terms_are_the_arithmetic_in_order() -> None:
    assert list(cfs_burst(1_500, CpuBurst(policy="auto", cpu_burst_pct=200)).terms.items()) == [
        ("limit_milli", 1_500),
        ("cpu_burst_pct", 200),
        ("burst_cores", 3.0),
        ("burst_us", 300_000),
    ]


def test_a_pod_has_what_its_containers_have_together() -> None:
    pod = pod_cfs_burst([1_000, None, 500], AUTO)

    assert pod.burst_us == 1_500_000
    assert [one.burst_us for one in pod.containers] == [1_000_000, 0, 500_000]
    assert pod_cfs_burst([], AUTO).burst_us == 0


@given(st.integers(0, 256_000), st.integers(0, 9_000), st.integers(1, 10_000), st.integers(0, 10_000))
def test_more_limit_or_percent_never_gives_less(limit_milli: int, more_milli: int, pct: int, more_pct: int) -> None:
    less = cfs_burst(limit_milli, CpuBurst(policy="auto", cpu_burst_pct=pct))
    more = cfs_burst(limit_milli + more_milli, CpuBurst(policy="auto", cpu_burst_pct=pct + more_pct))

    assert 0 <= less.burst_us <= more.burst_us


@pytest.mark.parametrize(
    ("case", "burst_us"),
    [
        pytest.param({}, 0, id="nothing is given"),
        pytest.param({"container_cpu_limit_milli": 1_000, "config": None}, 0, id="no policy"),
        pytest.param({"container_cpu_limit_milli": 1_000, "config": {"policy": "weird"}}, 0, id="one nobody knows"),
        pytest.param({"container_cpu_limit_milli": None, "config": {"policy": "auto"}}, 0, id="no limit"),
        pytest.param(
            {"container_cpu_limit_milli": 1_000, "config": {"policy": "auto", "cpu_burst_percent": None}},
            1_000_000,
            id="no percent: the default",
        ),
        pytest.param(
            {"container_cpu_limit_milli": 1_000, "config": {"policy": "auto", "cpu_burst_percent": 0}},
            0,
            id="a percent of 0 is one",
        ),
    ],
)
def test_what_a_case_leaves_out(case: dict, burst_us: int) -> None:
    assert answered("cpu_burst_value", case) == {"output": {"cfs_burst_us": burst_us}}
