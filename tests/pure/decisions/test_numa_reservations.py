"""What zones have left once pods that were placed there are charged to them."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.reservations import (
    DiscardReserved,
    OverReserve,
    Passthrough,
    SeenPod,
    Topology,
    UntilSeen,
    View,
    view_of,
)
from slacktide.streams.decisions.numa.topology import Kubelet, NamedZone
from testbed.numa_nodes import pod


def topology(*cpus: int, uids: tuple[str, ...] = ()) -> Topology:
    """Zones with so many millicores each."""
    zones = [NamedZone(f"node-{at}", "Node", {"cpu": cpu}) for at, cpu in enumerate(cpus)]
    return Topology(zones=zones, uids=uids)


def seen(name: str, cpu: int = 6000) -> SeenPod:
    return SeenPod("default", name, f"uid-{name}", "own", "n1", "Running", pod({"cpu": cpu}))


def cpus(cache: Passthrough) -> list[int]:
    """What is available in each zone."""
    return [zone["cpu"] for zone in (cache.view("n1").zones or {}).values()]


def test_discard_reserved_needs_no_topology_to_reserve() -> None:
    cache = DiscardReserved({})
    cache.reserve("n2", seen("a"))

    assert cache.view("n1") == View(fresh=True, zones=None)
    assert not cache.view("n2").fresh


def test_each_reservation_is_taken_from_each_zone_and_never_more_than_there_is() -> None:
    zones = [NamedZone("node-0", "Node", {"cpu": 8000, "memory": 8}), NamedZone("other", "Socket", {"cpu": 3000})]

    view = view_of(Topology(zones=zones), [{"cpu": 2000}, {"cpu": 2000, "gpu": 1}])

    assert view == View(fresh=True, zones={"node-0": {"cpu": 4000, "memory": 8}, "other": {"cpu": 0}})


def test_an_object_holds_the_kubelets_settings_and_the_first_value_of_each_attribute() -> None:
    twice = Topology(zones=[], policies=["RestrictedPodLevel"], attributes=[("a", "1"), ("b", "2"), ("b", "3")])

    assert twice.kubelet() == Kubelet(policy="restricted", scope="pod")
    assert [twice.first(name) for name in "abc"] == ["1", "2", None]


@given(st.lists(st.tuples(st.sampled_from(["reserve", "unreserve"]), st.sampled_from("abc"), st.integers(0, 9000))))
def test_what_is_left_is_what_is_not_reserved_and_never_negative(events: list[tuple[str, str, int]]) -> None:
    one, held = OverReserve({"n1": topology(8000, 3000)}, own_schedulers=["own"]), {}
    for event, name, cpu in events:
        getattr(one, event)("n1", seen(name, cpu))
        held.pop(name, None)
        if event == "reserve":
            held[name] = cpu

    assert cpus(one) == [max(0, free - sum(held.values())) for free in (8000, 3000)]


@given(st.lists(st.tuples(st.sampled_from(["reserve", "record", "gone"]), st.sampled_from("abcd"))))
def test_until_it_is_seen_each_pod_counts_once_whatever_comes_first(events: list[tuple[str, str]]) -> None:
    """The record counts the pods that it names; all others that are reserved are charged beside it."""
    one, reserved, recorded = UntilSeen({"n1": topology(8000)}), set(), set()
    for event, name in events:
        pod = seen(name, 1000)
        if event == "reserve":
            one.reserve("n1", pod)
            reserved.add(name)
        elif event == "gone":
            one.pod_gone(pod)
            reserved.discard(name)
        else:
            recorded.add(name)
            uids = tuple(f"uid-{each}" for each in recorded)
            one.topology("n1", topology(8000 - 1000 * len(recorded), uids=uids))
        reserved -= recorded

    assert cpus(one) == [8000 - 1000 * len(reserved | recorded)]
