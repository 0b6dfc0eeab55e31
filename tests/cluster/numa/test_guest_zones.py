"""A real kubelet with two NUMA zones of one CPU: what its agent reads of them, and what the extender spares pods.

The kubelet keeps CPU 0 for the system. The tests run in this order and leave no pod.
"""

import contextlib
import json
from collections.abc import Iterator

import pytest

from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones
from testbed.cluster.api_server import Json
from testbed.cluster.guest_node import GuestNode, running_guest_node
from testbed.cluster.guest_scheduling import SCHEDULER, GuestScheduling

pytestmark = [pytest.mark.alone, pytest.mark.zonednode, pytest.mark.timeout(900)]

MIB = 1 << 20
HELD_MIB = 900
"""Zone 1 alone has as much: its 1 GiB less what the kernel takes. Zone 0 has 200 MiB less."""
SPLIT_MIB = 600
"""Beside that pod zone 0 alone has as much."""
SMALL_MIB = 64
"""Any zone has it."""
A, B = "example.com/deviceA", "example.com/deviceB"
SYSTEM_MIB = 200
"""What the kubelet keeps of zone 0's memory."""
NO_LOAD = {"scheduling.koordinator.sh/usage-thresholds": json.dumps({"usageThresholds": {"cpu": 0, "memory": 0}})}
"""Not compared: the guest is slow, and programs that start there keep it busy."""


def last(node: GuestNode) -> NodeZones:
    """The record of zones that the agent published last."""
    return node.records(ZONES, NodeZones)[-1]


def free_milli(node: GuestNode) -> list[int | None]:
    """By zone the CPU that no pod holds."""
    return [zone.available.cpu_milli for zone in last(node).zones]


def zones_of(node: GuestNode, uid: str) -> list[int] | None:
    """Of a pod; None: the last record does not count it."""
    return {one.uid: one.zones for one in last(node).pods}.get(uid)


def status(node: GuestNode, namespace: str, name: str) -> Json:
    found: Json = node.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
    return found


def host(node: GuestNode, namespace: str, name: str) -> str:
    """The node that a pod is bound to; "": it waits."""
    return str(node.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"].get("nodeName", ""))


def why_waiting(node: GuestNode, namespace: str, name: str) -> str:
    conditions = status(node, namespace, name).get("conditions", [])
    return " ".join(one.get("message", "") for one in conditions if one["type"] == "PodScheduled")


def guaranteed(
    node: GuestNode, namespace: str, name: str, *devices: str, cpu: str, mem_mib: int, scheduler: str | None = None
) -> str:
    """Make a pod with one of each of these devices; its uid. Without a scheduler it is on the node from the start."""
    amounts = {"cpu": cpu, "memory": f"{mem_mib}Mi", **dict.fromkeys(devices, "1")}
    resources = {"requests": amounts, "limits": amounts}
    return node.run(namespace, name, "burn", "serve", "1", "1000", resources=resources, scheduler=scheduler)


def split(node: GuestNode, namespace: str, name: str) -> str:
    """Make a pod for a scheduler to place; its uid. Zone 1 has a CPU for it, zone 0 the memory."""
    return guaranteed(node, namespace, name, cpu="1", mem_mib=SPLIT_MIB, scheduler=SCHEDULER)


def free_devices(node: GuestNode) -> list[dict[str, int]]:
    """By zone the devices that no pod holds."""
    return [zone.available.devices for zone in last(node).zones]


def cpuset(node: GuestNode, namespace: str, name: str) -> tuple[str, str]:
    """CPUs and zones of memory that the kernel lets a Guaranteed pod's container use."""
    uid = node.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]["uid"]
    group = node.group("", uid) / node.containers(namespace)[name][0]
    return node.guest.read(group / "cpuset.cpus.effective"), node.guest.read(group / "cpuset.mems.effective")


def delete(node: GuestNode, namespace: str, *names: str) -> None:
    """Return when they are gone."""
    for name in names:
        node.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
        node.wait(lambda name=name: not node.exists(f"/api/v1/namespaces/{namespace}/pods/{name}"), f"{name} is gone")


def admit(node: GuestNode, name: str, **metadata: Json) -> None:
    """Let schedulers place pods there: new nodes are tainted as not ready, and no controller looks whether they are."""
    node.patch(f"/api/v1/nodes/{name}", {"metadata": metadata, "spec": {"taints": None}})


@contextlib.contextmanager
def another_node(node: GuestNode) -> Iterator[str]:
    """One that no agent and no kubelet is on; its name."""
    name = node.node()
    admit(node, name)
    try:
        yield name
    finally:
        node.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="module")
def node() -> Iterator[GuestNode]:
    """The node, Ready; the agent starts meanwhile."""
    with running_guest_node(zones=2) as node:
        yield node


@pytest.fixture(scope="module")
def scheduling(node: GuestNode) -> Iterator[GuestScheduling]:
    admit(node, node.name, annotations=NO_LOAD)
    found = GuestScheduling(node)
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def devices(node: GuestNode) -> Iterator[None]:
    """Device A is in zone 0, both devices B are in zone 1, where the CPU for pods is."""
    plugins = [node.device_plugin(A, a0=0), node.device_plugin(B, b0=1, b1=1)]
    node.wait(lambda: free_devices(node) == [{A: 1}, {B: 2}], "the record has the devices")
    yield
    for plugin in plugins:
        plugin.stop()


@pytest.fixture(scope="module")
def held(node: GuestNode) -> Iterator[str]:
    """The namespace of the pod ``holder``, which runs with most of the memory of zone 1."""
    here = node.namespace()
    holder = guaranteed(node, here, "holder", cpu="100m", mem_mib=HELD_MIB)
    node.wait(lambda: zones_of(node, holder) == [1], "the pod in zone 1")
    node.wait(lambda: "holder" in node.containers(here), "the pod runs")
    yield here
    for pod in node.get(f"/api/v1/namespaces/{here}/pods")["items"]:
        delete(node, here, pod["metadata"]["name"])
    node.wait(lambda: free_milli(node) == [0, 1_000], "no pod holds a CPU")


