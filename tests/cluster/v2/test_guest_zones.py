"""A real kubelet with two NUMA zones of two CPUs: what its agent reads of them, and what the extender spares pods.

The kubelet keeps CPU 0 for the system. The tests run in this order and leave no pod.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones
from testbed.cluster.api_server import Json
from testbed.cluster.guest_node import GuestNode
from testbed.cluster.guest_scheduling import SCHEDULER, GuestScheduling

pytestmark = [pytest.mark.guestnode, pytest.mark.timeout(480)]

MIB = 1 << 20
POD_MIB = 600
"""Of each pod here. A zone has room for one of them."""
SYSTEM_MIB = 50
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


def guaranteed(node: GuestNode, namespace: str, name: str, cpus: int, scheduler: str | None = None) -> str:
    """Make a pod of whole CPUs; its uid. Without a scheduler it is on the node from the start."""
    amounts = {"cpu": str(cpus), "memory": f"{POD_MIB}Mi"}
    resources = {"requests": amounts, "limits": amounts}
    return node.run(namespace, name, "burn", "serve", "1", "1000", resources=resources, scheduler=scheduler)


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
def scheduling(node: GuestNode) -> Iterator[GuestScheduling]:
    admit(node, node.name, annotations=NO_LOAD)
    found = GuestScheduling(node)
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def halves(node: GuestNode) -> Iterator[str]:
    """The namespace of ``second``, which holds a CPU of zone 1; each zone has one left, and the node has two."""
    here = node.namespace()
    first = guaranteed(node, here, "first", 1)
    node.wait(lambda: zones_of(node, first) == [0], "the first pod in zone 0")
    second = guaranteed(node, here, "second", 1)
    node.wait(lambda: zones_of(node, second) == [1], "the second pod in zone 1")
    node.wait(lambda: len(node.containers(here)) == 2, "both run")
    delete(node, here, "first")
    yield here
    for pod in node.get(f"/api/v1/namespaces/{here}/pods")["items"]:
        delete(node, here, pod["metadata"]["name"])
    node.wait(lambda: free_milli(node) == [1_000, 2_000], "no pod holds CPUs")


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
    assert [(zone.id, zone.allocatable.cpu_milli) for zone in record.zones] == [(0, 1_000), (1, 2_000)]
    assert [[one.distance for one in zone.distances] for zone in record.zones] == [[10, 21], [21, 10]]
    assert record.zones[0].allocatable.mem_bytes == (system << 10) - SYSTEM_MIB * MIB
    total = sum(zone.allocatable.mem_bytes or 0 for zone in record.zones)
    assert f"{total >> 10}Ki" == allocatable["memory"]
    assert [zone.allocatable for zone in record.zones] == [zone.available for zone in record.zones]


def test_the_record_names_zones_where_pods_really_run(node: GuestNode, halves: str) -> None:
    second = node.get(f"/api/v1/namespaces/{halves}/pods/second")["metadata"]["uid"]
    group = node.group("", second) / node.containers(halves)["second"][0]
    node.wait(lambda: free_milli(node) == [1_000, 1_000], "one CPU is free in each zone")
    zone = last(node).zones[1]

    assert node.guest.read(group / "cpuset.cpus.effective") in {"2", "3"}
    assert node.guest.read(group / "cpuset.mems.effective") == "1"
    assert (zone.allocatable.mem_bytes or 0) - (zone.available.mem_bytes or 0) == POD_MIB * MIB


def test_without_the_extender_a_pod_that_fits_no_zone_is_bound_and_the_kubelet_refuses_it(
    node: GuestNode, halves: str, scheduling: GuestScheduling
) -> None:
    guaranteed(node, halves, "refused", 2, SCHEDULER)
    node.wait(lambda: status(node, halves, "refused")["phase"] == "Failed", "the kubelet refuses the pod")

    assert status(node, halves, "refused")["reason"] == "TopologyAffinityError"
    assert host(node, halves, "refused") == node.name


def test_with_the_extender_it_waits_or_goes_to_another_node_and_starts_once_a_zone_is_free(
    node: GuestNode, halves: str, scheduling: GuestScheduling
) -> None:
    def waits(name: str) -> bool:
        return "numa_no_zone:cpu" in why_waiting(node, halves, name)

    with scheduling.extender():
        guaranteed(node, halves, "elsewhere", 2, SCHEDULER)
        node.wait(lambda: waits("elsewhere"), "the pod waits for a zone")
        with another_node(node) as other:
            node.wait(lambda: host(node, halves, "elsewhere") == other, "the pod goes to the other node")
            delete(node, halves, "elsewhere")
        here = guaranteed(node, halves, "here", 2, SCHEDULER)
        node.wait(lambda: waits("here"), "the pod waits for a zone")
        delete(node, halves, "second")
        node.wait(lambda: "here" in node.containers(halves), "the pod runs")
        node.wait(lambda: zones_of(node, here) == [1], "the record shows its zone")

    failed = {pod["metadata"]["name"]: pod for pod in node.get(f"/api/v1/namespaces/{halves}/pods")["items"]}
    assert [name for name, pod in failed.items() if pod["status"]["phase"] == "Failed"] == ["refused"]
