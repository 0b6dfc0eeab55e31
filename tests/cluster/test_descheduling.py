"""Descheduling by the bridge that leads, under its own account on a real API server, with a broker behind it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing

import pytest

from slacktide.agents.kafka import read_topic
from slacktide.schemas.codec import decode
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.topics import DESCHEDULING
from testbed.brokers import EmbeddedBroker, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import GIB, BridgeRig, bridged, until
from testbed.cluster.manifests import MANIFESTS
from testbed.descheduled import OWNER, metric

pytestmark = pytest.mark.cluster
WANTED = {
    "lowThresholds": {"cpu": 40},
    "highThresholds": {"cpu": 60},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
    "intervalSeconds": 1,
}
BEST_EFFORT = {"koordinator.sh/qosClass": "BE"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApiServer]:
    """One with all that ``kubectl apply -k deploy/kubernetes`` makes."""
    with running(ApiServer) as server:
        server.kubectl("apply", "-k", str(MANIFESTS))
        yield server


@pytest.fixture
async def rig(cluster: ApiServer, embedded_broker: EmbeddedBroker) -> AsyncIterator[BridgeRig]:
    embedded_broker.apply_topics(3)
    async with bridged(cluster, embedded_broker.bootstrap) as rig:
        yield rig


class Load:
    """A node of 8 CPUs where 7 are used: by two best-effort pods 2 and 3, by a service 2; and one that is free."""

    def __init__(self, rig: BridgeRig) -> None:
        self._rig = rig
        self.namespace = rig.cluster.namespace("jobs")
        self.full, self.free = rig.cluster.node(), rig.cluster.node()
        self.uids = {name: self._pod(name, BEST_EFFORT) for name in ("a", "b")}
        self.uids["web"] = self._pod("web", {})
        for node in (self.full, self.free):
            rig.say(node, cpu=4_000, mem=8 * GIB)
        used = zip(self.uids.values(), (2_000, 3_000, 2_000), strict=True)
        rig.metric[self.full] = metric(self.full, dict(used))
        rig.metric[self.free] = metric(self.free, {}, system=500)

    def _pod(self, name: str, labels: dict[str, str]) -> str:
        uid = self._rig.cluster.pod(self.namespace, name, node=self.full, labels=labels)["metadata"]["uid"]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        owner = [one | {"apiVersion": "apps/v1"} for one in OWNER]
        self._rig.cluster.patch(path, {"metadata": {"ownerReferences": owner}})
        return str(uid)

    def there(self) -> set[str]:
        """Pods that nobody has asked to go."""
        listed = self._rig.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {one["metadata"]["name"] for one in listed if not one["metadata"].get("deletionTimestamp")}

    async def passes(self) -> list[DeschedulingPass]:
        async with aclosing(read_topic(self._rig.bootstrap, DESCHEDULING.name)) as records:
            return [decode(one.value, DeschedulingPass) async for one in records]

    async def one(self, wanted: Callable[[DeschedulingPass], object]) -> DeschedulingPass:
        """The first pass that is so."""
        async with asyncio.timeout(30):
            while True:
                if found := [one for one in await self.passes() if wanted(one)]:
                    return found[0]
                await asyncio.sleep(0.2)


async def explain(rig: BridgeRig, pod: str) -> str:
    command = ["-m", "slacktide.deploy.cli.main", "explain", "pod", pod, "--bootstrap", rig.bootstrap]
    run = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    out, _ = await run.communicate()
    return " ".join(out.decode().split())


async def test_dry_it_says_whom_it_would_evict_and_evicts_nobody(rig: BridgeRig) -> None:
    load = await asyncio.to_thread(Load, rig)
    rig.say_policy(descheduling=WANTED)
    replica = rig.replica()

    told = await load.one(lambda each: each.victims)

    assert told.dry_run
    [victim] = told.victims
    assert (victim.name, victim.node, victim.pod_uid) == ("b", load.full, load.uids["b"])
    assert victim.terms["used_cpu_milli"] == 7_000
    [source] = told.sources
    assert (source.bound, [(one.reason, one.count) for one in source.staying]) == ("relieved", [("not_best_effort", 1)])
    assert load.free in {node for one in told.classes if one.load_class == "both_low" for node in one.nodes}

    text = await explain(rig, f"{load.namespace}/b")
    assert f"would evict it, but only says so (dryRun): {load.full} is over, 88% used, threshold 60%" in text, text
    await load.one(lambda each: each.number == told.number + 3)
    assert load.there() == {"a", "b", "web"}
    assert replica.health.not_fresh == ""


async def test_without_thresholds_there_is_no_pass_and_a_leader_that_takes_over_counts_anew(rig: BridgeRig) -> None:
    load = await asyncio.to_thread(Load, rig)
    rig.say_policy(threshold={"clusterStrategy": {"enable": True}})
    replica = rig.replica()
    await until(lambda: rig.resources(load.full)["capacity"])
    assert not await load.passes()

    rig.say_policy(descheduling=WANTED | {"anomalyCondition": {"consecutiveAbnormalities": 3}})
    first = await load.one(lambda each: each.victims)
    assert first.number >= 4
    await replica.stop()
    rig.replica("two")
    anew = await load.one(lambda each: each.epoch > first.epoch)
    assert (anew.number, anew.bound) == (1, "none_lasting")
