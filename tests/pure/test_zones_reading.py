"""A node's zones from fake trees of /sys and the kubelet's directory: whole, with gaps, torn."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.outbox import of_zones
from slacktide.agents.node.zones.kubelet import MemoryBlock, MemoryState, cpu_state, memory_state
from slacktide.agents.node.zones.reading import ZonesReader
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import ZonesError
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.zones import NodeZones
from testbed.stories import each_story, story
from testbed.zone_tree import GIB, STATIC, Tree, two_zones


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return two_zones(tmp_path)


class Read:
    """The tree of two zones with other files, and its record in lines."""

    def __init__(self, tree: Tree, zones: dict | None = None, files: dict | None = None, **given: Any) -> None:
        self.tree, self.made = tree, tree.record()
        for number, (cpus, gib, distances, *pages) in (zones or {}).items():
            tree.zone(number, cpus, gib, distances, **dict.fromkeys(pages, 0))
        for name, text in (files or {}).items():
            tree.write(name, text)
        for name, text in given.get("kubelet", {}).items():
            (tree.kubelet / name).write_text(text)
        if "cpu" in given:
            tree.cpu_state(**given["cpu"])
        if "memory" in given:
            allocatable, free, held = given["memory"]
            tree.memory_state(allocatable * GIB, free * GIB, **held)

    def static(self) -> None:
        self.tree.config(STATIC)

    def lose_config(self) -> None:
        (self.tree.kubelet / "config.yaml").unlink()

    def record(self, *uids: str) -> None:
        self.made = self.tree.record(*uids)

    def state(self) -> dict[str, object]:
        made = self.made
        limits = f"{made.max_zones} zones, closest {made.prefer_closest}"
        found = {
            "policy": f"{made.policy}, scope {made.scope}, {limits}",
            "static": f"CPU {made.cpu_static}, memory {made.memory_static}",
            "zones": [zone.id for zone in made.zones],
            "pods": [(one.uid, one.zones) for one in made.pods],
            "missing": [(one.what, self._short(one.why)) for one in made.missing],
        }
        for zone in made.zones:
            distances = [(one.zone, one.distance) for one in zone.distances]
            found[f"zone {zone.id}"] = msgspec.to_builtins(zone.allocatable)
            found[f"zone {zone.id} has left"] = msgspec.to_builtins(zone.available)
            found[f"zone {zone.id} has distances"] = distances
        return found

    def _short(self, why: str) -> str:
        return why.replace(str(self.tree.sys), "SYS").replace(str(self.tree.kubelet), "KUBELET")


@each_story("zones_reading")
def test_what_is_read_of_zones(given: dict, steps: str, tree: Tree, snapshot: SnapshotAssertion) -> None:
    assert story(Read(tree, **given), steps) == snapshot


def test_memory_of_several_zones_is_taken_back_as_the_kubelet_does() -> None:
    """From the first zone as much as pods hold there, the rest from the next."""
    blocks = [MemoryBlock(numa_affinity=[0, 1], type="memory", size=7), MemoryBlock([1], "hugepages-2Mi", 4)]
    state = MemoryState(
        static=True,
        allocatable={0: {"memory": 9}, 1: {"memory": 9, "hugepages-2Mi": 4}},
        reserved={0: {"memory": 5}, 1: {"memory": 6, "hugepages-2Mi": 4}},
        free={0: {"memory": 4}, 1: {"memory": 3, "hugepages-2Mi": 0}},
        blocks={"a": blocks, "b": [MemoryBlock([1], "memory", 4)]},
    )
    after = state.without({"a"})

    assert after.free == {0: {"memory": 9}, 1: {"memory": 5, "hugepages-2Mi": 4}}
    assert after.reserved == {0: {"memory": 0}, 1: {"memory": 4, "hugepages-2Mi": 0}}
    assert (after.zones_of("a"), after.zones_of("b")) == (frozenset(), {1})
    assert state.without(()) == state


def test_a_pod_as_a_whole_holds_more_than_its_containers() -> None:
    """KEP-5526: containers have parts of what the pod has, so a block of both counts once."""
    table = {"total": 9, "systemReserved": 0, "allocatable": 9, "reserved": 6, "free": 3}
    part, whole = ({"numaAffinity": [0], "type": "memory", "size": size} for size in (4, 6))
    memory = memory_state(
        json.dumps(
            {
                "policyName": "Static",
                "machineState": {"0": {"memoryMap": {"memory": table}}},
                "entries": {"a": {"app": [part], "side": [part]}},
                "podEntries": {"a": {"memoryBlocks": [whole]}},
                "checksum": 1,
            }
        ).encode()
    )
    pods = {"a": {"cpuSet": "2-5"}, "b": {"cpuSet": "6-7"}}
    file = {"policyName": "static", "defaultCpuSet": "0-1", "entries": {"a": {"app": "2-3"}}, "podEntries": pods}
    cpu = cpu_state(json.dumps({**file, "checksum": 1}).encode())

    assert cpu.exclusive == {"a": {2, 3, 4, 5}, "b": {6, 7}}
    assert memory.without({"a"}).free == {0: {"memory": 9}}
    assert memory.zones_of("a") == {0}


@pytest.mark.parametrize("zone", [{"memoryMap": None}, {}], ids=str)
def test_a_memory_manager_that_manages_nothing_has_zones_without_memory(zone: dict[str, None]) -> None:
    state = memory_state(json.dumps({"policyName": "None", "machineState": {"0": zone}, "checksum": 1}).encode())

    assert (state.static, state.allocatable, state.free) == (False, {0: {}}, {0: {}})


@pytest.mark.parametrize("zone", ["0\n", " 0", "+1", "\u0661"])
def test_a_zone_that_is_no_number_is_the_readers_own_error(zone: str) -> None:
    state = {"policyName": "Static", "machineState": {zone: {}}, "checksum": 1}
    with pytest.raises(ZonesError):
        memory_state(json.dumps(state).encode())


def test_a_zone_names_its_cores_and_what_pods_have_for_themselves_is_not_available(tree: Tree) -> None:
    tree.zone(0, "0-3", 4, "10 21")
    tree.zone(1, "4", 4, "21 10")
    tree.cores("0,2", "1,3", "4")
    asks = Resources(cpu_milli=1_000)
    pods = [
        Pod(uid=uid, namespace="a", name=uid, qos_label=qos, cpuset=cpus, phase=phase, requests=asks)
        for uid, qos, cpus, phase in [
            ("lse", "LSE", "0", "Running"), ("lsr", "LSR", "4", "Pending"), ("ended", "LSR", "1", "Failed"),
        ]
    ]  # fmt: skip

    first, second = tree.record().zones
    assert (first.cores, second.cores) == ({0: [[0, 2], [1, 3]]}, {0: [[4]]})
    with_pods = tree.record("lse", "lsr", pods=pods)
    assert [zone.available.cpu_milli for zone in with_pods.zones] == [2_000, 0]
    assert [zone.allocatable.cpu_milli for zone in with_pods.zones] == [4_000, 1_000]
    assert [(one.uid, one.zones) for one in with_pods.pods] == [("lse", [0]), ("lsr", [1])]


def test_a_kernel_without_zones_is_told(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.config("kind: KubeletConfiguration\n")

    assert "online: No such file or directory" in tree.record().missing[0].why


def test_the_record_goes_to_its_topic_by_node(tree: Tree) -> None:
    out = of_zones(tree.record("a"))

    assert (out.topic, out.key) == ("slacktide.node.zones.v1", b"n1")
    assert out.value is not None
    assert decode(out.value, NodeZones) == tree.record("a")


def test_the_zones_of_this_machine_are_read(tmp_path: Path) -> None:
    folder = Path("/sys/devices/system/node")
    read = ZonesReader(folder, tmp_path).read()
    if (folder / "online").exists():
        assert [zone.id for zone in read.zones]
    else:
        assert "zones" in {missing.what for missing in read.missing}
