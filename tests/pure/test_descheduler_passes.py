"""Passes of descheduling: whom they choose, whom they leave, and what their records say."""

import asyncio
import copy
from collections.abc import Collection
from typing import Any, cast

import msgspec
import pytest

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.bridge.sources import place_of
from slacktide.agents.cluster.descheduler.descheduler import Account, Evicting
from slacktide.agents.cluster.descheduler.passes import Cluster, Passes, Place
from slacktide.agents.kubernetes import objects
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.schemas import connection
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.streams.records import Out
from testbed.descheduled import GIB, OWNER, descheduled, metric, pod_object
from testbed.policies import policy_from
from testbed.scenarios import run, scenarios
from testbed.vectors import each_row

MINUTE_S = 60.0
BAND = {"lowThresholds": {"cpu": 40}, "highThresholds": {"cpu": 60}}
AT_ONCE = {"anomalyCondition": {"consecutiveAbnormalities": 1}}


class World:
    """Two nodes of 10 CPUs: ``full``, where ``a`` uses 2, ``b`` 3 and a service 4, and ``free``, where 1 is used."""

    def __init__(self, **said: Any) -> None:
        self.cluster = Cluster()
        self.metrics: dict[str, NodeMetric] = {}
        self.policy: Policy = policy_from(descheduling=BAND | AT_ONCE | said)
        self.passes = Passes(7)
        self.now_s = 1_000.0
        self.done: DeschedulingPass
        for name in ("full", "free"):
            self.place(name)
        service = {"metadata": {"labels": {}}, "spec": {"priority": 9_500}, "status": {"qosClass": "Burstable"}}
        for item in (pod_object("a", "full"), pod_object("b", "full"), pod_object("web", "full", **service)):
            self.cluster.changed(descheduled(item))
        self.metrics["full"] = metric("full", {"uid-a": 2_000, "uid-b": 3_000, "uid-web": 4_000})
        self.metrics["free"] = metric("free", {}, system=1_000)

    def place(self, name: str, *, takes_pods: bool = True, cpu_milli: int | None = 10_000) -> None:
        offered = {"batch_cpu_milli": 5_000, "batch_mem_bytes": 10 * GIB}
        amounts = Resources(cpu_milli=cpu_milli, mem_bytes=20 * GIB, **offered)
        facts = NodeFacts(name=name, capacity=amounts, allocatable=amounts)
        self.cluster.node(Place(facts=facts, takes_pods=takes_pods))

    def look(self, *, after_s: float = MINUTE_S) -> DeschedulingPass:
        self.now_s += after_s
        self.done = self.passes.next(self.cluster, self.metrics.get, self.policy, self.now_s, 1_700_000_000_000)
        return self.done

    def passes_choose(self) -> list[Any]:
        """What bound the next pass, and who is to leave."""
        done = self.look()
        return [done.bound, chosen(done)]

    def sources(self) -> dict[str, list[Any]]:
        """Of the last pass: for each node that is over, what bound it, for how many passes, and why pods stay."""
        return {
            one.node: [one.bound, one.terms["row_passes"], [stay.reason for stay in one.staying]]
            for one in self.done.sources
        }

    def classes(self) -> dict[str, list[str]]:
        return {one.load_class: one.nodes for one in self.done.classes}

    def record(self) -> DeschedulingPass:
        return msgspec.structs.replace(self.done, policy_version="")

    def used_milli(self, node: str) -> float:
        """Of a source of the last pass."""
        return next(one.terms["used_cpu_milli"] for one in self.done.sources if one.node == node)

    def govern(self, **said: Any) -> None:
        self.policy = policy_from(descheduling=BAND | AT_ONCE | said)

    def measured(self, node: str, *, system: int = 0, stale_ms: int = 0, **uses: int) -> None:
        pods = {f"uid-{name}": milli for name, milli in uses.items()}
        self.metrics[node] = metric(node, pods, system=system, stale_ms=stale_ms)

    def unmeasured(self, node: str) -> None:
        del self.metrics[node]

    def shows(self, name: str, node: str, **other: Any) -> None:
        self.cluster.changed(descheduled(pod_object(name, node, **other)))

    def gone(self, name: str) -> None:
        self.cluster.gone(("jobs", name))

    def removed(self, node: str) -> None:
        self.cluster.removed(node)

    def left(self, node: str) -> None:
        """A pod was evicted there."""
        self.passes.left(node, self.now_s)


def chosen(done: DeschedulingPass) -> list[str]:
    return [one.name for one in done.victims]


