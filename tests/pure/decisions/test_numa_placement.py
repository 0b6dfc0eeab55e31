"""What a node's zones mean for a pod that looks for a node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.zones import Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.numa.filter import Lack
from slacktide.streams.decisions.numa.placement import (
    NodeZonesView,
    Reservation,
    ZonedPod,
    ZonesRefusal,
    view_of_zones,
    zoned,
    zones_refusal,
    zones_score,
)
from slacktide.streams.decisions.numa.topology import Container, Kubelet, Pod
from testbed.numa_nodes import GPU, REQUESTS, as_read, init, pod
from testbed.zone_views import asks, record, view, zone

LEAST = "LeastNUMANodes"


def refused(one: ZonedPod, node: NodeZonesView) -> str:
    """The reason; "": none."""
    found = zones_refusal(one, node, LEAST)
    return "" if found is None else found.reason


ODD = {"cpu": 1_000}
PARTS: dict[str, dict[str, Any]] = {
    "an init container": {"inits": [init(ODD)]},
    "a sidecar": {"inits": [init(ODD, sidecar=True)]},
    "overhead": {"overhead": ODD},
    "pod-level requests": {"pod_level": ODD},
    "empty pod-level requests": {"pod_level": {}},
}


def test_only_guaranteed_pods_and_those_with_devices_need_zones() -> None:
    assert zoned(pod({"cpu": 1_000})) is not None
    assert zoned(pod({"cpu": 1_000}, qos="Burstable")) is None
    assert zoned(pod({"kubernetes.io/batch-cpu": 1_000}, qos="BestEffort")) is None
    assert zoned(pod({GPU: 1}, qos="BestEffort")) is not None
    assert zoned(pod({}, qos="BestEffort", inits=[init({GPU: 1})])) is not None


def test_pods_are_answered_alike_where_their_requests_are() -> None:
    """By the order of resources no pod is another; by each part, and by a container's name, it is."""
    plain = pod({"cpu": 2_000, "memory": 3})
    keys = [zoned(pod({"cpu": 2_000, "memory": 3}, **part)) for part in ({}, *PARTS.values())]
    keys += [zoned(pod({"cpu": 2_000})), zoned(pod({"cpu": 2_000, "memory": 3}, {"cpu": 1}))]
    keys.append(zoned(Pod(qos="Guaranteed", containers=[Container(name="z", requests={"cpu": 2_000, "memory": 3})])))
    keys.append(zoned(pod({"cpu": 2_000, GPU: 1})))
    keys.append(zoned(pod({"cpu": 2_000, GPU: 1}, qos="Burstable")))

    assert zoned(plain) == zoned(pod({"memory": 3, "cpu": 2_000})) == keys[0]
    assert len(set(keys)) == len(keys) == 11


def test_a_pod_reserves_what_the_kubelet_will_pin() -> None:
    both = {"cpu": 2_000, GPU: 1}
    assert asks(2_000, **{GPU: 1}).reserved == both
    burstable = zoned(pod(both, qos="Burstable"))
    assert burstable is not None
    assert burstable.reserved == {GPU: 1}


def test_a_record_is_read_with_the_names_of_kubernetes() -> None:
    free = ZoneResources(
        cpu_milli=1, mem_bytes=2, hugepages_bytes={"2Mi": 3, "1Gi": 4}, batch_cpu_milli=5, batch_mem_bytes=6,
        devices={GPU: 7},
    )  # fmt: skip
    has = ZoneResources(cpu_milli=0)
    one = Zone(id=5, allocatable=has, available=free, distances=[ZoneDistance(zone=7, distance=21)])
    found = view_of_zones(record(one, scope="pod", max_zones=4, prefer_closest=True, memory_static=None))

    assert found is not None
    assert found.kubelet == Kubelet(
        policy="single-numa-node", scope="pod", max_zones=4, cpu_static=True, memory_static=None, prefer_closest=True
    )
    [read] = found.recorded
    assert (read.id, read.costs, read.allocatable) == (5, {7: 21}, {"cpu": 0})
    assert read.available == {
        "cpu": 1, "memory": 2, "hugepages-2Mi": 3, "hugepages-1Gi": 4, "kubernetes.io/batch-cpu": 5,
        "kubernetes.io/batch-memory": 6, GPU: 7,
    }  # fmt: skip
    assert (found.zones, found.reservations, found.stale) == (found.recorded, (), False)


