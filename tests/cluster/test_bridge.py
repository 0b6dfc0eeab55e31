"""The bridge, between a real API server and a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.topics import INVENTORY
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import GIB, BridgeRig, bridged, until

pytestmark = pytest.mark.cluster
THRESHOLD = {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60}}


@pytest.fixture
async def rig(api_server: ApiServer, embedded_broker: EmbeddedBroker) -> AsyncIterator[BridgeRig]:
    embedded_broker.apply_topics(3)
    async with bridged(api_server, embedded_broker.bootstrap) as rig:
        yield rig


async def _told(rig: BridgeRig, node: str, within_s: float = 20.0) -> NodeInventory | None:
    """What the log says of the node at last; None: it is gone."""
    records = await rig.records(INVENTORY.name, node)
    assert records, f"nothing was said of {node}"
    return None if records[-1].value is None else decode(records[-1].value, NodeInventory)


async def test_nodes_and_policy_come_into_the_log_and_follow_what_becomes_of_them(rig: BridgeRig) -> None:
    rig.say_policy(threshold=THRESHOLD)
    annotations = {"node.koordinator.sh/colocation-strategy": "{}", "example.com/other": "x"}
    node = rig.cluster.node(labels={"pool": "mixed"}, annotations=annotations)
    replica = rig.replica()
    await until(lambda: not replica.health.not_ready)
    told = await _told(rig, node)
    assert told is not None
    assert told.facts.labels == {"pool": "mixed"}
    assert told.facts.annotations == {"node.koordinator.sh/colocation-strategy": "{}"}
    assert (told.facts.capacity.cpu_milli, told.facts.capacity.mem_bytes) == (8_000, 16 * GIB)


async def test_figures_come_to_the_node_and_are_withdrawn_from_it(rig: BridgeRig) -> None:
    node = rig.cluster.node()
    rig.say(node, cpu=1_500, mem=4 * GIB)
    rig.replica()
    both = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": str(4 * GIB)}
    await until(lambda: rig.resources(node)["capacity"])
    assert rig.resources(node) == {"capacity": both, "allocatable": both}
