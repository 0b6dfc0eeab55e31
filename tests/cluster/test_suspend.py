"""The kill switch on a real API server: an annotation on the Node lifts the limits of an agent that has no Kafka."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster.test_agent_evicts import inventory
from cluster.test_removal import SUPPRESS

from slacktide.agents.http import Access
from slacktide.agents.node.apiserver import ApiServer as Door
from slacktide.agents.node.apiserver import NodeWatch
from slacktide.agents.node.evict.eviction_client import EvictionClient
from slacktide.agents.node.loop import run
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.state import ANNOTATION, FILE, State
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import until
from testbed.cluster.evicting import RIGHTS, agent_account
from testbed.virtual.kernel import VirtualKernel

pytestmark = pytest.mark.cluster
GIB = 1 << 30
WITHIN_S = 2.0
NO_KAFKA = Cluster("127.0.0.1:1")
WATCHES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["watch"]}


class Node:
    """An agent without Kafka, under an account with an agent's rights, whose guard holds a best-effort pod."""

    def __init__(self, server: ApiServer, namespace: str, folder: Path) -> None:
        self.server, self.folder, self.name = server, folder, server.node()
        uid = "8c6a0a3e-0000-4000-8000-000000000002"
        token = folder / "token"
        token.write_text(agent_account(server, namespace, self.name, rights=[*RIGHTS, WATCHES]).token)
        self.access = Access(url=server.url, token=token, ca=server.ca)
        self.machine = Machine(cpus=4, mem_bytes=8 * GIB)
        self.machine.add_pod(uid, "BestEffort").demand_milli = 4_000
        (folder / "inventory.json").write_text(json.dumps(inventory(self.name, namespace, uid)))
        self.state = folder / "state"
        self.state.mkdir()
        State(self.state).keep_policy(SUPPRESS)
        self.start()

    def start(self) -> None:
        self.eviction_client = EvictionClient(Door(self.access))
        settings = LoopSettings(
            node=self.name,
            bootstrap=NO_KAFKA,
            inventory=self.folder / "inventory.json",
            state_folder=self.state,
            eviction_client=self.eviction_client,
            node_watch=NodeWatch(Door(self.access), self.name),
            sample_interval_ms=200,
        )
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(run(VirtualKernel(self.machine), settings, self.stop, Health()))

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(60):
            await self.task
        await asyncio.to_thread(self.eviction_client.close)

    @property
    def held(self) -> bool:
        return self.machine.best_effort.quota_us is not None

    async def annotate(self, value: str | None) -> None:
        body = {"metadata": {"annotations": {ANNOTATION: value}}}
        await asyncio.to_thread(self.server.patch, f"/api/v1/nodes/{self.name}", body)

    async def lifted_s(self) -> float:
        """How long it takes until nothing is held."""
        began_s = time.monotonic()
        await until(lambda: not self.held)
        return time.monotonic() - began_s

    def events(self) -> list[tuple[str, str]]:
        path = "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=reportingController=slacktide.io/agent"
        items = self.server.get(path)["items"]
        mine = sorted((one for one in items if one["regarding"]["name"] == self.name), key=lambda one: one["eventTime"])
        return [(one["reason"], one["note"]) for one in mine]


@pytest.fixture
async def node(api_server: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[Node]:
    one = Node(api_server, namespace, tmp_path)
    await until(lambda: one.held)
    yield one
    await one.end()


async def test_an_annotation_lifts_the_limits_within_2_s_and_limits_return_without_it(node: Node) -> None:
    await node.annotate("true")
    lifted_s = await node.lifted_s()
    await asyncio.sleep(1.5)
    stays_lifted = not node.held
    await node.annotate(None)
    await until(lambda: node.held)

    assert lifted_s < WITHIN_S
    assert stays_lifted
    await until(lambda: len(node.events()) == 2)
    (began, note), (over, _) = node.events()
    assert (began, over) == ("SlacktideSuspended", "SlacktideResumed")
    assert f"the node's annotation {ANNOTATION}: 'true'" in note


async def test_a_node_that_is_annotated_while_its_agent_is_away_is_not_held_when_it_returns(node: Node) -> None:
    await node.end()
    held = node.held
    await node.annotate("true")
    node.start()

    assert held, "an agent that stops leaves its limits in force"
    assert await node.lifted_s() < WITHIN_S + 1


async def test_a_file_lifts_them_without_any_server(node: Node) -> None:
    (node.state / FILE).touch()

    assert await node.lifted_s() < WITHIN_S
