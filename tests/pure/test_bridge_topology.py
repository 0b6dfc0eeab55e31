"""NodeResourceTopology objects: their shape, and how often they are written."""

from __future__ import annotations

from typing import Any

from slacktide.agents.cluster.bridge.node_status import AT_LEAST, shown
from slacktide.agents.cluster.bridge.topology import (
    ShownNode,
    Topologies,
    TopologyWrite,
    body_of,
    created,
)
from slacktide.agents.cluster.bridge.writing import Writing
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.units import cpu_milli, whole
from slacktide.schemas.zones import ZONES_STALE_S, NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.numa.topology import NamedZone, kubelet_of, zones_of

GIB = 2**30
BARE = ShownNode("uid-a")


def record(node: str = "a", *, free_milli: int = 2_500, **said: Any) -> NodeZones:
    known: dict[str, Any] = {"boot_id": "1-a", "seq": 1, "observed_ms": 1, "policy": "restricted", "scope": "pod"}
    known |= {"cpu_static": True, "memory_static": False, "max_zones": 16}
    has = ZoneResources(
        cpu_milli=8_000, mem_bytes=16 * GIB, hugepages_bytes={"2Mi": 2 * GIB}, devices={"example.com/gpu": 2}
    )
    left = ZoneResources(cpu_milli=free_milli, mem_bytes=GIB, hugepages_bytes={"2Mi": GIB}, devices={})
    far = [ZoneDistance(zone=0, distance=10), ZoneDistance(zone=3, distance=21)]
    memory = ZoneResources(mem_bytes=64 * GIB)
    zones = [
        Zone(id=0, allocatable=has, available=left, distances=far),
        Zone(id=3, allocatable=memory, available=memory),
    ]
    return NodeZones(**{**known, "node": node, "zones": zones, **said})


def read_by_the_rules(body: Any) -> Any:
    """As scheduler-plugins reads an object."""
    named = [
        NamedZone(
            zone["name"],
            zone["type"],
            {
                one["name"]: cpu_milli(one["available"]) if one["name"] == "cpu" else whole(one["available"])
                for one in zone["resources"]
            },
            [(one["name"], one["value"]) for one in zone["costs"]],
        )
        for zone in body["zones"]
    ]
    return kubelet_of([], [(one["name"], one["value"]) for one in body["attributes"]]), zones_of(named)


def test_who_reads_the_object_finds_what_is_in_the_record() -> None:
    kubelet, [first, second] = read_by_the_rules(body_of(record(), BARE))

    assert (kubelet.policy, kubelet.scope, kubelet.max_zones) == ("restricted", "pod", 16)
    assert first.id == 0
    assert first.available == {"cpu": 2_500, "memory": GIB, "hugepages-2Mi": GIB, "example.com/gpu": 0}
    assert first.costs == {0: 10, 3: 21}
    assert (second.id, second.available) == (3, {"memory": 64 * GIB})


def test_an_unknown_policy_is_no_attribute_and_the_object_goes_with_its_node() -> None:
    body = body_of(record(policy=None, scope=None), BARE)
    assert [one["name"] for one in body["attributes"]] == ["topologyManagerMaxNUMANodes"]  # type: ignore[index, attr-defined]
    made: Any = created("a", "uid-a", body)
    assert (made["apiVersion"], made["metadata"]["name"]) == ("topology.node.k8s.io/v1alpha2", "a")
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a"}]


def test_zones_divide_the_batch_resources_that_the_node_shows() -> None:
    node = ShownNode("uid-a", batch_cpu_milli=3_001, batch_mem_bytes=13 * GIB)
    _, [first, second] = read_by_the_rules(body_of(record(), node))

    assert first.available.keys() - second.available.keys() == {
        "cpu", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/batch-cpu"
    }  # fmt: skip
    assert first.available["kubernetes.io/batch-cpu"] == 3_001, "the other zone has no CPUs"
    assert first.available["kubernetes.io/batch-memory"] == 13 * GIB // 65, "1 of 65 GiB is free there"
    parts = [zone.available["kubernetes.io/batch-memory"] for zone in (first, second)]
    assert sum(parts) == node.batch_mem_bytes
    for zone in body_of(record(), node)["zones"]:  # type: ignore[attr-defined]
        for one in zone["resources"]:
            assert "batch" not in one["name"] or one["capacity"] == one["allocatable"] == one["available"]


