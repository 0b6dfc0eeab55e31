"""Passes of descheduling: whom they choose, whom they leave, and what their records say."""

from __future__ import annotations

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
from slacktide.schemas.descheduling import DeschedulingPass, NodesOfClass, StayingPods
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.streams.records import Out
from testbed.descheduled import GIB, OWNER, descheduled, metric, pod_object
from testbed.policies import policy_from

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
        for name in ("full", "free"):
            self.place(name)
        service = {"metadata": {"labels": {}}, "spec": {"priority": 9_500}, "status": {"qosClass": "Burstable"}}
        for item in (pod_object("a", "full"), pod_object("b", "full"), pod_object("web", "full", **service)):
            self.cluster.changed(descheduled(item))
        self.metrics["full"] = metric("full", {"uid-a": 2_000, "uid-b": 3_000, "uid-web": 4_000})
        self.metrics["free"] = metric("free", {}, system=1_000)

    def place(self, name: str, *, takes_pods: bool = True) -> None:
        sold = {"batch_cpu_milli": 5_000, "batch_mem_bytes": 10 * GIB}
        amounts = Resources(cpu_milli=10_000, mem_bytes=20 * GIB, **sold)
        facts = NodeFacts(name=name, capacity=amounts, allocatable=amounts)
        self.cluster.node(Place(facts=facts, takes_pods=takes_pods))

    def look(self, *, after_s: float = MINUTE_S) -> DeschedulingPass:
        self.now_s += after_s
        return self.passes.next(self.cluster, self.metrics.get, self.policy, self.now_s, 1_700_000_000_000)


def chosen(done: DeschedulingPass) -> list[str]:
    return [one.name for one in done.victims]


def test_a_pass_sees_what_was_known_when_it_began() -> None:
    world = World()
    going_on, world.cluster = world.cluster, world.cluster.copy()
    going_on.removed("free")
    going_on.gone(("jobs", "b"))
    going_on.changed(descheduled(pod_object("c", "free")))

    assert chosen(world.look()) == ["b"]
    assert [pod.key for pod in world.cluster.pods_on("free")] == []
    assert list(going_on.nodes) == ["full"]


def test_the_pod_that_just_suffices_leaves_and_the_record_has_the_arithmetic() -> None:
    done = World().look()

    [victim] = done.victims
    assert (victim.namespace, victim.name, victim.pod_uid, victim.node) == ("jobs", "b", "uid-b", "full")
    assert victim.terms == {
        "used_pct": 90.0,
        "threshold_pct": 60.0,
        "used_cpu_milli": 9_000,
        "high_cpu_milli": 6_000,
        "pod_cpu_milli": 3_000,
    }
    assert (done.epoch, done.number, done.bound, done.dry_run) == (7, 1, "acted", True)
    assert done.terms == {
        "over_nodes": 1,
        "lasting_nodes": 1,
        "too_few_nodes": 0,
        "target_nodes": 1,
        "evicted_pods": 1,
    }
    assert done.classes == [
        NodesOfClass(load_class="high", count=1, nodes=["full"]),
        NodesOfClass(load_class="both_low", count=1, nodes=["free"]),
    ]
    [source] = done.sources
    assert (source.node, source.load_class, source.bound) == ("full", "high", "relieved")
    assert source.terms == {"tolerated_passes": 1, "row_passes": 1, "used_pct": 90.0, "threshold_pct": 60.0,
                            "used_cpu_milli": 9_000, "high_cpu_milli": 6_000}  # fmt: skip
    assert source.staying == [StayingPods(reason="not_best_effort", count=1)]


def test_a_node_gives_only_when_it_has_been_over_for_more_passes_than_is_tolerated() -> None:
    world = World(anomalyCondition={"consecutiveAbnormalities": 2})

    looks = [world.look() for _ in range(3)]

    assert [(one.bound, chosen(one)) for one in looks] == [("none_lasting", []), ("none_lasting", []), ("acted", ["b"])]
    assert [one.sources[0].bound for one in looks] == ["waiting", "waiting", "relieved"]
    assert [one.sources[0].terms["row_passes"] for one in looks] == [1, 2, 3]


