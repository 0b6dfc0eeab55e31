"""Which CPUs a pod gets for itself on a real view of nodes: records of zones, pods' annotations, and assumed pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slacktide.agents.cluster.scheduler.view import BINDING_S
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.zones import ZONES_STALE_S, NodeZones, Zone, ZoneResources
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES, CoresRefusal, rules_of
from slacktide.streams.decisions.cores.take import readable, written
from testbed.kube_scheduler import WALL_S, Asked
from testbed.scheduler_pods import parsed

STATUS, SPEC = (f"scheduling.koordinator.sh/resource-{kind}" for kind in ("status", "spec"))


def record(
    node: str = "a", *, sockets: int = 1, cores: int = 4, threads: int = 2, lost: tuple[int, ...] = (), **said: Any
) -> NodeZones:
    """Cores of a socket are in one zone; the second threads follow all first ones, as the kernel numbers them."""
    whole = sockets * cores
    zones = []
    for socket in range(sockets):
        of_cores = [
            [thread * whole + core for thread in range(threads) if thread * whole + core not in lost]
            for core in range(socket * cores, (socket + 1) * cores)
        ]
        free = ZoneResources(cpu_milli=1_000 * sum(map(len, of_cores)))
        zones.append(
            Zone(id=socket, allocatable=free, available=free, cores={socket: [one for one in of_cores if one]})
        )
    known: dict[str, Any] = {"boot_id": "1-a", "seq": 1, "observed_ms": 1, "policy": "none", "scope": "container"}
    known |= {"cpu_static": False, "memory_static": False, "node": node, "zones": zones}
    return NodeZones(**known | said)


def manifest(name: str = "p", cpu: int = 2, qos: str = "LSR", **said: Any) -> dict[str, Any]:
    asks = {"cpu": str(cpu), "memory": "128Mi", RESOURCE_CORES: str(cpu)}
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"koordinator.sh/qosClass": qos},
            "annotations": {SPEC: json.dumps(said.pop("spec", {}))} | said.pop("annotations", {}),
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": asks, "limits": asks}}],
            "nodeName": said.pop("node", ""), "schedulerName": "koord-scheduler", "priority": 9_500, **said,
        },
        "status": {"phase": "Pending"},
    }  # fmt: skip


class Cores(Asked):
    """It knows the CPUs of some nodes. A pod is asked for, assumed and bound as a kube-scheduler does it."""

    def __init__(self, *records: NodeZones) -> None:
        super().__init__()
        for one in records:
            self.view.take_zones(one, published_s=self.clock.now_s)

    def watch(self, pod: dict[str, Any]) -> None:
        self.view.changed(parsed(pod), at_s=WALL_S)

    def refused(self, pod: dict[str, Any], node: str = "a") -> str:
        """Why; "": it is not."""
        self.watch(pod)
        why: dict[str, str] = self.filter(pod, node)["FailedAndUnresolvableNodes"]
        return why.get(node, "").removeprefix("slacktide: ")

    def cpus(self, pod: dict[str, Any], node: str = "a") -> str:
        """The CPUs with which it is bound; the reason if it is not."""
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        now_s = self.clock.now_s
        found = self.view.cores(key, pod["metadata"]["uid"], node, now_s=now_s, at_s=WALL_S)
        if found is None or isinstance(found, CoresRefusal):
            return "unknown" if found is None else found.reason
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}
        bound["metadata"] = {**pod["metadata"], "annotations": found.annotations}
        self.bound = bound
        return written(found.cpus)

    def bind(self, pod: dict[str, Any], node: str = "a") -> str:
        """Filter, bind, and see it bound."""
        if why := self.refused(pod, node):
            return why
        cpus = self.cpus(pod, node)
        self.watch(self.bound)
        return cpus

    def leave(self, pod: dict[str, Any]) -> None:
        self.view.gone((pod["metadata"]["namespace"], pod["metadata"]["name"]))


def test_pods_get_whole_cores_of_their_own_until_two_cpus_are_left_and_then_they_wait() -> None:
    asked = Cores(record())
    assert [asked.bind(manifest(name)) for name in "abc"] == ["0,4", "1,5", "2,6"]

    assert asked.refused(manifest("d")) == (
        "cores_not_enough: pod requests 2 CPUs of its own, 2 are free: not enough cpus available to satisfy request: "
        "2 stay for pods without CPUs of their own"
    )
    asked.leave(manifest("b"))
    assert asked.bind(manifest("d")) == "1,5"


def test_what_is_written_names_the_cpus_and_how_they_were_chosen() -> None:
    asked = Cores(record())
    asked.bind(manifest())
    assert {key: json.loads(text) for key, text in asked.bound["metadata"]["annotations"].items()} == {
        STATUS: {"cpuset": "0,4"},
        SPEC: {"preferredCPUBindPolicy": "FullPCPUs"},
    }


def test_an_lse_pod_shares_no_core_and_the_odd_cpu_is_nobodys() -> None:
    asked = Cores(record(cores=5))
    assert asked.bind(manifest("lse", 3, "LSE")) == "0-1,5"
    assert asked.bind(manifest("lsr", 1)) == "2"
    assert asked.bind(manifest("next", 1, "LSE")) == "3", "core 1 is kept, and core 2 has a stranger"
    assert asked.told[-1].best[0].terms["cores_free_count"] == 5


@pytest.mark.parametrize(
    ("nodes", "pod", "cpus"),
    [
        pytest.param({"sockets": 2, "cores": 24}, {"cpu": 24}, "0-11,48-59", id="96 CPUs: of one socket"),
        pytest.param({"sockets": 2, "cores": 24}, {"cpu": 60}, "0-29,48-77", id="more than a socket has"),
        pytest.param({"threads": 1, "cores": 8}, {"cpu": 3}, "0-2", id="no hyperthreads"),
        pytest.param({}, {"cpu": 3, "spec": {"requiredCPUBindPolicy": "SpreadByPCPUs"}}, "0-2", id="one of each core"),
        pytest.param({"lost": (4,)}, {"cpu": 3}, "0-1,5", id="a thread is offline"),
    ],
)
def test_machines_of_all_kinds(nodes: dict[str, Any], pod: dict[str, Any], cpus: str) -> None:
    assert Cores(record(**nodes)).bind(manifest(**pod)) == cpus


@pytest.mark.parametrize(
    ("record", "pod", "reason"),
    [
        pytest.param([], {}, "cores_no_topology", id="a node without a record"),
        pytest.param([record(cpu_static=True)], {}, "cores_kubelet_static", id="the kubelet's policy is static"),
        pytest.param([record(cpu_static=None)], {}, "cores_kubelet_static", id="it may be static"),
        pytest.param([record()], {"qos": "LS"}, "cores_policy", id="LS"),
        pytest.param([record()], {"priority": 5_500}, "cores_policy", id="batch"),
        pytest.param([record()], {"cpu": 3, "spec": {"requiredCPUBindPolicy": "FullPCPUs"}}, "cores_smt", id="odd"),
    ],
)
def test_a_node_that_cannot_give_cpus_refuses_the_pod(
    record: list[NodeZones], pod: dict[str, Any], reason: str
) -> None:
    assert Cores(*record).refused(manifest(**pod)).partition(":")[0] == reason


def test_a_silent_agent_gives_no_cpus() -> None:
    asked = Cores(record())
    asked.clock.now_s += ZONES_STALE_S + 1
    assert asked.refused(manifest()).startswith("cores_no_topology: ")
    asked.view.take_zones(record(seq=2), published_s=asked.clock.now_s)
    assert asked.bind(manifest()) == "0,4"


def test_two_pods_between_filter_and_binding_get_different_cpus() -> None:
    asked = Cores(record())
    one, two = manifest("one"), manifest("two")
    assert [asked.refused(one), asked.refused(two)] == ["", ""]
    assert [asked.cpus(two), asked.cpus(one)] == ["1,5", "0,4"]


def test_cpus_of_a_pod_that_was_never_bound_are_given_back() -> None:
    asked = Cores(record())
    asked.refused(manifest("lost"))
    asked.clock.now_s += BINDING_S + 1
    asked.view.take_zones(record(seq=2), published_s=asked.clock.now_s)
    assert asked.bind(manifest("next")) == "0,4"


def test_a_pod_that_its_scheduler_puts_elsewhere_gets_cpus_there_and_gives_back_the_others() -> None:
    asked = Cores(record("a"), record("b"))
    asked.refused(manifest("moved"), "a")
    assert asked.cpus(manifest("moved"), "b") == "0,4"
    asked.watch(asked.bound)
    assert asked.bind(manifest("next"), "a") == "0,4"


def test_who_asks_for_a_full_node_in_the_end_is_not_bound() -> None:
    asked = Cores(record("a", cores=2), record("b"))
    asked.bind(manifest("there"), "a")
    asked.refused(manifest("late"), "b")
    assert asked.cpus(manifest("late"), "a") == "cores_not_enough"
    assert asked.cpus(manifest("stranger")) == "unknown"


def test_after_a_restart_the_annotations_say_who_holds_what_even_before_the_record_comes() -> None:
    before = Cores(record())
    bound = []
    for name in ("lse", "lsr"):
        before.bind(manifest(name, 1, name.upper()))
        bound.append(before.bound)

    after = Cores()
    after.view.whole(map(parsed, bound), at_s=WALL_S)
    after.view.take_zones(record(), published_s=after.clock.now_s)
    assert after.bind(manifest()) == "2,6"


def test_a_pod_that_ended_holds_none_and_an_unreadable_list_neither() -> None:
    asked = Cores(record())
    asked.bind(manifest("ends"))
    asked.watch({**asked.bound, "status": {"phase": "Succeeded"}})
    asked.watch(manifest("odd", node="a", annotations={STATUS: '{"cpuset": "1,,2"}'}))
    assert asked.bind(manifest("next")) == "0,4"


def test_a_node_that_shrinks_keeps_its_pods_and_gives_only_what_it_has() -> None:
    asked = Cores(record())
    asked.bind(manifest("there", 4))
    asked.view.take_zones(record(seq=2, lost=(0, 3, 4, 7)), published_s=asked.clock.now_s)
    assert asked.refused(manifest("next", 1)).startswith("cores_not_enough"), "1, 2, 5 and 6 are there, 1 and 5 held"
    asked.view.take_zones(record(seq=3), published_s=asked.clock.now_s)
    assert asked.bind(manifest("next")) == "2,6"


def test_another_replicas_placement_holds_its_cpus_until_the_pod_is_bound() -> None:
    asked = Cores(record())
    asked.watch(manifest("theirs"))
    asked.view.sent(("default", "theirs"), "uid-theirs", "a", until_s=asked.clock.now_s + 9, at_s=WALL_S, cpus="0,4")
    assert asked.bind(manifest("ours")) == "1,5"


def test_reserved_cpus_and_those_of_system_pods_are_no_pods() -> None:
    asked = Cores(record())
    annotations = {"node.koordinator.sh/system-qos-resource": '{"cpuset": "0"}'}
    facts = NodeFacts(
        name="a", capacity=Resources(), allocatable=Resources(), reserved_cpus="1", annotations=annotations
    )
    asked.view.rule("a", rules_of(facts))
    assert readable(asked.bind(manifest())) == {2, 6}
    assert asked.view.counts(asked.clock.now_s)[0] == 1


def test_a_node_of_whole_cores_binds_every_pod_of_whole_cpus() -> None:
    asked = Cores(record())
    labels = {"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"}
    asked.view.rule("a", rules_of(NodeFacts(name="a", capacity=Resources(), allocatable=Resources(), labels=labels)))
    assert asked.refused(manifest("odd", 3)).startswith("cores_smt: ")
    assert asked.bind(manifest()) == "0,4"


def test_pods_without_cpus_of_their_own_are_placed_as_before() -> None:
    asked = Cores()
    pod = manifest(qos="LSE")
    del pod["spec"]["containers"][0]["resources"]["requests"][RESOURCE_CORES]
    assert asked.filter(pod, "a")["NodeNames"] == ["a"]
    assert asked.told[-1].best[0].cores == ""
