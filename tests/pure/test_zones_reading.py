"""A node's zones from fake trees of /sys and the kubelet's directory: whole, with gaps, torn."""

from __future__ import annotations

from pathlib import Path

import pytest

from slacktide.agents.node.envelopes import of_zones
from slacktide.agents.node.zones.kubelet import MemoryBlock, MemoryState
from slacktide.agents.node.zones.reading import ZonesReader
from slacktide.schemas.codec import decode
from slacktide.schemas.zones import BoundPod, NodeZones, ZoneDistance, ZoneResources
from testbed.zone_tree import GIB, STATIC, Tree, two_zones


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return two_zones(tmp_path)


def test_zones_have_their_cpus_memory_pages_and_distances(tree: Tree) -> None:
    record = tree.record()
    first, second = record.zones

    assert record.missing == []
    assert first.allocatable == ZoneResources(
        cpu_milli=2000, mem_bytes=3 * GIB - 16 * 2**20, hugepages_bytes={"1Gi": GIB, "2Mi": 16 * 2**20}
    )
    assert second.allocatable == ZoneResources(cpu_milli=2000, mem_bytes=4 * GIB)
    assert (first.available, second.available) == (first.allocatable, second.allocatable)
    assert first.distances == [ZoneDistance(zone=0, distance=10), ZoneDistance(zone=1, distance=21)]


def test_distances_are_by_place_where_ids_have_gaps(tree: Tree) -> None:
    tree.write("online", "0,3\n")
    tree.zone(3, "4-5", 4, "40 10")
    tree.zone(0, "0-1", 4, "10 40")

    assert [zone.id for zone in tree.record().zones] == [0, 3]
    assert tree.record().zones[1].distances == [ZoneDistance(zone=0, distance=40), ZoneDistance(zone=3, distance=10)]


def test_a_zone_of_memory_alone_lists_no_cpus_and_one_of_cpus_alone_no_memory(tree: Tree) -> None:
    tree.zone(0, "", 4, "10 21", pages_2048=0, pages_1048576=0)
    tree.zone(1, "0-3", 0, "21 10")
    memory, cpus = tree.record().zones

    assert memory.allocatable == ZoneResources(mem_bytes=4 * GIB)
    assert memory.available == memory.allocatable
    assert cpus.allocatable == ZoneResources(cpu_milli=4000)


def test_what_pods_hold_for_themselves_is_not_available(tree: Tree) -> None:
    tree.config(STATIC)
    tree.cpu_state(a={"app": "1", "side": "2"}, b={"app": "3"})
    tree.memory_state(3 * GIB, GIB, a=[0])
    record = tree.record("c", "b", "a", "a")
    first, second = record.zones

    assert (first.allocatable.cpu_milli, first.available.cpu_milli) == (1000, 0)
    assert (second.allocatable.cpu_milli, second.available.cpu_milli) == (2000, 0)
    assert (first.allocatable.mem_bytes, first.available.mem_bytes) == (3 * GIB, GIB)
    assert (second.allocatable.mem_bytes, second.available.mem_bytes) == (4 * GIB, 4 * GIB)
    assert record.pods == [BoundPod(uid="a", zones=[0, 1]), BoundPod(uid="b", zones=[1]), BoundPod(uid="c")]


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


def test_the_configuration_says_policy_scope_and_what_is_reserved(tree: Tree) -> None:
    tree.config(STATIC)
    record = tree.record()

    assert (record.policy, record.scope, record.max_zones, record.prefer_closest) == ("restricted", "pod", 16, True)
    assert (record.cpu_static, record.memory_static) == (True, True)
    assert record.zones[0].allocatable == ZoneResources(
        cpu_milli=1000, mem_bytes=2 * GIB - 16 * 2**20, hugepages_bytes={"1Gi": GIB, "2Mi": 12 * 2**20}
    )


def test_a_configuration_without_settings_has_the_kubelets_defaults(tree: Tree) -> None:
    record = tree.record()

    assert (record.policy, record.scope, record.max_zones, record.prefer_closest) == ("none", "container", 8, False)
    assert (record.cpu_static, record.memory_static) == (False, False)


@pytest.mark.parametrize(
    ("reserved", "free"),
    [
        ("systemReserved: {cpu: 500m}", [1000, 2000]),
        ("systemReserved: {cpu: 500m}\nkubeReserved: {cpu: '0.6'}", [0, 2000]),
        ("kubeReserved: {cpu: 3}", [0, 1000]),
        ("kubeReserved: {memory: 1Gi}", [2000, 2000]),
        ("kubeReserved: {cpu: 3}\nreservedSystemCPUs: 2-3", [2000, 0]),
    ],
)
def test_cpus_that_are_reserved_by_number_are_the_lowest(tree: Tree, reserved: str, free: list[int]) -> None:
    tree.config(f"cpuManagerPolicy: static\n{reserved}\n")

    assert [zone.allocatable.cpu_milli for zone in tree.record().zones] == free


