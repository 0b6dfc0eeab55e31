"""What a pod's groups hold by its spec, with the arithmetic; what policies make of it stands in test_node_knobs.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.knobs.be_isolation import isolation

ON = Colocation(enable=True)
MIB = 1 << 20


def pod(requests: Resources, limits: Resources | None = None, **more: Any) -> Pod:
    """A pod of one container ``a``."""
    limits = requests if limits is None else limits
    one = Container(name="a", requests=requests, limits=limits)
    return Pod(
        **{"uid": "p", "namespace": "n", "name": "p", "qos_label": "BE"} | more,
        requests=requests,
        limits=limits,
        containers=[one],
    )


def held(*pods: Pod) -> Mapping[tuple[str, str], tuple[int | None, str, Terms]]:
    return {(one.group, one.knob): (one.value, one.bound, one.terms) for one in isolation(pods, ON)}


def test_shares_and_quota_are_whole_numbers_rounded_down() -> None:
    found = held(pod(Resources(batch_cpu_milli=333, batch_mem_bytes=MIB)))

    assert found["pod/p", "cpu_shares"] == (340, "formula", {"request_milli": 333, "cpu_shares": 340})
    assert found["pod/p", "cfs_quota_us"] == (33_300, "formula", {"limit_milli": 333, "quota_us": 33_300})
    assert found["pod/p", "mem_limit_bytes"] == (MIB, "formula", {"limit_bytes": MIB})
    assert {type(value) for value, _, _ in found.values()} == {int}


def test_the_kernels_most_shares_are_the_most() -> None:
    found = held(pod(Resources(batch_cpu_milli=300_000)))

    assert found["pod/p", "cpu_shares"][:2] == (262_144, "kernel_range")
    assert found["pod/p", "cfs_quota_us"][:2] == (30_000_000, "formula")


@pytest.mark.parametrize(("tier", "bound"), [("batch", "formula"), ("mid", "formula"), ("free", "last")])
def test_a_free_pod_alone_comes_last_by_its_weight(tier: str, bound: str) -> None:
    assert held(pod(Resources(**{f"{tier}_cpu_milli": 1_000})))["pod/p", "cpu_shares"][1] == bound


def test_a_pod_with_a_limit_and_no_request_has_the_least_weight() -> None:
    found = held(pod(Resources(), Resources(batch_cpu_milli=500)))

    assert found["pod/p", "cpu_shares"] == (2, "kernel_range", {"request_milli": 0, "cpu_shares": 2})


def test_what_has_no_memory_limit_is_left_alone() -> None:
    assert ("pod/p", "mem_limit_bytes") not in held(pod(Resources(batch_cpu_milli=500)))


def test_native_requests_take_a_pod_out_of_the_tier_whatever_else_it_asks_for() -> None:
    assert held(pod(Resources(cpu_milli=500, batch_cpu_milli=500), kube_qos="Burstable")) == {}


def test_a_pod_that_is_left_alone_does_not_hide_the_next() -> None:
    service = pod(Resources(cpu_milli=500), uid="service", qos_label="LS", kube_qos="Burstable")

    assert held(service, pod(Resources(batch_cpu_milli=500))) == held(pod(Resources(batch_cpu_milli=500)))
