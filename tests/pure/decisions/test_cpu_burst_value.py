"""How much CPU time a container may save up."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.streams.decisions.burst.node_burst import cfs_burst, pod_cfs_burst

AUTO = CpuBurst(policy="auto")


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
