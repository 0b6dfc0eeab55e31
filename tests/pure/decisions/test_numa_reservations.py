"""The simple ways to know what zones have left."""

from slacktide.streams.decisions.numa.reservations import DiscardReserved, Passthrough, Topology, View, view_of
from slacktide.streams.decisions.numa.topology import Kubelet, NamedZone
from testbed.numa_topologies import cpus, seen, topology


def every_event(cache: Passthrough) -> None:
    one = seen("a")
    cache.reserve("n1", one)
    cache.post_bind("n1", one)
    cache.unreserve("n1", one)
    cache.filter_failed("n1")
    cache.pod_seen(one)
    cache.pod_gone(one)
    cache.resync()


def test_passthrough_gives_what_the_node_reports() -> None:
    cache = Passthrough({"n1": topology(8000, 4000)})
    every_event(cache)

    assert cpus(cache) == [8000, 4000]
    cache.topology("n1", topology(2000))
    assert cpus(cache) == [2000]
    cache.topology_deleted("n1")
    cache.topology_deleted("n1")
    assert cache.view("n1") == View(fresh=True, zones=None)
    assert (cache.generation, list(cache.dirty), list(cache.config_changed)) == (0, [], [])


def test_discard_reserved_uses_no_node_while_a_pod_is_reserved_there() -> None:
    cache = DiscardReserved({"n1": topology(8000)})
    cache.reserve("n1", seen("a"))
    cache.reserve("n1", seen("a"))
    cache.reserve("n1", seen("b"))

    assert cache.view("n1") == View(fresh=False, zones=None)
    cache.unreserve("n1", seen("a"))
    assert not cache.view("n1").fresh
    cache.post_bind("n1", seen("b"))
    cache.post_bind("n2", seen("b"))
    assert cpus(cache) == [8000]


def test_discard_reserved_needs_no_topology_to_reserve() -> None:
    cache = DiscardReserved({})
    cache.reserve("n2", seen("a"))

    assert cache.view("n1") == View(fresh=True, zones=None)
    assert not cache.view("n2").fresh


def test_each_reservation_is_taken_from_each_zone_and_never_more_than_there_is() -> None:
    zones = [NamedZone("node-0", "Node", {"cpu": 8000, "memory": 8}), NamedZone("other", "Socket", {"cpu": 3000})]

    view = view_of(Topology(zones=zones), [{"cpu": 2000}, {"cpu": 2000, "gpu": 1}])

    assert view == View(fresh=True, zones={"node-0": {"cpu": 4000, "memory": 8}, "other": {"cpu": 0}})


def test_an_attribute_has_the_first_value_of_its_name() -> None:
    its = Topology(zones=[], attributes=[("scope", "pod"), ("policy", "restricted"), ("policy", "none")])

    assert its.first("policy") == "restricted"
    assert its.first("max") is None


def test_an_object_holds_the_kubelets_settings_and_attributes() -> None:
    twice = Topology(zones=[], policies=["RestrictedPodLevel"], attributes=[("a", "1"), ("a", "2")])

    assert twice.kubelet() == Kubelet(policy="restricted", scope="pod")
    assert twice.first("a") == "1"
    assert twice.first("b") is None
