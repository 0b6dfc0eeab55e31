"""Pods that get CPUs for themselves: bound by the extender for a real kube-scheduler, on a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from slacktide.schemas.codec import encode
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones, Zone, ZoneResources
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES
from slacktide.streams.decisions.cores.take import readable
from slacktide.streams.records import Out
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import Json, RefusedError
from testbed.cluster.scheduler_rig import SchedulerRig, Scheduling

pytestmark = pytest.mark.cluster
STATUS = "scheduling.koordinator.sh/resource-status"
CORES = [[cpu, cpu + 4] for cpu in range(4)]


@pytest.fixture
async def rig(at: Scheduling, embedded_broker: EmbeddedBroker) -> AsyncIterator[SchedulerRig]:
    embedded_broker.apply_topics(3)
    async with SchedulerRig(at, embedded_broker.bootstrap).streaming() as rig:
        yield rig


class Node:
    """A node whose agent publishes four cores of two CPUs every second. By its load it has room for more."""

    def __init__(self, rig: SchedulerRig) -> None:
        self.name = rig.node(cpu=32)
        self._rig, self._seq = rig, 0
        self._task = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        has = ZoneResources(cpu_milli=8_000, mem_bytes=2**34)
        while True:
            self._seq += 1
            record = NodeZones(
                node=self.name, boot_id="1-a", seq=self._seq, observed_ms=1, policy="none", scope="container",
                cpu_static=False, memory_static=False,
                zones=[Zone(id=0, allocatable=has, available=has, cores={0: CORES})],
            )  # fmt: skip
            await self._rig.put(Out(topic=ZONES.name, key=self.name.encode(), value=encode(record)))
            await asyncio.sleep(1)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def node(rig: SchedulerRig) -> AsyncIterator[Node]:
    found = Node(rig)
    yield found
    await found.stop()


async def make(rig: SchedulerRig, name: str, cpus: int = 2, qos: str = "LSR", *, marked: bool = True) -> None:
    """A pod as the webhook would have it."""
    asks = {"cpu": str(cpus), "memory": "64Mi"} | ({RESOURCE_CORES: str(cpus)} if marked else {})
    container = {"name": "main", "image": "none", "resources": {"requests": asks, "limits": asks}}
    spec = {"schedulerName": "koord-scheduler", "priorityClassName": "koord-prod", "containers": [container]}
    labels = {"koordinator.sh/qosClass": qos}
    await asyncio.to_thread(rig.cluster.pod, rig.namespace, name, labels=labels, spec=spec)


def shown(rig: SchedulerRig) -> dict[str, frozenset[int]]:
    """The CPUs of each bound pod."""
    bound = [pod["metadata"] for pod in rig.listed() if pod["spec"].get("nodeName")]
    texts = {pod["name"]: (pod.get("annotations") or {}).get(STATUS, "{}") for pod in bound}
    return {name: readable(json.loads(text).get("cpuset")) for name, text in texts.items()}


async def until(rig: SchedulerRig, holds: Callable[[dict[str, frozenset[int]]], Any]) -> dict[str, frozenset[int]]:
    async with asyncio.timeout(60):
        while not holds(found := await asyncio.to_thread(shown, rig)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.2)
    return found


async def until_it_waits(rig: SchedulerRig, name: str, why: str) -> None:
    def conditions() -> list[Json]:
        pod = rig.cluster.get(f"/api/v1/namespaces/{rig.namespace}/pods/{name}")
        return pod["status"].get("conditions") or []

    async with asyncio.timeout(60):
        while why not in str(await asyncio.to_thread(conditions)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.2)


async def test_pods_get_cpus_that_nobody_else_has_and_wait_when_there_are_none(rig: SchedulerRig, node: Node) -> None:
    extender = await rig.extender()
    await make(rig, "lse", 1, "LSE")
    await make(rig, "lsr-1")
    await make(rig, "ls", 1, "LS", marked=False)
    first = await until(rig, lambda found: len(found) == 3)

    assert [len(first[name]) for name in ("lse", "lsr-1", "ls")] == [1, 2, 0]
    siblings = {cpu % 4 for cpu in first["lse"]}, {cpu % 4 for cpu in first["lsr-1"]}
    assert siblings[0].isdisjoint(siblings[1])
    assert len(siblings[1]) == 1, "a whole core"

    await extender.stop()
    await rig.extender()  # what it knows of CPUs is in the pods
    await make(rig, "lsr-2")
    second = await until(rig, lambda found: "lsr-2" in found)
    assert second["lsr-2"].isdisjoint(first["lsr-1"] | {cpu for one in siblings[0] for cpu in (one, one + 4)})

    await make(rig, "late")
    await until_it_waits(rig, "late", "cores_not_enough: pod requests 2 CPUs of its own, 2 are free")
    await asyncio.to_thread(rig.cluster.delete, f"/api/v1/namespaces/{rig.namespace}/pods/lsr-1")
    third = await until(rig, lambda found: "late" in found)
    assert third["late"] == first["lsr-1"]
    told = [one.best[0].cores for one in await rig.placements() if one.name == "late" and one.best]
    assert [readable(text) for text in told] == [third["late"]]


async def test_while_the_extender_is_away_such_pods_wait_and_others_do_not(rig: SchedulerRig, node: Node) -> None:
    await make(rig, "lsr")
    await make(rig, "ls", 1, "LS", marked=False)
    await until(rig, lambda found: set(found) == {"ls"})
    await until_it_waits(rig, "lsr", "connection refused")

    await rig.extender()
    assert len((await until(rig, lambda found: "lsr" in found))["lsr"]) == 2


async def test_a_node_that_tells_nothing_of_its_cpus_gives_none(rig: SchedulerRig) -> None:
    rig.node()
    await rig.extender()
    await make(rig, "lsr")
    await until_it_waits(rig, "lsr", "cores_no_topology")
    assert shown(rig) == {}


async def test_nobody_but_the_scheduler_names_the_cpus_of_a_pod(rig: SchedulerRig, node: Node) -> None:
    await rig.extender()
    await make(rig, "lsr")
    await until(rig, lambda found: "lsr" in found)
    path = f"/api/v1/namespaces/{rig.namespace}/pods/lsr"
    taken = {STATUS: '{"cpuset": "0-7"}'}

    async def refused(method: str, where: str, body: Json) -> bool:
        try:
            await asyncio.to_thread(rig.cluster.request, method, where, body)
        except RefusedError as exc:
            return "only the scheduler names the CPUs" in str(exc)
        return False

    container = {"name": "main", "image": "none"}
    stolen = {"metadata": {"name": "thief", "annotations": taken}, "spec": {"containers": [container]}}
    # A new policy takes effect after a moment.
    async with asyncio.timeout(60):
        while not await refused("PATCH", path, {"metadata": {"annotations": taken}}):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert await refused("PATCH", f"{path}/status", {"metadata": {"annotations": taken}})
    assert await refused("PATCH", path, {"metadata": {"annotations": {STATUS: None}}})
    assert await refused("POST", f"/api/v1/namespaces/{rig.namespace}/pods", stolen)
    await asyncio.to_thread(rig.cluster.request, "PATCH", path, {"metadata": {"labels": {"team": "a"}}})
