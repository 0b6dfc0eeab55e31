"""NUMA zones on a real API server: the bridge writes NodeResourceTopology objects where that kind is installed."""

import asyncio
import json

import pytest

from slacktide.agents.cluster.bridge import mirror, node_status
from slacktide.schemas.codec import encode
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones, Zone, ZoneResources
from slacktide.streams.records import Out
from testbed.cluster.api_server import RefusedError
from testbed.cluster.bridge_rig import BridgeRig, until
from testbed.cluster.manifests import MANIFESTS
from testbed.cluster.streaming_rig import GIB

pytestmark = pytest.mark.cluster
GROUP, PLURAL = "topology.node.k8s.io", "noderesourcetopologies"
OBJECTS = f"/apis/{GROUP}/v1alpha2/{PLURAL}"
KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{PLURAL}.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {"kind": "NodeResourceTopology", "plural": PLURAL, "singular": "noderesourcetopology"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def record(node: str, seq: int, free_milli: int) -> Out:
    has = ZoneResources(cpu_milli=8_000)
    zones = [
        Zone(id=0, allocatable=has, available=ZoneResources(cpu_milli=free_milli)),
        Zone(id=2, allocatable=has, available=has),
    ]
    known = NodeZones(
        node=node, boot_id="1-a", seq=seq, observed_ms=1, zones=zones, policy="restricted", scope="pod",
        cpu_static=True, memory_static=False,
    )  # fmt: skip
    return Out(topic=ZONES.name, key=node.encode(), value=encode(known))


def served(rig: BridgeRig) -> bool:
    """Whether the kind is installed: at first its storage is made."""
    try:
        return bool(rig.cluster.get(OBJECTS))
    except RefusedError:
        return False


async def test_objects_are_made_and_follow_the_record_and_another_exporters_are_left_alone(
    rig: BridgeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_status, "GAP_S", 0.5)
    monkeypatch.setattr(node_status, "UNFORCED_S", 0.5)
    monkeypatch.setattr(node_status, "NODE_WRITE_S", 0.5)
    monkeypatch.setattr(mirror, "LOOK_S", 0.5)
    rig.cluster.kubectl("apply", "-f", str(MANIFESTS / "components/zones/rbac.yaml"))
    ours, foreign = rig.cluster.node(), rig.cluster.node()
    replica = rig.replica()
    await until(lambda: not replica.health.not_ready)

    def shown(node: str, resource: str = "cpu") -> list[str]:
        """What is available, by zone."""
        try:
            zones = rig.cluster.get(f"{OBJECTS}/{node}")["zones"]
        except RefusedError:
            return []
        return [one["available"] for zone in zones for one in zone["resources"] if one["name"] == resource]

    rig.cluster.apply(json.dumps(KIND))
    await until(lambda: served(rig))
    others = {"apiVersion": f"{GROUP}/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": foreign}}
    theirs = [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": "7"}]}]
    rig.cluster.apply(json.dumps({**others, "zones": theirs}))

    seq = 0

    async def publish_until(free_milli: int, texts: list[str], resource: str = "cpu") -> None:
        """Agents publish again and again."""
        nonlocal seq
        async with asyncio.timeout(60):
            while shown(ours, resource) != texts:
                seq += 1
                for node in (ours, foreign):
                    await rig.put(record(node, seq, free_milli))
                await asyncio.sleep(0.2)

    await publish_until(8_000, ["8", "8"])
    made = rig.cluster.get(f"{OBJECTS}/{ours}")
    assert made["metadata"]["ownerReferences"][0]["name"] == ours
    assert {"name": "topologyManagerPolicy", "value": "restricted"} in made["attributes"]
    await publish_until(2_500, ["2500m", "8"])
    await until(lambda: "another exporter" in replica.health.not_fresh)
    assert shown(foreign) == ["7"]

    rig.say(ours, cpu=3_001, mem=GIB)
    batch = "kubernetes.io/batch-cpu"
    await publish_until(4_000, ["1000", "2001"], batch)
    assert rig.resources(ours)["allocatable"][batch] == "3001"
    assert shown(ours, "kubernetes.io/batch-memory") == [], "the zones of this record have no memory"
    rig.say(ours, cpu=None, mem=None)
    await publish_until(4_000, [], batch)
    assert shown(ours) == ["4", "8"]
    await replica.stop()
    rig.cluster.kubectl("delete", PLURAL, "-l", "app.kubernetes.io/managed-by=slacktide")
    assert (shown(ours), shown(foreign)) == ([], ["7"])
    rig.cluster.kubectl("delete", "crd", f"{PLURAL}.{GROUP}")
