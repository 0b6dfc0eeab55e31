"""Descheduling by the bridge that leads, under its own account on a real API server, with a broker behind it."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import DESCHEDULER, NO_CREDIT
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import AUDIT, DESCHEDULING, OUTCOME
from slacktide.streams.engine.governing import GovernorSettings, govern
from slacktide.streams.governor.governor import Governor
from slacktide.streams.kafka import read_topic
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer
from testbed.cluster.bridge_rig import BridgeRig, until
from testbed.cluster.evicting import events_on
from testbed.cluster.manifests import evict_by_load
from testbed.cluster.streaming_rig import GIB
from testbed.cluster.webhook import PROFILES, Webhook, until_asked
from testbed.descheduled import OWNER, metric

pytestmark = pytest.mark.cluster
WANTED = {
    "lowThresholds": {"cpu": 40},
    "highThresholds": {"cpu": 60},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
    "intervalSeconds": 1,
}
BEST_EFFORT = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}


@pytest.fixture
def granted(cluster: ApiServer) -> Iterator[None]:
    """The bridge may evict."""
    with evict_by_load(cluster):
        yield


@pytest.fixture
def fence(cluster: ApiServer, tmp_path: Path) -> Iterator[None]:
    """The webhook, asked about evictions."""
    cluster.apply(PROFILES)
    webhook = Webhook(cluster, tmp_path)
    webhook.start()
    try:
        until_asked(cluster, cluster.namespace())
        yield
    finally:
        webhook.stop()


@pytest.fixture
async def governor(embedded_broker: EmbeddedBroker) -> AsyncIterator[None]:
    stop = asyncio.Event()
    settings = GovernorSettings(bootstrap=embedded_broker.cluster, session_timeout_ms=2_000)
    governing = asyncio.create_task(govern(Governor("test"), settings, stop, lambda: time.time_ns() // 1_000_000))
    yield
    stop.set()
    await governing


class Load:
    """A node of 8 CPUs where 7 are used: by two best-effort pods 1.5 and 2.5, by a service 3; one is free."""

    def __init__(self, rig: BridgeRig) -> None:
        self._rig = rig
        self.namespace = rig.cluster.namespace("jobs")
        self.full, self.free = rig.cluster.node(), rig.cluster.node()
        self.uids = {name: self._pod(name, BEST_EFFORT) for name in ("a", "b")}
        self.uids["web"] = self._pod("web", {"koordinator.sh/qosClass": "LS"})
        for node in (self.full, self.free):
            rig.cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": None}})  # a new one is not ready
            rig.say(node, cpu=4_000, mem=8 * GIB)
        used = zip(self.uids.values(), (1_500, 2_500, 3_000), strict=True)
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

    async def outcomes(self) -> list[NodeOutcome]:
        """Of descheduling's evictions, and of what it asked for."""
        records = await self._rig.records(OUTCOME.name, DESCHEDULER)
        return [decode(one.value, NodeOutcome) for one in records]

    async def last_outcome(self, wanted: Callable[[NodeOutcome], object]) -> NodeOutcome:
        """As soon as it is so."""
        until_s = time.monotonic() + 60
        while not (told := await self.outcomes()) or not wanted(told[-1]):
            assert time.monotonic() < until_s, told[-1:]
            await asyncio.sleep(0.2)
        return told[-1]

    async def passes(self) -> list[DeschedulingPass]:
        async with aclosing(read_topic(Cluster(self._rig.bootstrap), DESCHEDULING.name)) as records:
            return [decode(one.value, DeschedulingPass) async for one in records]

    async def one(self, wanted: Callable[[DeschedulingPass], object]) -> DeschedulingPass:
        """The first pass that is so."""
        until_s, passes = time.monotonic() + 30, await self.passes()
        while not any(map(wanted, passes)):
            assert time.monotonic() < until_s, passes[-3:]
            await asyncio.sleep(0.2)
            passes = await self.passes()
        return next(filter(wanted, passes))


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
    assert (
        f"selected it for eviction, but only reports it (dryRun): {load.full} is over its thresholds, 87.5% "
        "used, threshold 60%"
    ) in text, text
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


@pytest.mark.usefixtures("granted", "fence", "governor")
async def test_switched_on_it_evicts_whom_the_governor_has_credit_for_and_says_so(rig: BridgeRig) -> None:
    """Two nodes are over, and one pod may go in a minute: the one that relieves its node."""
    first = await asyncio.to_thread(Load, rig)
    second = await asyncio.to_thread(Load, rig)
    budget = {"clusterMax": 1, "nodeMax": 1, "namespaceMax": 1, "intervalSeconds": 600, "leaseSeconds": 3}
    rig.say_policy(descheduling=WANTED | {"dryRun": False, "intervalSeconds": 5}, budget=budget)
    rig.replica()

    def gone() -> list[Load]:
        return [load for load in (first, second) if "b" not in load.there()]

    await until(gone)
    [relieved] = gone()
    last = await relieved.last_outcome(lambda one: one.result == "refused" and one.spent.evictions)

    assert (last.reason, last.pod.name) == (NO_CREDIT, "b"), "the other node's asks in vain"
    [done] = [one for one in await relieved.outcomes() if one.result == "applied"]
    assert (done.rule, done.target, done.pod.namespace) == (
        "LowNodeLoad", f"pod/{relieved.uids['b']}", relieved.namespace,
    )  # fmt: skip
    assert done in [decode(one.value, NodeOutcome) for one in await rig.records(AUDIT.name, DESCHEDULER)]
    assert relieved.there() == {"a", "web"}
    assert len(gone()) == 1
    [event] = events_on(rig.cluster, relieved.namespace, relieved.uids["b"])
    assert event["reason"] == "LowNodeLoad"
    assert event["note"].startswith(f"87.5% used, threshold 60%; leaves {relieved.full}, pass ")
    pod = rig.cluster.get(f"/api/v1/namespaces/{relieved.namespace}/pods/b")
    assert "EvictionByEvictionAPI" in [one.get("reason") for one in pod["status"]["conditions"]]
    text = await explain(rig, f"{relieved.namespace}/b")
    assert "evicted once in the last 1 h: LowNodeLoad 1; last: 87.5% used, threshold 60%" in text, text


