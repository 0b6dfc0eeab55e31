"""A node's NUMA zones on a real broker: from the kubelet's files by its agent to who places pods."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.scheduler.topic_reader import TopicReader
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.node.metrics import ZONES_UNREAD
from slacktide.agents.node.zones.publisher import ZonesFolders
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.kafka import read_topic
from testbed.agent_rig import agent_of
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import NODE, VirtualNode
from testbed.scheduler_pods import parsed
from testbed.waiting import soon
from testbed.zone_tree import STATIC, two_zones

PARTITIONS = 2


async def published(bootstrap: str) -> list[NodeZones]:
    return [decode(record.value, NodeZones) async for record in read_topic(Cluster(bootstrap), ZONES.name)]


def _left(records: list[NodeZones]) -> list[int | None] | None:
    return [zone.available.cpu_milli for zone in records[-1].zones] if records else None


@asynccontextmanager
async def scheduler_view(bootstrap: str) -> AsyncIterator[View]:
    """What a scheduler's part knows, as it reads along."""
    args, view = PlacementArgs(), View(PlacementArgs())
    reader = TopicReader(Cluster(bootstrap), view, args, lambda _record, why: pytest.fail(why), SystemClock())
    task = asyncio.create_task(reader.run())
    try:
        yield view
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def refusal(view: View, cpu: str) -> str:
    """Why the node takes no Guaranteed pod with so many CPUs; "": it does."""
    asks = {"cpu": cpu, "memory": "1Gi"}
    pod = parsed({
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": asks, "limits": asks}}]},
        "status": {"phase": "Pending"},
    })  # fmt: skip
    refused = view.choose(pod.asked, [NODE], now_s=time.monotonic()).refused
    return refused[NODE].reason if refused else ""


async def test_the_agent_publishes_what_the_kubelet_gives_and_what_cannot_be_read(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap
    tree = two_zones(tmp_path)
    tree.config(STATIC)
    folders = ZonesFolders(sys_folder=tree.sys, kubelet_folder=tree.kubelet)

    async def left() -> list[int | None] | None:
        return _left(await published(where))

    async def until_refused(cpu: str, reason: str) -> None:
        async def asked() -> str:
            return refusal(view, cpu)

        await soon(asked, f"{cpu} CPUs: {reason!r}", enough=lambda found: found == reason)

    async def until_left(cpu_milli: list[int]) -> None:
        await soon(left, f"{cpu_milli} left in the zones", enough=lambda found: found == cpu_milli)

    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path, zones=folders), scheduler_view(where) as view:
            await until_left([1000, 2000])
            await until_refused("2", "")
            await until_refused("3", "numa_restricted:cpu+memory")  # CPUs of two zones, memory of one
            tree.cpu_state(a={"app": "2"})
            await until_left([1000, 1000])
            await until_refused("2", "numa_restricted:cpu+memory")
            (tree.kubelet / "cpu_manager_state").write_text("{")
            await until_left([])
            await until_refused("1", "zones_unread")
    records = await published(where)

    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert {record.node for record in records} == {NODE}
    assert "a" in {pod.uid for pod in records[-2].pods}
    assert ZONES_UNREAD.labels(NODE, "cpu_manager_state")._value.get() == 1