@pytest.mark.parametrize("unknown", [{"policy": None}, {"scope": None}, {"policy": None, "scope": None}])
def test_a_kubelet_whose_settings_are_unknown_has_no_view(unknown: dict[str, Any]) -> None:
    assert view_of_zones(record(zone(0, 8_000), **unknown)) is None


def test_nodes_of_more_than_eight_zones_are_not_looked_at() -> None:
    assert view_of_zones(record(*(zone(number, 8_000) for number in range(8)))) is not None
    assert view_of_zones(record(*(zone(number, 8_000) for number in range(9)))) is None


def test_views_are_equal_where_pods_find_the_same() -> None:
    base = view(zone(0, 8_000))
    assert view(zone(0, 8_000), node="b", seq=7, boot_id="2-b") == base
    assert base.less([], stale=False) is base
    assert base.less([], stale=True) == base, "what fits is the same: that it is not asked is another matter"
    others = [
        view(zone(0, 8_000, 1_000)), view(zone(0, 9_000)), view(zone(1, 8_000)), view(zone(0, 8_000), zone(1, 8_000)),
        view(zone(0, 8_000), policy="restricted"), view(zone(0, 8_000), reserved=[1]),
        view(zone(0, 8_000), reserved=[2]), view(zone(0, 8_000), reserved=[1, 1]),
    ]  # fmt: skip
    assert len({base, *others}) == 1 + len(others)
    near = zone(0, 8_000)
    far = Zone(id=0, allocatable=near.allocatable, available=near.available, distances=[])
    assert view(far) != base


def test_views_are_equal_whoever_it_is_that_reserves() -> None:
    bare = view(zone(0, 8_000))
    assert bare.less([Reservation("p", ODD)], stale=False) == bare.less([Reservation("q", ODD)], stale=False)


def test_reservations_count_in_every_zone_and_leave_no_less_than_nothing() -> None:
    held = [Reservation("p", {"cpu": 3_000, GPU: 1}), Reservation("q", {"cpu": 2_000, "memory": 1})]
    node = view(zone(0, 8_000), zone(2, None, gpu=4), zone(5, 8_000, 4_000, mem=None)).less(held, stale=True)

    assert [one.available for one in node.zones] == [
        {"cpu": 3_000, "memory": 63}, {"memory": 63, GPU: 3}, {"cpu": 0}
    ]  # fmt: skip
    assert [one.available["cpu"] for one in node.recorded if "cpu" in one.available] == [8_000, 4_000]
    assert [one.id for one in node.zones] == [0, 2, 5]
    assert [one.capacity for one in node.zones] == [one.capacity for one in node.recorded]
    assert (node.reservations, node.stale) == (tuple(held), True)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        pytest.param("single-numa-node", "numa_no_zone:cpu", id="one zone for each container"),
        pytest.param("restricted", "numa_restricted:cpu", id="as many as an empty node would need"),
        pytest.param("best-effort", "", id="the kubelet admits it anyhow"),
        pytest.param("none", "", id="the kubelet does not ask"),
    ],
)
@pytest.mark.parametrize("read", [str, as_read], ids=["", "read"])
def test_what_does_not_fit_is_refused_where_the_kubelet_would(policy: str, reason: str, read: Any) -> None:
    policy = read(policy)
    small = (zone(0, 8_000, 3_000), zone(1, 8_000, 3_000))

    assert refused(asks(4_000), view(*small, policy=policy)) == reason
    assert refused(asks(3_000), view(*small, policy=policy)) == ""
    assert refused(asks(3_000), view(*small, policy=policy, stale=True)) == ("zones_stale" if reason else "")
    assert refused(asks(3_000), view(policy=policy)) == ("zones_unread" if reason else "")
    assert refused(asks(3_000), view(policy=policy, stale=True)) == ("zones_stale" if reason else "")


def test_a_refusal_names_each_lack_with_what_the_record_has_there() -> None:
    node = view(zone(0, 8_000, 2_000, mem=9), zone(4, 8_000, 5_000, mem=3), memory_static=True)

    assert zones_refusal(asks(6_000, memory=10), node, LEAST) == ZonesRefusal(
        "numa_no_zone:cpu+memory",
        (Lack("cpu", "not_aligned", 6_000, 4, 5_000), Lack("memory", "not_aligned", 10, 0, 9)),
        (5_000, 9),
    )


