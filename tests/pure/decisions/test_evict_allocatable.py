"""How much is to be released of what pods requested."""

import pytest

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.evict.evict_candidates import EvictPod, Measure
from slacktide.streams.decisions.evict.evict_tasks import AllocatableThreshold, Release, by_allocatable
from testbed.evict_cases import be


def at(threshold_pct: int | None = 80, lower_pct: int | None = 50, priority_max: int | None = 7999):
    return AllocatableThreshold(threshold_pct=threshold_pct, lower_pct=lower_pct, priority_max=priority_max)


def release(*pods: EvictPod, measure: Measure = "mem_bytes", threshold=None, **sold: int) -> Release:
    return by_allocatable("F", measure, allocatable=Resources(**sold), pods=pods, at=threshold or at())


@pytest.mark.parametrize(
    "threshold",
    [
        pytest.param(at(threshold_pct=None), id="no threshold"),
        pytest.param(at(threshold_pct=-1, lower_pct=-2), id="a negative threshold"),
        pytest.param(at(lower_pct=None), id="no lower percent: it has no default here"),
        pytest.param(at(lower_pct=80), id="a lower percent at the threshold"),
        pytest.param(at(lower_pct=81), id="a lower percent above it"),
        pytest.param(at(priority_max=None), id="no highest priority"),
        pytest.param(at(priority_max=8000), id="a highest priority above mid"),
    ],
)
def test_thresholds_that_are_refused(threshold: AllocatableThreshold) -> None:
    refused = release(be("a", batch_mem=99), threshold=threshold)

    assert (refused.status, refused.amounts) == ("invalid_config", {})
    assert [because.bound for because in refused.because] == ["invalid_config"]


@pytest.mark.parametrize("threshold", [at(threshold_pct=0, lower_pct=-1), at(lower_pct=79), at(priority_max=7999)])
def test_thresholds_that_are_just_taken(threshold: AllocatableThreshold) -> None:
    assert release(be("a", batch_mem=99), threshold=threshold, batch_mem_bytes=100).status == "release"


@pytest.mark.parametrize(
    ("requested", "sold", "amount"),
    [
        pytest.param(79, 100, None, id="below the threshold"),
        pytest.param(80, 100, None, id="at the threshold"),
        pytest.param(81, 100, 31, id="above it: down to the lower percent"),
        pytest.param(8_001, 10_000, 3_001, id="just above it"),
        pytest.param(300, 100, 250, id="more than is sold"),
        pytest.param(7, None, 7, id="nothing sold: all of it"),
        pytest.param(7, 0, 7, id="sold out: all of it"),
        pytest.param(0, 0, 0, id="nothing requested, nothing sold: listed with 0"),
        pytest.param(0, 100, None, id="nothing requested"),
    ],
)
@pytest.mark.parametrize("measure", ["mem_bytes", "cpu_milli"])
def test_how_much(measure: Measure, requested: int, sold: int | None, amount: int | None) -> None:
    pod = be("a", batch_mem=requested, batch_cpu=requested)

    found = release(pod, measure=measure, **{f"batch_{measure}": sold})

    assert found.status == ("nothing_to_release" if amount is None else "release")
    assert found.amounts == ({} if amount is None else {f"batch_{measure}": amount})
    unit = measure.rpartition("_")[2]
    assert found.because[0].terms.get(f"release_{unit}") == amount


def test_each_measure_rounds_as_the_reference_does() -> None:
    """(0.95 - 0.5) x 100 is just below 45 in doubles, 95 - 0.5 x 100 is not."""
    pod = be("a", batch_mem=95, batch_cpu=95)

    assert release(pod, measure="mem_bytes", batch_mem_bytes=100).amounts == {"batch_mem_bytes": 44}
    assert release(pod, measure="cpu_milli", batch_cpu_milli=100).amounts == {"batch_cpu_milli": 45}


@pytest.mark.parametrize(
    ("pod", "amounts"),
    [
        pytest.param(be("a", batch_mem=1, mid_mem=2, mem=4), {"batch_mem_bytes": 1}, id="batch"),
        pytest.param(be("a", priority=7000, batch_mem=1, mid_mem=2, mem=4), {"mid_mem_bytes": 2}, id="mid"),
        pytest.param(be("a", priority=3000, batch_mem=1, mid_mem=2, mem=4), {"mem_bytes": 4}, id="free: native"),
        pytest.param(be("a", priority=3000, free_mem=3, mem=4), {"free_mem_bytes": 3}, id="free that asks for its own"),
        pytest.param(be("a", free_mem=3, batch_mem=1), {"batch_mem_bytes": 1}, id="what is sold to free is for free"),
        pytest.param(be("a", priority=100, qos="LS", batch_mem=1, mem=4), {"mem_bytes": 4}, id="prod: native"),
    ],
)
def test_a_pod_counts_for_its_own_classs_resource(pod: EvictPod, amounts: dict[str, int]) -> None:
    assert release(pod).amounts == amounts


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        pytest.param({"priority": 6000}, True, id="at the highest priority"),
        pytest.param({"priority": 6001}, False, id="above it"),
        pytest.param({"priority": None}, True, id="none: the class's own"),
        pytest.param({"priority": 0, "band": "koord-mid"}, False, id="0: the class's own"),
        pytest.param({"phase": "Failed"}, True, id="in any phase"),
        pytest.param({"qos": "LS"}, True, id="whatever the QoS"),
        pytest.param({"eviction_enabled": False, "eviction_features": []}, True, id="even if it may not be evicted"),
    ],
)
def test_whose_requests_count(more: dict, *, counts: bool) -> None:
    found = release(be("a", **{"batch_mem": 5} | more), threshold=at(priority_max=6000))

    assert found.amounts == ({"batch_mem_bytes": 5} if counts else {})


def test_each_resource_has_its_sum_its_arithmetic_and_a_fixed_place() -> None:
    pods = [be("m", priority=7000, mid_mem=96), be("a", batch_mem=60), be("b", batch_mem=30), be("f", priority=3000)]

    found = release(*pods, mid_mem_bytes=100, batch_mem_bytes=200)

    assert found.amounts == {"mem_bytes": 0, "mid_mem_bytes": 46}
    assert [(because.of, because.bound) for because in found.because] == [
        ("F/mem_bytes", "not_sold"),
        ("F/batch_mem_bytes", "below_threshold"),
        ("F/mid_mem_bytes", "formula"),
    ]
    percents = {"threshold_pct": 80, "lower_pct": 50}
    assert [because.terms for because in found.because] == [
        percents | {"allocatable_bytes": 0, "requested_bytes": 0, "release_bytes": 0},
        percents | {"allocatable_bytes": 200, "requested_bytes": 90},
        percents | {"allocatable_bytes": 100, "requested_bytes": 96, "release_bytes": 46},
    ]


def test_no_pods_no_shortage() -> None:
    found = release(be("a", priority=9000, mem=5))

    assert (found.status, found.amounts) == ("nothing_to_release", {})
    assert [(because.of, because.bound, because.terms) for because in found.because] == [
        ("F", "no_pods", {"priority_max": 7999})
    ]
