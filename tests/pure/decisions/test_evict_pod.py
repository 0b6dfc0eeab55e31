"""A pod as eviction sees it."""

import pytest

from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.evict.evict_candidates import (
    EvictPod,
    own_resource,
    own_resources,
    priority_with_default,
)
from testbed.evict_cases import be


@pytest.mark.parametrize(
    ("more", "priority"),
    [
        pytest.param({"priority": 1}, 1, id="its number"),
        pytest.param({"priority": -1}, -1, id="also a negative one"),
        pytest.param({"priority": 100, "band": "koord-mid"}, 100, id="whatever its class"),
        pytest.param({"priority": None, "band": "koord-prod"}, 9500, id="none: prod's own"),
        pytest.param({"priority": 0, "band": "koord-mid"}, 7500, id="0: mid's own"),
        pytest.param({"priority": None, "band": "koord-batch"}, 5500, id="none: batch's own"),
        pytest.param({"priority": 0, "band": "koord-free"}, 3500, id="0: free's own"),
        pytest.param({"priority": None, "qos": "LS"}, 9500, id="none and no class: that of its QoS"),
    ],
)
def test_priority_with_default(more: dict, priority: int) -> None:
    assert priority_with_default(be("a", **more).pod) == priority


@pytest.mark.parametrize(
    ("band", "resource"),
    [
        ("koord-prod", "mem_bytes"),
        ("koord-mid", "mid_mem_bytes"),
        ("koord-batch", "batch_mem_bytes"),
        ("koord-free", "free_mem_bytes"),
    ],
)
def test_what_is_sold_to_free_counts_for_free_alone(band: str, resource: str) -> None:
    assert own_resource(be("a", band=band, free_mem=1).pod, "mem_bytes") == resource


def test_a_free_pod_that_asks_for_none_of_it_counts_for_the_native_resource() -> None:
    pod = be("a", band="koord-free", free_mem=0).pod

    assert own_resource(pod, "cpu_milli") == "cpu_milli"
    assert own_resource(pod, "mem_bytes") == "free_mem_bytes"


def test_every_resource_that_can_be_counted_for() -> None:
    assert own_resources("cpu_milli") == ("cpu_milli", "batch_cpu_milli", "mid_cpu_milli", "free_cpu_milli")


def test_a_pod_that_says_nothing_about_eviction_has_not_agreed_to_it() -> None:
    silent = EvictPod(pod=Pod(uid="a", namespace="jobs", name="a"))

    assert not silent.pod.eviction_enabled
    assert (silent.already_evicted, silent.spared, silent.used) == (False, False, None)
    assert (silent.pod.eviction_priority, silent.pod.eviction_features) == (0, None)