def test_a_device_that_no_zone_lists_has_no_best_zone() -> None:
    """The managers are unknown, so that one zone has to list CPUs: none does."""
    found = zones_refusal(asks(1_000), view(zone(3, None), cpu_static=None), LEAST)

    assert found == ZonesRefusal("numa_no_zone:cpu", (Lack("cpu", "no_zone", 1_000),), (0,))


def test_what_would_fit_without_reservations_is_refused_for_them() -> None:
    node = view(zone(0, 8_000), zone(1, 8_000, 7_000), reserved=[3_000, 1_000])
    found = zones_refusal(asks(6_000), node, LEAST)

    assert found == ZonesRefusal(
        "numa_over_reserved", (Lack("cpu", "not_aligned", 6_000, 0, 4_000),), (8_000,), node.reservations
    )
    assert refused(asks(4_000), node) == ""
    assert zones_refusal(asks(9_000), node, LEAST) == ZonesRefusal(
        "numa_no_zone:cpu", (Lack("cpu", "not_aligned", 9_000, 0, 4_000),), (8_000,)
    )


def test_what_a_node_has_as_a_whole_is_not_the_zones_to_judge() -> None:
    """A device, storage, overhead or init container that no zone lists is never a lack here."""
    other = {"example.com/fpga": 1}
    node = view(zone(0, 8_000))
    pods = [
        pod({"cpu": 1_000, **other}), pod({"cpu": 1_000}, inits=[init(other)]), pod({"cpu": 1_000}, overhead=other),
        pod({"cpu": 1_000}, pod_level={"cpu": 1_000, **other}),
    ]  # fmt: skip
    for one in pods:
        for scope in ("container", "pod"):
            found = zoned(one)
            assert found is not None
            for known in ({}, {"cpu_static": None}):
                assert refused(found, view(zone(0, 8_000), scope=scope, **known)) == ""
    assert refused(asks(9_000), node) == "numa_no_zone:cpu"


@pytest.mark.parametrize(("strategy", "score"), [(LEAST, 94), ("LeastAllocated", 50), ("MostAllocated", 50)])
def test_a_node_scores_by_its_zones_less_reservations(strategy: Any, score: int) -> None:
    wide = view(zone(0, 8_000, mem=None), zone(1, 1_000, mem=None))
    assert zones_score(asks(4_000), wide, strategy) == score
    reserved = wide.less([Reservation("p", {"cpu": 3_000})], stale=False)
    assert (
        zones_score(asks(4_000), reserved, strategy) == {LEAST: 94, "LeastAllocated": 20, "MostAllocated": 80}[strategy]
    )


def test_scores_are_the_corrected_ones() -> None:
    """By cores rounded up, as the reference counts, nothing of the zone would be left."""
    assert zones_score(asks(200), view(zone(0, 500)), "LeastAllocated") == 60


def test_nodes_that_take_no_pod_score_nothing_and_pods_that_are_not_pinned_have_no_score() -> None:
    assert zones_score(asks(9_000), view(zone(0, 8_000)), "MostAllocated") == 0
    assert zones_score(asks(9_000), view(zone(0, 8_000)), LEAST) == 0
    assert zones_score(asks(1_000), view(zone(0, 8_000), stale=True), LEAST) == 0
    assert zones_score(asks(1_000), view(), LEAST) == 0
    burstable = zoned(pod({GPU: 1}, qos="Burstable"))
    assert burstable is not None
    assert zones_score(burstable, view(zone(0, 8_000, gpu=1)), LEAST) is None


@given(REQUESTS, st.lists(st.integers(0, 8_000), min_size=1, max_size=3), st.lists(st.integers(0, 4_000), max_size=3))
def test_a_reservation_never_makes_a_node_fit_better(
    request: dict[str, int], left: list[int], reserved: list[int]
) -> None:
    """And what is refused for reservations fits as soon as they end."""
    one = zoned(pod(request))
    assert one is not None
    zones = [zone(2 * number, 8_000, milli, gpu=1) for number, milli in enumerate(left)]
    bare, held = refused(one, view(*zones)), refused(one, view(*zones, reserved=reserved))

    assert held in {"", "numa_over_reserved"} if not bare else held.startswith("numa_no_zone:")