@scenarios("descheduler_passes")
def test_passes(case: dict[str, Any]) -> None:
    """Who leaves ``full``."""
    run(case, World)


def test_a_pass_sees_what_was_known_when_it_began() -> None:
    world = World()
    going_on, world.cluster = world.cluster, world.cluster.copy()
    going_on.removed("free")
    going_on.gone(("jobs", "b"))
    going_on.changed(descheduled(pod_object("c", "free")))

    assert chosen(world.look()) == ["b"]
    assert [pod.key for pod in world.cluster.pods_on("free")] == []
    assert list(going_on.nodes) == ["full"]


@pytest.mark.parametrize(("said", "pods_max"), [({"pods": "250"}, 250), ({"pods": "1k"}, 1_000), ({}, 110)])
def test_a_node_takes_as_many_pods_as_it_says(said: dict[str, str], pods_max: int) -> None:
    """Kubernetes writes 1000 as 1k."""
    node = msgspec.convert({"metadata": {"name": "a"}, "status": {"allocatable": said}}, objects.Node)
    facts = NodeFacts(name="a", capacity=Resources(), allocatable=Resources())
    assert place_of(node, facts).pods_max == pods_max


@each_row("other")
async def test_who_may_not_go_any_more_is_not_waited_for(other: dict[str, Any] | None) -> None:
    """Credit comes one by one: an eviction of a pod that goes anyhow would spend some."""
    world, clock, asked = World(dryRun=False), SystemClock(), list[Out]()

    async def send(outs: Collection[Out]) -> None:
        asked.extend(outs)
        if other is None:
            world.cluster.gone(("jobs", "b"))
        else:
            world.cluster.changed(descheduled(pod_object("b", "full", **copy.deepcopy(other))))

    account = Account(connection.Cluster("127.0.0.1:1"), 7, lambda _record, _why: None, clock)
    evicting = Evicting(account, send, lambda _node: None, world.cluster.may_go, "one", clock)
    done = world.look()
    assert chosen(done) == ["b"]
    async with asyncio.timeout(60):
        await evicting.carry_out(cast("ApiServer", None), done, clock.mono_ns() / 1e9 + 60)
    assert len(asked) == 1, "for credit, while it was there"


class Hasty(SystemClock):
    """Time of which ten seconds are gone at each look."""

    def __init__(self) -> None:
        self._now_s = 1_000

    def mono_ns(self) -> int:
        self._now_s += 10
        return self._now_s * 10**9


async def test_an_old_judgement_evicts_nobody_however_long_it_is_to_the_next() -> None:
    """Credit may come when the load has long gone down."""
    world, clock, asked = World(dryRun=False, intervalSeconds=86_400), Hasty(), list[Out]()

    async def send(outs: Collection[Out]) -> None:
        asked.extend(outs)

    account = Account(connection.Cluster("127.0.0.1:1"), 7, lambda _record, _why: None, clock)
    evicting = Evicting(account, send, lambda _node: None, world.cluster.may_go, "one", clock)
    async with asyncio.timeout(60):
        await evicting.carry_out(cast("ApiServer", None), world.look(), clock.mono_ns() / 1e9 + 86_400)
    assert 1 <= len(asked) <= 6


@each_row("other", "reason")
def test_which_pods_stay_and_why(other: dict[str, Any], reason: str) -> None:
    item = pod_object("a", "full", **other)

    assert descheduled(item).stays == reason
    read = msgspec.json.decode(msgspec.json.encode(item), type=objects.Pod)
    assert read_pod(msgspec.to_builtins(read)) == read_pod(item), "what is not read of the object would not matter"


def test_costs_are_read_and_odd_ones_count_for_nothing() -> None:
    def costs(deletion: str, eviction: str = "") -> tuple[int, int]:
        annotations = {
            "controller.kubernetes.io/pod-deletion-cost": deletion,
            "scheduling.koordinator.sh/eviction-cost": eviction,
        }
        pod = descheduled(pod_object("a", metadata={"annotations": annotations}))
        return pod.deletion_cost, pod.eviction_cost

    assert costs(deletion="-5", eviction="7") == (-5, 7)
    assert costs(deletion="much") == (0, 0)


def test_a_pass_leaves_whoever_costs_more() -> None:
    world = World()
    dear = {"metadata": {"annotations": {"scheduling.koordinator.sh/eviction-cost": "100"}, "ownerReferences": OWNER}}
    world.cluster.changed(descheduled(pod_object("b", "full", **dear)))

    assert chosen(world.look()) == ["a", "b"], "a alone does not relieve the node"