def test_the_bridge_divides_what_a_node_shows_and_can_be_read() -> None:
    writing = Writing()
    names = {"kubernetes.io/batch-cpu": "3k", "kubernetes.io/batch-memory": "many"}
    for node, status in {"a": shown({}, names), "b": shown(names, None)}.items():
        facts = NodeFacts(name=node, capacity=Resources(), allocatable=Resources())
        writing.node(f"uid-{node}", facts, status, 0)

    assert writing.shown == {"a": ShownNode("uid-a", 3_000, None), "b": ShownNode("uid-b", None, None)}


def due(topologies: Topologies, now_s: float, *nodes: str, batch_cpu_milli: int | None = None) -> list[TopologyWrite]:
    """What is due, and done."""
    writes = topologies.due({name: ShownNode(f"uid-{name}", batch_cpu_milli) for name in nodes}, now_s)
    for write in writes:
        topologies.wrote(write, now_s, done=True)
    return writes


def test_an_object_is_written_on_a_change_and_of_many_changes_few() -> None:
    topologies = Topologies()
    topologies.take(record(), 0)
    assert [write.first for write in due(topologies, 0, "a")] == [True]
    topologies.take(record(seq=2), 5)
    assert due(topologies, 5, "a") == [], "nothing has changed"
    written = 0
    for second in range(10, 610):
        topologies.take(record(seq=second, free_milli=second), second)
        written += len(due(topologies, second, "a"))
    assert 5 <= written <= 5 + 3, "0.5 a minute, and what it had saved"


def test_an_object_is_written_when_the_node_shows_other_batch_resources() -> None:
    topologies = Topologies()
    topologies.take(record(), 0)
    assert len(due(topologies, 0, "a")) == 1
    assert len(due(topologies, 11, "a", batch_cpu_milli=1_000)) == 1
    assert due(topologies, 14, "a", batch_cpu_milli=1_000) == []
    topologies.take(record(seq=2), 14)
    [withdrawn] = due(topologies, 25, "a")
    assert "batch" not in str(withdrawn.body)


def test_amounts_that_come_back_are_written_again() -> None:
    topologies = Topologies()
    topologies.take(record(), 0)
    due(topologies, 0, "a", batch_cpu_milli=1)
    topologies.take(record(seq=2), 8)
    written = [due(topologies, second, "a", batch_cpu_milli=milli) for second, milli in ((10, 1), (11, 2), (22, 1))]
    assert [len(one) for one in written] == [0, 1, 1]


def test_nothing_is_written_of_a_node_that_is_gone_or_of_a_record_that_is_old() -> None:
    topologies = Topologies()
    topologies.take(record(), 0)
    assert due(topologies, 1) == []
    assert due(topologies, ZONES_STALE_S, "a") == []
    topologies.take(record(seq=2), ZONES_STALE_S + 1)
    topologies.forget("a")
    assert due(topologies, ZONES_STALE_S + 1, "a") == []


def test_an_older_record_is_passed_over_while_the_newer_one_is_fresh() -> None:
    topologies = Topologies()
    topologies.take(record(seq=5), 0)
    due(topologies, 0, "a")
    topologies.take(record(seq=4, free_milli=0), 11)
    assert due(topologies, 11, "a") == []
    topologies.take(record(seq=1, free_milli=0), 30)
    assert len(due(topologies, 30, "a")) == 1


def test_a_fleet_is_written_within_its_share_and_a_failed_write_is_tried_again_later() -> None:
    topologies = Topologies()
    names = [f"n{number:03d}" for number in range(100)]
    for name in names:
        topologies.take(record(name), 0)
    assert len(due(topologies, 0, *names)) == AT_LEAST
    [write, *_] = topologies.due(dict.fromkeys(names, BARE), 1)
    topologies.wrote(write, 1, done=False)
    assert write.node not in {one.node for one in topologies.due(dict.fromkeys(names, BARE), 2)}
    assert write.node in {one.node for one in topologies.due({write.node: BARE}, 12)}