@pytest.mark.parametrize("tolerated", [1, 2])
def test_a_node_that_nobody_could_leave_gives_again_in_the_next_pass(tolerated: int) -> None:
    """A budget kept its pods, or there was no credit: nothing that left it is in its figures."""
    world = World(dryRun=False, anomalyCondition={"consecutiveAbnormalities": tolerated})
    before = [world.look() for _ in range(tolerated if tolerated > 1 else 0)]
    assert [chosen(one) for one in before] == [[] for _ in before]
    assert chosen(world.look()) == ["b"]
    done = world.look()
    assert chosen(done) == ["b"]
    assert StayingPods(reason="settling", count=1) not in done.sources[0].staying
    world.passes.left("full", world.now_s)
    world.cluster.gone(("jobs", "b"))
    assert [chosen(world.look()) for _ in range(4)] == [[], [], [], []], "one has left, and is still told of"
    assert chosen(world.look()) == ["a"]


def test_what_a_dry_run_said_holds_nobody_up_who_is_to_leave_in_earnest() -> None:
    world = World()
    assert chosen(world.look()) == ["b"]
    assert chosen(world.look()) == []
    world.policy = policy_from(descheduling=BAND | AT_ONCE | {"dryRun": False})
    assert chosen(world.look()) == ["b"]


@pytest.mark.parametrize("nothing", [0, None])
def test_a_node_of_which_nobody_knows_how_much_there_is_neither_gives_nor_takes(nothing: int | None) -> None:
    """Its kubelet has not told yet: anything would be more than a share of nothing."""
    world = World()
    amounts = Resources(cpu_milli=nothing, mem_bytes=20 * GIB)
    world.cluster.node(Place(facts=NodeFacts(name="full", capacity=amounts, allocatable=amounts), takes_pods=True))

    done = world.look()

    assert (done.bound, chosen(done)) == ("none_over", [])
    assert NodesOfClass(load_class="nothing_allocatable", count=1, nodes=["full"]) in done.classes


def test_what_has_left_stays_in_the_means_and_until_then_nobody_else_leaves() -> None:
    world = World()
    assert chosen(world.look()) == ["b"]
    world.cluster.gone(("jobs", "b"))  # but its use is still told of

    settling = [world.look() for _ in range(4)]

    assert [chosen(one) for one in settling] == [[], [], [], []]
    assert settling[0].sources[0].staying[0].reason in {"settling", "not_best_effort"}
    assert StayingPods(reason="settling", count=1) in settling[0].sources[0].staying
    assert chosen(world.look()) == ["a"], "300 s later it is still over"


@pytest.mark.parametrize("node", ["full", "free"])
def test_a_silent_node_neither_gives_nor_takes(node: str) -> None:
    world = World()
    world.metrics[node] = metric(node, {"uid-b": 9_000} if node == "full" else {}, stale_ms=10_000)

    done = world.look()

    assert chosen(done) == []
    assert NodesOfClass(load_class="stale", count=1, nodes=[node]) in done.classes
    assert done.bound == ("none_over" if node == "full" else "no_targets")
    del world.metrics[node]
    assert NodesOfClass(load_class="unmeasured", count=1, nodes=[node]) in world.look().classes


def test_a_cordoned_node_attracts_nobody() -> None:
    world = World()
    world.place("free", takes_pods=False)

    done = world.look()

    assert (done.bound, done.sources[0].bound) == ("no_targets", "no_targets")


def test_nobody_leaves_for_whom_batch_resource_is_sold_nowhere_else() -> None:
    world = World()
    for number in range(5):
        world.cluster.changed(descheduled(pod_object(f"there-{number}", "free")))

    done = world.look()

    assert (chosen(done), done.sources[0].bound) == ([], "no_more_pods")
    without = World(nodeFit=False)
    for number in range(5):
        without.cluster.changed(descheduled(pod_object(f"there-{number}", "free")))
    assert chosen(without.look()) == ["b"]


