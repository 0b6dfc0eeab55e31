"""Where suppression begins, and what best-effort pods always keep, are both the operator's."""

import pytest

from slacktide.streams.decisions.suppress.cpu_suppress_quota import CpuUse, be_allowed_cpu

NODE = {"capacity_milli": 10_000, "reserved_milli": 0}
SERVICE = CpuUse(used_cores=6.0, best_effort=False)


@pytest.mark.parametrize(("threshold_pct", "allowed_milli"), [(65, 500), (80, 2_000), (95, 3_500)])
def test_best_effort_pods_get_what_is_left_below_the_threshold(threshold_pct: int, allowed_milli: int) -> None:
    allowed = be_allowed_cpu(**NODE, node_used_cores=6.0, pods=[SERVICE], threshold_pct=threshold_pct)

    assert allowed.allowed_milli == allowed_milli


def test_they_keep_the_minimum_and_the_answer_names_it() -> None:
    allowed = be_allowed_cpu(**NODE, node_used_cores=6.0, pods=[SERVICE], threshold_pct=50, min_pct=10)

    assert (allowed.allowed_milli, allowed.bound) == (1_000, "minimum")
    assert allowed.terms["minimum_milli"] == 1_000
