"""Which records of its zones a node publishes, and when."""

from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from slacktide.agents.node.zones.kubelet import CpuState, MemoryState
from slacktide.agents.node.zones.publisher import ZonesFolders, ZonesRecords, counted
from slacktide.agents.node.zones.record import DeviceState, Read
from slacktide.schemas.inventory import Pod
from slacktide.schemas.zones import NodeZones
from testbed.lone_agent import SteppedClock
from testbed.stories import each_story, story
from testbed.zone_tree import STATIC, Tree, two_zones


def pod(uid: str, phase: str = "Running", kube_qos: str = "BestEffort") -> Pod:
    return Pod(uid=uid, namespace="default", name=uid, phase=phase, kube_qos=kube_qos)


class Node:
    """A node's files, a clock, and what is due at each look."""

    def __init__(self, folder: Path) -> None:
        self.tree: Tree = two_zones(folder)
        self.clock = SteppedClock()
        self.record: NodeZones | None = None
        folders = ZonesFolders(sys_folder=self.tree.sys, kubelet_folder=self.tree.kubelet)
        self.records = ZonesRecords(folders, node="n1", boot_id="b", clock=self.clock)

    def wait(self, seconds: int) -> None:
        self.clock.pass_ms(seconds * 1_000)

    def look(self, *pods: str) -> None:
        """A second later, with pods such as ``a`` or ``a:Pending``."""
        self.wait(1)
        listed = [pod(*one.split(":")) for one in pods]
        self.record = self.records.due(listed) if self.records.changed(listed) else None

    def cpu(self, *held: str) -> None:
        """Given to pods by the CPU manager, as in ``a=2``."""
        self.tree.cpu_state(**{uid: {"app": cpus} for uid, _, cpus in (one.partition("=") for one in held)})

    def memory(self, allocatable: int, free: int, *held: str) -> None:
        """Given to pods by the memory manager, as in ``a=0`` from zone 0."""
        self.tree.memory_state(allocatable, free, **{one[0]: [int(one[2:])] for one in held})

    def static(self) -> None:
        self.tree.config(STATIC)

    def torn(self) -> None:
        (self.tree.kubelet / "cpu_manager_state").write_text('{"policyName": "sta')

    def third_zone(self) -> None:
        self.tree.write("online", "0-2\n")
        for zone, cpus in enumerate(("0-1", "2-3", "4-5")):
            self.tree.zone(zone, cpus, 4, "10 21 21")

    def state(self) -> dict[str, object]:
        if self.record is None:
            return {"record": None}
        free = [f"zone {one.id}: {one.available.cpu_milli}m {one.available.mem_bytes} B" for one in self.record.zones]
        pods = [f"pod {one.uid} in {one.zones}" for one in self.record.pods]
        missing = [f"missing {one.what}" for one in self.record.missing]
        return {"record": f"{self.record.seq}, policy {self.record.policy}: {'; '.join(free + pods + missing)}"}


@each_story("zones_publisher")
def test_which_records_a_node_publishes(given: dict, steps: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert story(Node(tmp_path), steps) == snapshot


def test_a_pod_with_devices_counts_once_the_last_manager_has_given_to_it() -> None:
    """To a pod that is not Guaranteed the device manager gives alone."""

    def counts(pods: list[Pod], *, cpu_static: bool, memory_static: bool) -> set[str]:
        held = {"d": {"example.com/device": frozenset({"d0"})}}
        read = Read(
            zones=[],
            config=None,
            cpu=CpuState(static=cpu_static, exclusive={}),
            memory=MemoryState(static=memory_static, allocatable={}, reserved={}, free={}, blocks={}),
            devices=DeviceState(zones={}, held=held),
        )
        return counted(read, pods)

    guaranteed, burstable = pod("d", "Pending", "Guaranteed"), pod("d", "Pending", "Burstable")
    assert counts([guaranteed], cpu_static=False, memory_static=False) == {"d"}
    assert counts([guaranteed], cpu_static=True, memory_static=False) == set()
    assert counts([guaranteed], cpu_static=False, memory_static=True) == set()
    assert counts([burstable], cpu_static=True, memory_static=True) == {"d"}