def test_too_few_targets_and_nodes_that_are_not_over_hold_the_pass_back() -> None:
    assert World(numberOfNodes=1).look().bound == "too_few_targets"
    world = World()
    world.metrics["full"] = metric("full", {"uid-b": 6_000})
    assert world.look().bound == "none_over"


def test_a_node_that_was_removed_is_nowhere_in_the_next_pass() -> None:
    world = World()
    world.cluster.removed("full")

    assert [one.nodes for one in world.look().classes] == [["free"]]


def test_use_of_pods_that_are_gone_counts_and_a_pod_of_the_same_name_is_another() -> None:
    world = World()
    world.cluster.changed(descheduled(pod_object("b", "full", metadata={"uid": "uid-b2"})))

    done = world.look()

    assert done.sources[0].terms["used_cpu_milli"] == 9_000
    assert chosen(done) == ["a"], "the new one was not measured yet"


@pytest.mark.parametrize(("said", "pods_max"), [({"pods": "250"}, 250), ({"pods": "1k"}, 1_000), ({}, 110)])
def test_a_node_takes_as_many_pods_as_it_says(said: dict[str, str], pods_max: int) -> None:
    """Kubernetes writes 1000 as 1k."""
    node = msgspec.convert({"metadata": {"name": "a"}, "status": {"allocatable": said}}, objects.Node)
    facts = NodeFacts(name="a", capacity=Resources(), allocatable=Resources())
    assert place_of(node, facts).pods_max == pods_max


@pytest.mark.parametrize(
    "other",
    [
        None,
        {"metadata": {"uid": "another"}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"annotations": {"scheduling.koordinator.sh/eviction-cost": "2147483647"}}},
        {"status": {"phase": "Succeeded"}},
    ],
    ids=["is gone", "another of its name", "is going", "its owner forbids it", "has ended"],
)
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


LABELS = {"labels": {"koordinator.sh/qosClass": "LS"}}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({}, ""),
        ({"metadata": LABELS}, ""),  # it requests batch resources, whatever its label is
        ({"metadata": LABELS, "spec": {"containers": [{"name": "main"}]}}, "not_best_effort"),
        ({"metadata": {"labels": {}}, "status": {"qosClass": "Burstable"}}, "not_best_effort"),
        ({"metadata": {"labels": {}}}, ""),  # by its QoS class in Kubernetes alone
        ({"metadata": {"namespace": "kube-system"}}, "system_namespace"),
        ({"metadata": {"namespace": "slacktide-system"}}, "system_namespace"),
        ({"spec": {"priority": 2_000_000_000}}, "critical"),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, "static"),
        ({"metadata": {"ownerReferences": [{"kind": "Node", "controller": True}]}}, "static"),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}, "daemonset"),
        ({"metadata": {"ownerReferences": []}}, "no_controller"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "leaving"),
        ({"metadata": {"annotations": {"scheduling.koordinator.sh/eviction-cost": "2147483647"}}}, "forbids_it"),
        ({"metadata": {"annotations": {"koordinator.sh/eviction-policy": '["BEMemoryEvict"]'}}}, "forbids_it"),
        ({"metadata": {"annotations": {"koordinator.sh/eviction-policy": '["LowNodeLoad"]'}}}, ""),
        ({"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}}, "local_storage"),
        ({"spec": {"volumes": [{"name": "token", "projected": {}}]}}, ""),
        ({"spec": {"nodeSelector": {"pool": "a"}}}, "selects_nodes"),
        (
            {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"x": []}}}}},
            "selects_nodes",
        ),
        (
            {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
            "asks_for_devices",
        ),
        (
            {"spec": {"initContainers": [{"name": "side", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
            "asks_for_devices",
        ),
        ({"spec": {"resources": {"requests": {"hugepages-2Mi": "1Gi"}}}}, "asks_for_devices"),
        ({"spec": {"initContainers": [{"name": "side"}]}}, ""),
    ],
)
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
