"""The zones that a node's kubelet would give to a pod."""

from __future__ import annotations

from slacktide.streams.decisions.numa.filter import Lack
from slacktide.streams.decisions.numa.placement import (
    NodeZonesView,
    ZonedPod,
    ZonedRequest,
    ZonesGiven,
    zoned,
    zones_given,
    zones_terms,
)
from testbed.numa_nodes import GPU, as_read, init, pod
from testbed.zone_views import asks, view, zone

LEAST = "LeastNUMANodes"


def given_by(one: ZonedPod | None, node: NodeZonesView) -> ZonesGiven:
    assert one is not None
    found = zones_given(one, node, LEAST)
    assert found is not None
    return found


def test_the_zones_that_the_kubelet_would_give_are_shown_with_what_is_free_before_and_after() -> None:
    node = view(zone(0, 8_000, 1_000), zone(2, 8_000), zone(3, None), zone(4, 8_000), reserved=[500])
    given = given_by(asks(3_000, memory=9), node)

    assert given == ZonesGiven(
        requests=(ZonedRequest("a", {"cpu": 3_000, "memory": 9}, (2,)),),
        before={2: {"cpu": 7_500, "memory": 64}},
        after={2: {"cpu": 4_500, "memory": 64}},
        distance=10,
        reservations=node.reservations,
    )
    assert zones_terms(given) == {
        "zone_count": 1, "zone_distance": 10, "zone_2_free_milli": 7_500, "zone_2_left_milli": 4_500,
        "reserved_pods": 1,
    }  # fmt: skip
    two = given_by(zoned(pod({"cpu": 5_000}, {"cpu": 4_000})), node)
    assert [one.zones for one in two.requests] == [(2,), (4,)]
    assert two.after == {2: {"cpu": 2_500}, 4: {"cpu": 3_500}}
    assert two.distance == 10 + 10 + 2 * 255, "the record has no distance between these"


def test_zones_that_are_given_lose_what_the_kubelet_pins_there() -> None:
    """Memory under the policy None it does not pin, nor a fraction of a core, nor CPU of a Burstable pod."""
    known = view(zone(0, 8_000, gpu=2), memory_static=True)
    assert given_by(asks(3_000, memory=9), known).after == {0: {"cpu": 5_000, "memory": 55}}
    assert given_by(asks(1_500, memory=9), known).after == {0: {"cpu": 8_000, "memory": 55}}
    burstable = zoned(pod({"cpu": 3_000, GPU: 1}, qos="Burstable"))
    assert given_by(burstable, known).after == {0: {"cpu": 8_000, GPU: 1}}
    unpinned = view(zone(0, 8_000), policy="restricted", cpu_static=False)
    as_logged = zoned(pod({as_read("cpu"): 3_000, "memory": 9}))
    assert given_by(as_logged, unpinned).after == {0: {"cpu": 8_000, "memory": 64}}
    unknown = view(zone(0, 8_000), policy="restricted", cpu_static=None, memory_static=None)
    assert given_by(asks(3_000, memory=9), unknown).after == {0: {"cpu": 5_000, "memory": 55}}


def test_a_pod_as_a_whole_is_charged_with_all_that_is_pinned_of_it() -> None:
    two = zoned(pod({"cpu": 3_000}, {"cpu": 1_500}, inits=[init({"cpu": 1_000}, sidecar=True)]))
    whole = given_by(two, view(zone(0, 8_000), scope="pod"))

    assert whole.requests == (ZonedRequest(None, {"cpu": 5_500}, (0,)),)
    assert (whole.before, whole.after) == ({0: {"cpu": 8_000}}, {0: {"cpu": 4_000}})
    assert given_by(two, view(zone(0, 8_000))).after == {0: {"cpu": 4_000}}


def test_what_the_kubelet_admits_without_aligning_it_is_shown() -> None:
    small = (zone(0, 8_000, 3_000), zone(1, 8_000, 3_000))
    given = given_by(asks(4_000), view(*small, policy="best-effort"))
    assert given.unaligned == (Lack("cpu", "not_aligned", 4_000, 0, 3_000),)
    assert (given.requests, given.before, given.distance) == ((), {}, 0)
    moved = zoned(pod({"cpu": 2_000}, {"cpu": 8_000}, inits=[init({"cpu": 4_000})], overhead={"cpu": 100}))
    given = given_by(moved, view(zone(0, 8_000), zone(1, 8_000)))
    assert (given.moved, given.not_charged) == (("b",), {"cpu": 100})
    assert given_by(asks(4_000), view(*small, policy="none")) == ZonesGiven()


def test_a_zone_without_cpus_is_counted_and_has_no_millicores() -> None:
    burstable = zoned(pod({GPU: 1}, qos="Burstable"))
    assert zones_terms(given_by(burstable, view(zone(1, None, gpu=1)))) == {
        "zone_count": 1, "zone_distance": 10, "reserved_pods": 0
    }  # fmt: skip


def test_zones_that_are_not_known_are_given_to_nobody() -> None:
    assert zones_given(asks(1_000), view(), LEAST) is None
    assert zones_given(asks(1_000), view(zone(0, 8_000), stale=True), LEAST) is None