def test_without_a_static_manager_no_cpu_is_set_aside(tree: Tree) -> None:
    tree.config("kubeReserved: {cpu: 3}\n")

    assert [zone.allocatable.cpu_milli for zone in tree.record().zones] == [2000, 2000]


def test_a_configuration_that_is_not_read_leaves_the_policy_unknown(tree: Tree) -> None:
    (tree.kubelet / "config.yaml").unlink()
    tree.cpu_state()
    record = tree.record()

    assert (record.policy, record.scope, record.cpu_static, record.memory_static) == (None, None, True, None)
    assert [zone.id for zone in record.zones] == [0, 1]
    (missing,) = record.missing
    assert missing.what == "kubelet configuration"
    assert "config.yaml" in missing.why


@pytest.mark.parametrize(
    "text",
    [
        "topologyManagerPolicy: weird",
        "topologyManagerScope: Pod",
        "topologyManagerPolicyOptions: {max-allowable-numa-nodes: '4'}",
        "topologyManagerPolicyOptions: {max-allowable-numa-nodes: many}",
        "reservedSystemCPUs: 0-x",
        "kubeReserved: {cpu: many}",
        "reservedMemory: [{numaNode: 0, limits: {memory: -1Gi}}]",
        "reservedMemory: [{numaNode: 0, limits: {memory: lots}}]",
        "reservedMemory: [{numaNode: -1}]",
        "- a list",
        "{torn: [",
        "",
    ],
)
def test_a_configuration_that_the_kubelet_would_refuse_is_named(tree: Tree, text: str) -> None:
    tree.config(text)
    record = tree.record()

    assert record.policy is None
    assert [missing.what for missing in record.missing] == ["kubelet configuration"]
    assert record.missing[0].why.count(str(tree.kubelet / "config.yaml")) == 1


def test_configz_holds_the_configuration_one_level_down(tree: Tree) -> None:
    tree.config("kubeletconfig: {topologyManagerPolicy: best-effort}\n")

    assert tree.record().policy == "best-effort"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("cpu_manager_state", '{"policyName":"static","entries":{"a":{"app":"1"}', "cpu_manager_state"),
        ("cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0"}', "checksum"),
        (
            "cpu_manager_state",
            '{"policyName":"static","defaultCpuSet":"","entries":{"a":{"app":"1-"}},"checksum":1}',
            "'1-': accepted: a list of CPUs such as 0-3,6",
        ),
        ("cpu_manager_state", "", "cpu_manager_state"),
        ("memory_manager_state", '{"policyName":"Static","machineState":{"x":', "memory_manager_state"),
        ("memory_manager_state", '{"policyName":"Static","machineState":{"x":{"memoryMap":{}}},"checksum":1}', "x"),
    ],
)
def test_with_a_torn_state_file_there_are_no_zones_to_place_pods_in(tree: Tree, file: str, text: str, why: str) -> None:
    (tree.kubelet / file).write_text(text)
    record = tree.record("a")

    assert record.zones == []
    assert record.policy == "none"
    assert [missing.what for missing in record.missing] == [file]
    assert why in record.missing[0].why
    assert str(tree.kubelet / file) in record.missing[0].why


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("node1/distance", "21\n", "1 distances: accepted: 2"),
        ("node1/distance", "21 far\n", "b'far': accepted: a number"),
        ("node1/meminfo", "Node 1 MemTotal:   41943", "no line MemTotal in kB"),
        ("node1/meminfo", "", "no line MemTotal in kB"),
        ("node1/cpulist", "2-", "malformed"),
        ("node0/hugepages/hugepages-2048kB/nr_hugepages", "", "accepted: a number"),
        ("online", "0-2\n", "2 distances: accepted: 3, one for each online zone"),
        ("online", "0,2\n", "node2/cpulist: No such file or directory"),
        ("online", "0,2000\n", "zone 2000: accepted: 0 to 1023"),
    ],
)
def test_with_a_torn_tree_there_are_no_zones(tree: Tree, file: str, text: str, why: str) -> None:
    tree.write(file, text)
    record = tree.record()

    assert record.zones == []
    assert [missing.what for missing in record.missing] == ["zones"]
    assert why in record.missing[0].why
    assert str(tree.sys) in record.missing[0].why


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
