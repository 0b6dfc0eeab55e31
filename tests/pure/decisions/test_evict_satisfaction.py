"""How much batch CPU is to be released where best-effort pods get too little of what they requested."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.node_evict import by_satisfaction

POLICY = ResourceThreshold(
    cpu_evict_be_satisfaction_lower_pct=40, cpu_evict_be_satisfaction_upper_pct=80, cpu_evict_time_window_s=60
)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_requests_less_what_is_released_are_satisfied_to_the_upper_percent_of_all(
    usage: float, request: float, limit: float
) -> None:
    be = BeCpu(usage_milli=usage, request_milli=request, limit_milli=limit)
    window = BeCpuWindow(average=be, current=be, samples=60, interval_s=1)
    found = by_satisfaction("F", window=window, allocatable_milli=None, policy=POLICY)

    if found.amounts:
        gap = 0.8 * request - limit
        assert gap - 1 - 1e-6 <= found.amounts["batch_cpu_milli"] <= gap + 1e-6
