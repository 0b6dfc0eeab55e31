"""What a node's zones mean for a pod that looks for a node."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.forms import converted
from slacktide.deploy.cli.calc.numa import GivenPod
from slacktide.schemas.zones import NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.numa.placement import (
    NodeZonesView,
    Reservation,
    ZonedPod,
    view_of_zones,
    zoned,
    zones_given,
    zones_refusal,
    zones_score,
    zones_terms,
)
from slacktide.streams.decisions.numa.score import STRATEGIES, Strategy
from slacktide.streams.decisions.numa.topology import Container, Kubelet, Pod
from testbed.numa_nodes import GPU, REQUESTS, init, pod
from testbed.plain import plain
from testbed.vectors import stated


def zone(
    number: int, cpu: int | None, left: int | None = None, *, mem: int | None = 64, gpu: int | None = None
) -> Zone:
    """``left``: millicores that no pod holds; None: all. Memory is in bytes, and all of it is left."""
    devices = {} if gpu is None else {GPU: gpu}
    return Zone(
        id=number,
        allocatable=ZoneResources(cpu_milli=cpu, mem_bytes=mem, devices=devices),
        available=ZoneResources(cpu_milli=cpu if left is None else left, mem_bytes=mem, devices=devices),
        distances=[ZoneDistance(zone=number, distance=10), ZoneDistance(zone=number + 1, distance=21)],
    )


def record(*zones: Zone, **said: Any) -> NodeZones:
    known = {"policy": "single-numa-node", "scope": "container", "cpu_static": True, "memory_static": False}
    known |= {"node": "a", "boot_id": "1-a", "seq": 1, "observed_ms": 1, "zones": list(zones)}
    return NodeZones(**{**known, **said})  # type: ignore[arg-type]


def view(*zones: Zone, reserved: Sequence[int] = (), stale: bool = False, **said: Any) -> NodeZonesView:
    """``reserved``: millicores of each pod that was placed since; the first is called p0."""
    found = view_of_zones(record(*zones, **said))
    assert found is not None
    held = [Reservation(f"p{number}", {"cpu": milli}) for number, milli in enumerate(reserved)]
    return found.less(held, stale=stale)


def asks(cpu: int, **more: int) -> ZonedPod:
    found = zoned(pod({"cpu": cpu, **more}))
    assert found is not None
    return found


LEAST: Strategy = "LeastNUMANodes"


def judged(asked: dict[str, Any]) -> Any:
    """What one pod finds on a node: by what it is refused, its score by each strategy, and the zones it would get."""
    one = zoned(converted(asked["pod"], GivenPod, "pod"))
    node = view_of_zones(record(*msgspec.convert(asked["zones"], list[Zone]), **asked.get("said", {})))
    assert one is not None
    assert node is not None
    held = [Reservation(*each) for each in asked.get("reserved", ())]
    node = node.less(held, stale=asked.get("stale", False))
    found = zones_given(one, node, LEAST)
    scores = {strategy: zones_score(one, node, strategy) for strategy in STRATEGIES}
    told = {"refusal": zones_refusal(one, node, LEAST), "scores": scores, "given": found}
    return plain({**told, "terms": found and zones_terms(found)})


@pytest.mark.parametrize(("asked", "expected"), list(stated("numa_placement")))
def test_a_pod_finds_on_a_node_what_the_case_says(asked: dict, expected: dict) -> None:
    assert json.loads(json.dumps(judged(asked))) == expected


def refused(one: ZonedPod, node: NodeZonesView) -> str:
    """The reason; "": none."""
    found = zones_refusal(one, node, LEAST)
    return "" if found is None else found.reason


ODD = {"cpu": 1_000}
PARTS: list[dict[str, Any]] = [
    *({"inits": [init(ODD)]}, {"inits": [init(ODD, sidecar=True)]}, {"overhead": ODD}),
    *({"pod_level": ODD}, {"pod_level": {}}),
]


def test_only_guaranteed_pods_and_those_with_devices_need_zones() -> None:
    assert zoned(pod({"cpu": 1_000})) is not None
    assert zoned(pod({"cpu": 1_000}, qos="Burstable")) is None
    assert zoned(pod({"kubernetes.io/batch-cpu": 1_000}, qos="BestEffort")) is None
    assert zoned(pod({GPU: 1}, qos="BestEffort")) is not None
    assert zoned(pod({}, qos="BestEffort", inits=[init({GPU: 1})])) is not None


def test_pods_are_answered_alike_where_their_requests_are() -> None:
    """By the order of resources no pod is another; by each part, and by a container's name, it is."""
    usual = pod({"cpu": 2_000, "memory": 3})
    keys = [zoned(pod({"cpu": 2_000, "memory": 3}, **part)) for part in ({}, *PARTS)]
    keys += [zoned(pod({"cpu": 2_000})), zoned(pod({"cpu": 2_000, "memory": 3}, {"cpu": 1}))]
    keys.append(zoned(Pod(qos="Guaranteed", containers=[Container(name="z", requests={"cpu": 2_000, "memory": 3})])))
    keys.append(zoned(pod({"cpu": 2_000, GPU: 1})))
    keys.append(zoned(pod({"cpu": 2_000, GPU: 1}, qos="Burstable")))

    assert zoned(usual) == zoned(pod({"memory": 3, "cpu": 2_000})) == keys[0]
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