@pytest.mark.story
def test_the_record_has_the_zones_of_kernel_and_kubelet(node: GuestNode) -> None:
    node.wait(lambda: node.records(ZONES, NodeZones), "a record of zones")
    node.wait(lambda: last(node).memory_static and last(node).cpu_static, "the kubelet's files of state")
    record = last(node)
    allocatable = node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]
    system = int(
        node.guest.sh("sed -n 's/^Node 0 MemTotal: *\\([0-9]*\\) kB/\\1/p' /sys/devices/system/node/node0/meminfo")
    )

    assert record.missing == []
    assert (record.policy, record.scope, record.max_zones) == ("single-numa-node", "container", 8)
    assert [(zone.id, zone.allocatable.cpu_milli) for zone in record.zones] == [(0, 0), (1, 1_000)]
    assert [[one.distance for one in zone.distances] for zone in record.zones] == [[10, 21], [21, 10]]
    assert record.zones[0].allocatable.mem_bytes == (system << 10) - SYSTEM_MIB * MIB
    total = sum(zone.allocatable.mem_bytes or 0 for zone in record.zones)
    assert f"{total >> 10}Ki" == allocatable["memory"]
    assert [zone.allocatable for zone in record.zones] == [zone.available for zone in record.zones]


def test_the_record_has_the_devices_that_the_kubelet_gives_to_pods(node: GuestNode, devices: None) -> None:
    here = node.namespace()
    holder = node.run(here, "holder", "burn", "serve", "1", "1000", resources={"limits": {B: "1"}})
    node.wait(lambda: zones_of(node, holder) == [1], "the pod in zone 1")
    assert free_devices(node) == [{A: 1}, {B: 1}]
    assert [zone.allocatable.devices for zone in last(node).zones] == [{A: 1}, {B: 2}]
    delete(node, here, "holder")
    node.wait(lambda: free_devices(node) == [{A: 1}, {B: 2}], "the device is free")


def test_a_pod_whose_devices_are_in_two_zones_fails_without_the_extender_and_waits_with_it(
    node: GuestNode, devices: None, scheduling: GuestScheduling
) -> None:
    here = node.namespace()
    guaranteed(node, here, "refused", A, B, cpu="1", mem_mib=SMALL_MIB, scheduler=SCHEDULER)
    node.wait(lambda: status(node, here, "refused")["phase"] == "Failed", "the kubelet refuses the pod")
    assert status(node, here, "refused")["reason"] == "TopologyAffinityError"

    with scheduling.extender():
        guaranteed(node, here, "waits", A, B, cpu="1", mem_mib=SMALL_MIB, scheduler=SCHEDULER)
        node.wait(lambda: "numa_no_zone:" in why_waiting(node, here, "waits"), "the pod waits for a zone")
        assert f"{A} 1, zone 0 has 1 free" in why_waiting(node, here, "waits")
        fits = guaranteed(node, here, "fits", B, cpu="1", mem_mib=SMALL_MIB, scheduler=SCHEDULER)
        node.wait(lambda: zones_of(node, fits) == [1], "the other pod runs in zone 1")
        assert host(node, here, "waits") == ""
    delete(node, here, "refused", "waits", "fits")
    node.wait(lambda: free_milli(node) == [0, 1_000], "no pod holds a CPU")


def test_the_record_names_the_zone_whose_memory_a_pod_really_has(node: GuestNode, held: str) -> None:
    zone = last(node).zones[1]

    assert cpuset(node, held, "holder") == ("0-1", "1")
    assert (zone.allocatable.mem_bytes or 0) - (zone.available.mem_bytes or 0) == HELD_MIB * MIB
    assert free_milli(node) == [0, 1_000]


def test_without_the_extender_a_pod_that_fits_no_zone_is_bound_and_the_kubelet_refuses_it(
    node: GuestNode, held: str, scheduling: GuestScheduling
) -> None:
    split(node, held, "refused")
    node.wait(lambda: status(node, held, "refused")["phase"] == "Failed", "the kubelet refuses the pod")

    assert status(node, held, "refused")["reason"] == "TopologyAffinityError"
    assert host(node, held, "refused") == node.name


def test_with_the_extender_it_waits_or_goes_to_another_node_and_starts_once_a_zone_is_free(
    node: GuestNode, held: str, scheduling: GuestScheduling
) -> None:
    """The pod that failed before is the only one that failed."""

    def waits(name: str) -> bool:
        return "numa_no_zone:" in why_waiting(node, held, name)

    with scheduling.extender():
        split(node, held, "elsewhere")
        node.wait(lambda: waits("elsewhere"), "the pod waits for a zone")
        with another_node(node) as other:
            node.wait(lambda: host(node, held, "elsewhere") == other, "the pod goes to the other node")
            delete(node, held, "elsewhere")
        here = split(node, held, "here")
        node.wait(lambda: waits("here"), "the pod waits for a zone")
        delete(node, held, "holder")
        node.wait(lambda: "here" in node.containers(held), "the pod runs")
        node.wait(lambda: zones_of(node, here) == [1], "the record shows its zone")
        assert cpuset(node, held, "here") == ("1", "1")
        assert free_milli(node) == [0, 0]

    failed = {pod["metadata"]["name"]: pod for pod in node.get(f"/api/v1/namespaces/{held}/pods")["items"]}
    assert [name for name, pod in failed.items() if pod["status"]["phase"] == "Failed"] == ["refused"]
