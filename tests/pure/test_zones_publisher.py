"""Which records of its zones a node publishes, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from slacktide.agents.node.zones.devices import DeviceState
from slacktide.agents.node.zones.kubelet import CpuState, MemoryState
from slacktide.agents.node.zones.publisher import ZonesFolders, ZonesRecords, counted
from slacktide.agents.node.zones.record import Read
from slacktide.schemas.inventory import Pod
from slacktide.schemas.zones import NodeZones
from testbed.zone_tree import STATIC, Tree, two_zones


def pod(uid: str, phase: str = "Running", kube_qos: str = "BestEffort") -> Pod:
    return Pod(uid=uid, namespace="default", name=uid, phase=phase, kube_qos=kube_qos)


class ManualClock:
    """It stands still until it is moved on."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000


class Node:
    """A node's files, a clock, and what is due at each look."""

    def __init__(self, folder: Path) -> None:
        self.tree: Tree = two_zones(folder)
        self.clock = ManualClock()
        folders = ZonesFolders(sys_folder=self.tree.sys, kubelet_folder=self.tree.kubelet)
        self.records = ZonesRecords(folders, node="n1", boot_id="b", clock=self.clock)

    def look(self, *pods: Pod, after_s: float = 1) -> NodeZones | None:
        self.clock.now_ns += round(after_s * 1e9)
        return self.records.due(pods) if self.records.changed(pods) else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_without_a_change_a_record_follows_after_five_seconds(node: Node) -> None:
    first = node.look()
    assert first is not None
    assert [node.look() for _ in range(4)] == [None] * 4
    second = node.look()
    assert second is not None
    assert (second.seq, second.zones) == (first.seq + 1, first.zones)


def test_what_the_kubelet_gives_to_a_pod_is_published_at_the_next_look(node: Node) -> None:
    node.look()
    node.tree.cpu_state(a={"app": "2"})
    record = node.look(pod("a", "Pending"))

    assert record is not None
    assert [one.uid for one in record.pods] == ["a"]
    assert record.zones[1].available.cpu_milli == 1000


def test_a_pod_that_waits_and_holds_nothing_is_not_named(node: Node) -> None:
    """It may have been listed before the kubelet gave it CPUs."""
    node.look()
    assert node.look(pod("a", "Pending")) is None
    named = node.look(pod("a", "Running"), pod("b", "Succeeded"))

    assert named is not None
    assert [one.uid for one in named.pods] == ["a"]


def test_a_pod_counts_once_the_last_manager_has_given_to_it(node: Node) -> None:
    node.tree.config(STATIC)
    node.tree.memory_state(9, 9)
    node.tree.cpu_state(a={"app": "2"})
    before = node.look(pod("a", "Pending"))
    node.tree.memory_state(9, 5, a=[1])
    after = node.look(pod("a", "Pending"))

    assert before is not None
    assert before.pods == []
    assert after is not None
    assert [one.uid for one in after.pods] == ["a"]


@pytest.mark.parametrize("now", [[], [pod("a", "Failed")], [pod("a", "Succeeded"), pod("b")]])
def test_what_an_ended_pod_held_is_available_although_the_kubelet_has_not_taken_it_back(
    node: Node, now: list[Pod]
) -> None:
    """The memory manager does so when the next pod is admitted, which would never come to a zone that looks full."""
    node.tree.config(STATIC)
    node.tree.cpu_state(a={"app": "2"})
    node.tree.memory_state(9, 4, a=[0])
    before = node.look(pod("a"))
    after = node.look(*now)

    assert before is not None
    assert (before.zones[0].available.mem_bytes, before.zones[1].available.cpu_milli) == (4, 1000)
    assert after is not None
    assert (after.zones[0].available.mem_bytes, after.zones[1].available.cpu_milli) == (9, 2000)
    assert "a" not in [one.uid for one in after.pods]


def test_an_ended_pod_holds_nothing_in_later_records(node: Node) -> None:
    node.tree.cpu_state(a={"app": "2"})
    node.look(pod("a"))
    later = [node.look(after_s=6) for _ in range(3)]

    assert [one and one.zones[1].available.cpu_milli for one in later] == [2000] * 3


def test_a_pod_that_holds_cpus_before_it_is_listed_holds_them(node: Node) -> None:
    node.look(pod("a"))
    node.tree.cpu_state(b={"app": "2"})
    record = node.look(pod("a"))

    assert record is not None
    assert record.zones[1].available.cpu_milli == 1000
    assert [one.uid for one in record.pods] == ["a", "b"]


def test_a_pod_that_ended_before_the_agent_began_holds_its_cpus_for_a_minute_at_most(node: Node) -> None:
    """No list ever has it. A pod that was just admitted is in the next one."""
    node.tree.cpu_state(a={"app": "2"})
    first = node.look(pod("b"))
    later = [node.look(pod("b"), after_s=30) for _ in range(3)]

    assert first is not None
    assert first.zones[1].available.cpu_milli == 1000
    assert [one and one.zones[1].available.cpu_milli for one in later] == [1000, 2000, 2000]


def test_without_a_list_of_pods_none_has_ended(node: Node) -> None:
    node.tree.cpu_state(a={"app": "2"})
    looks = [node.look(after_s=61) for _ in range(3)]

    assert [one and one.zones[1].available.cpu_milli for one in looks] == [1000] * 3


def test_a_pod_with_devices_counts_once_the_last_manager_has_given_to_it(node: Node) -> None:
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


def test_a_changed_configuration_of_the_kubelet_is_published(node: Node) -> None:
    before = node.look()
    node.tree.config(STATIC)
    after = node.look()

    assert before is not None
    assert after is not None
    assert (before.policy, after.policy) == ("none", "restricted")


def test_a_torn_file_is_named_and_a_whole_one_brings_the_zones_back(node: Node) -> None:
    node.look()
    (node.tree.kubelet / "cpu_manager_state").write_text('{"policyName": "sta')
    torn = node.look()
    node.tree.cpu_state()
    whole = node.look()

    assert torn is not None
    assert torn.zones == []
    assert [one.what for one in torn.missing] == ["cpu_manager_state"]
    assert whole is not None
    assert len(whole.zones) == 2
    assert whole.missing == []


def test_a_record_that_did_not_arrive_is_due_again(node: Node) -> None:
    node.look()
    node.records.owe()
    assert node.look() is not None


def test_a_kernel_that_gains_a_zone_is_seen_within_five_seconds(node: Node) -> None:
    node.look()
    node.tree.write("online", "0-2\n")
    for zone, cpus in enumerate(("0-1", "2-3", "4-5")):
        node.tree.zone(zone, cpus, 4, "10 21 21")
    record = node.look(after_s=5)

    assert record is not None
    assert [zone.id for zone in record.zones] == [0, 1, 2]