@pytest.mark.usefixtures("fence", "governor")
async def test_as_it_is_installed_the_bridge_may_evict_nobody_and_says_so_while_it_leads(rig: BridgeRig) -> None:
    load = await asyncio.to_thread(Load, rig)
    rig.say_policy(descheduling=WANTED | {"dryRun": False, "intervalSeconds": 5}, budget={"leaseSeconds": 3})
    replica = rig.replica()

    await until(lambda: 'cannot create resource "pods/eviction"' in replica.health.not_fresh)

    told = await load.last_outcome(lambda one: one.reason != NO_CREDIT)
    assert (told.result, told.spent.evictions) == ("refused", 0)
    assert load.there() == {"a", "b", "web"}
    assert gauges() == {"trouble": 1, "nodes_over": 1}
    over, rig.metric[load.full] = rig.metric[load.full], metric(load.full, {})
    await until(lambda: gauges() == {"trouble": 0, "nodes_over": 0})
    rig.metric[load.full] = over
    await until(lambda: gauges() == {"trouble": 1, "nodes_over": 1})
    await replica.stop()
    assert gauges() == {"trouble": None, "nodes_over": 0}, "another one leads now"


def gauges() -> dict[str, float | None]:
    """What alerts go by."""
    return {
        "trouble": REGISTRY.get_sample_value("slacktide_bridge_trouble", {"of": "descheduling"}),
        "nodes_over": REGISTRY.get_sample_value("slacktide_descheduling_nodes_over"),
    }


@pytest.mark.nightly
@pytest.mark.usefixtures("granted", "governor")
async def test_while_the_fence_is_away_nobody_goes_and_no_credit_is_spent(rig: BridgeRig) -> None:
    load = await asyncio.to_thread(Load, rig)
    budget = {"leaseSeconds": 3}
    rig.say_policy(descheduling=WANTED | {"dryRun": False, "intervalSeconds": 5}, budget=budget)
    replica = rig.replica()

    await until(lambda: "failed calling webhook" in replica.health.not_fresh)

    told = [one for one in await load.outcomes() if one.reason != NO_CREDIT]
    assert {(one.result, one.spent.evictions) for one in told} == {("refused", 0)}
    assert load.there() == {"a", "b", "web"}


@pytest.mark.nightly
@pytest.mark.usefixtures("granted", "fence", "governor")
async def test_a_disruption_budget_keeps_its_pods_and_that_costs_no_credit(rig: BridgeRig) -> None:
    load = await asyncio.to_thread(Load, rig)
    keeps = {"metadata": {"name": "keeps"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": BEST_EFFORT}}}
    rig.cluster.post(f"/apis/policy/v1/namespaces/{load.namespace}/poddisruptionbudgets", keeps)
    acting = WANTED | {"dryRun": False, "intervalSeconds": 5}
    rig.say_policy(descheduling=acting, budget={"leaseSeconds": 3})
    replica = rig.replica()

    await load.one(lambda each: each.victims)
    kept = await load.last_outcome(lambda one: one.reason != NO_CREDIT)

    assert (kept.result, kept.spent.evictions) == ("refused", 0)
    assert "disruption budget keeps" in kept.reason
    assert load.there() == {"a", "b", "web"}
    await until(lambda: "disruption budget keeps" in replica.health.not_fresh)

    rig.cluster.delete(f"/apis/policy/v1/namespaces/{load.namespace}/poddisruptionbudgets/keeps")
    await until(lambda: "b" not in load.there())
    await until(lambda: not replica.health.not_fresh)


async def hang_up(door: socket.socket) -> None:
    """On all who come."""
    while True:
        one, _ = await asyncio.get_running_loop().sock_accept(door)
        one.close()


@pytest.mark.nightly
@pytest.mark.parametrize("ended_by", ["policy", "stop"])
@pytest.mark.usefixtures("granted", "governor")
async def test_an_eviction_that_is_cut_short_is_told_of_all_the_same(rig: BridgeRig, ended_by: str) -> None:
    """Nobody knows whether the pod goes: the fence, asked about it, says nothing."""
    load = await asyncio.to_thread(Load, rig)
    budget = {"leaseSeconds": 3}
    service = rig.cluster.get("/api/v1/namespaces/slacktide-system/services/slacktide-webhook")["spec"]
    rig.say_policy(descheduling=WANTED | {"dryRun": False, "intervalSeconds": 5}, budget=budget)
    with socket.create_server((service["clusterIP"], service["ports"][0]["port"])) as fence:
        fence.setblocking(False)
        replica = rig.replica()
        async with asyncio.timeout(60):
            asked, _ = await asyncio.get_running_loop().sock_accept(fence)
        with asked:
            others = asyncio.create_task(hang_up(fence))  # it is asked about the policy, too, which would wait for it
            if ended_by == "policy":
                await asyncio.to_thread(rig.say_policy, budget=budget)
            else:
                await replica.stop()
            told = await load.last_outcome(lambda one: one.reason != NO_CREDIT)
            others.cancel()

    assert (told.result, told.pod.namespace, told.spent.evictions) == ("failed", load.namespace, 1)
