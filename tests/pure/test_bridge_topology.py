"""NodeResourceTopology objects: their shape, and how often they are written."""

from typing import Any

from slacktide.agents.cluster.bridge.mirror import ShownNode, Topologies, body_of, created
from slacktide.agents.cluster.bridge.node_status import AT_LEAST, shown
from slacktide.agents.cluster.bridge.writing import Writing
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.units import cpu_milli, whole
from slacktide.schemas.zones import NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.numa.topology import NamedZone, kubelet_of, zones_of
from testbed.scenarios import run, scenarios

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


def test_the_bridge_divides_what_a_node_shows_and_can_be_read() -> None:
    writing = Writing()
    names = {"kubernetes.io/batch-cpu": "3k", "kubernetes.io/batch-memory": "many"}
    for node, status in {"a": shown({}, names), "b": shown(names, None)}.items():
        facts = NodeFacts(name=node, capacity=Resources(), allocatable=Resources())
        writing.node(f"uid-{node}", facts, status, 0)

    assert writing.shown == {"a": ShownNode("uid-a", 3_000, None), "b": ShownNode("uid-b", None, None)}


class Objects:
    """NodeResourceTopology objects of a node."""

    def __init__(self) -> None:
        self._topologies = Topologies()

    def take(self, now_s: float, **of: Any) -> None:
        self._topologies.take(record(**of), now_s)

    def due(self, now_s: float, *batch: int, gone: bool = False) -> list[list[Any]]:
        """What is due of a node that shows these batch resources, and done: its first write, and the amounts."""
        writes = self._topologies.due({} if gone else {"a": ShownNode("uid-a", *batch)}, now_s)
        for write in writes:
            self._topologies.wrote(write, now_s, done=True)
        return [[one.first, "batch" in str(one.body)] for one in writes]

    def changes(self, since_s: int, until_s: int) -> int:
        """How often it is written when it changes every second."""
        written = 0
        for second in range(since_s, until_s):
            self.take(second, seq=second, free_milli=second)
            written += len(self.due(second))
        return written

    def forget(self) -> None:
        self._topologies.forget("a")

    def read(self, *batch: int, **of: Any) -> list[Any]:
        """The object, and what whoever reads it finds."""
        body = body_of(record(**of), ShownNode("uid-a", *batch))
        return [created("a", "uid-a", body), *read_by_the_rules(body)]


@scenarios("bridge_topology")
def test_bridge_topology(case: dict[str, Any]) -> None:
    run(case, Objects)


def test_a_fleet_is_written_within_its_share_and_a_failed_write_is_tried_again_later() -> None:
    topologies = Topologies()
    names = [f"n{number:03d}" for number in range(100)]
    for name in names:
        topologies.take(record(name), 0)
    shows = dict.fromkeys(names, BARE)
    writes = topologies.due(shows, 0)
    for write in writes:
        topologies.wrote(write, 0, done=True)
    assert len(writes) == AT_LEAST
    [write, *_] = topologies.due(shows, 1)
    topologies.wrote(write, 1, done=False)
    assert write.node not in {one.node for one in topologies.due(shows, 2)}
    assert write.node in {one.node for one in topologies.due({write.node: BARE}, 12)}
