"""Which nodes take a pod by their NUMA zones: records of zones, pods placed since, and what is told of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from slacktide.agents.cluster.scheduler.topic_reader import TopicReader
from slacktide.deploy.cli.explain.workload_text import placement_text
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.inventory import Resources
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import ZONES_STALE_S, BoundPod, NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.analysis.explain.evidence import Logged
from slacktide.streams.decisions.numa.placement import zones_score
from slacktide.streams.records import Record
from testbed.kube_scheduler import GIB, WALL_S, Asked, figures
from testbed.scheduler_pods import parsed


def zone(number: int, free_milli: int | None = 8_000, *, cpu_milli: int = 8_000, **near: int) -> Zone:
    """``near``: distances to others, such as ``to_1=12``; 20 to those that are not given."""
    far = {other: near.get(f"to_{other}", 20) for other in range(4)} | {number: 10}
    memory = {"mem_bytes": 16 * GIB}
    has = {} if free_milli is None else {"cpu_milli": cpu_milli}
    left = {} if free_milli is None else {"cpu_milli": free_milli}
    return Zone(
        id=number,
        allocatable=ZoneResources(**has, **memory),
        available=ZoneResources(**left, **memory),
        distances=[ZoneDistance(zone=other, distance=distance) for other, distance in far.items()],
    )


def record(node: str, *zones: Zone, pods: Mapping[str, list[int]] | None = None, **said: Any) -> NodeZones:
    known: dict[str, Any] = {"boot_id": "1-a", "seq": 1, "observed_ms": 1, "policy": "single-numa-node"}
    known |= {"scope": "container", "cpu_static": True, "memory_static": False}
    bound = [BoundPod(uid=uid, zones=where) for uid, where in (pods or {}).items()]
    return NodeZones(**{**known, "node": node, "zones": list(zones), "pods": bound, **said})


def manifest(name: str = "p", cpu: str = "6", node: str = "", **said: Any) -> dict[str, Any]:
    asks = {"cpu": cpu, "memory": "128Mi"}
    containers = [{"name": "main", "resources": {"requests": asks, "limits": asks}}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **said.pop("metadata", {})},
        "spec": {"containers": containers, "nodeName": node, "schedulerName": "koord-scheduler", **said},
        "status": {"phase": "Pending"},
    }


class Zoned(Asked):
    """It knows the zones of some nodes."""

    def __init__(self, *records: NodeZones, **args: Any) -> None:
        super().__init__(**args)
        self.say(*records)

    def say(self, *records: NodeZones) -> None:
        for one in records:
            self.view.take_zones(one, published_s=self.clock.now_s)

    def place(self, pod: dict[str, Any], *nodes: str) -> str:
        """The node that it would take; "": none. As a kube-scheduler asks: filter, then prioritize where many pass."""
        passed = self.filter(pod, *nodes)["NodeNames"]
        if len(passed) < 2:
            return "".join(passed)
        ranks = self.prioritize(pod, *passed)
        return max(ranks, key=ranks.__getitem__)

    def refused(self, pod: dict[str, Any], node: str) -> str:
        """Why; "": it is not."""
        why: dict[str, str] = self.filter(pod, node)["FailedAndUnresolvableNodes"]
        return why.get(node, "").removeprefix("slacktide: ")

    def bind(self, pod: dict[str, Any], node: str, phase: str = "Pending") -> None:
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": phase}}
        self.view.changed(parsed(bound), at_s=WALL_S)


def test_three_pods_at_once_the_third_goes_as_soon_as_a_record_shows_the_first() -> None:
    """Each asks for 6 of a zone's 8 CPUs. Until the kubelet has chosen a zone for the first, it may be either."""
    asked = Zoned(record("a", zone(0), zone(1)), record("b", zone(0), zone(1)))
    pods = [manifest(f"testpod{number}") for number in (1, 2, 3)]
    first, second = asked.place(pods[0], "a", "b"), asked.place(pods[1], "a", "b")

    assert sorted([first, second]) == ["a", "b"]
    assert asked.place(pods[2], "a", "b") == ""
    asked.bind(pods[0], first)
    asked.say(record(first, zone(0, 2_000), zone(1), pods={"uid-testpod1": [0]}, seq=2))
    assert asked.place(pods[2], "a", "b") == first


def test_the_record_that_shows_the_first_pods_zone_wakes_the_third_one_alone() -> None:
    asked = Zoned(record("a", zone(0), zone(1)), record("b", zone(0), zone(1)))
    pods = [manifest(f"testpod{number}") for number in (1, 2, 3, 4)]
    larger = manifest("larger", cpu="9")
    for one in (*pods, larger):
        asked.bind(one, "", "Pending")
    first = asked.place(pods[0], "a", "b")
    assert asked.place(pods[1], "a", "b")
    for one in (pods[2], larger):
        assert asked.place(one, "a", "b") == ""
    asked.bind(pods[0], first)
    assert asked.woken() == [], "it is bound, and its zone is not known"
    asked.say(record(first, zone(0, 2_000), zone(1), pods={"uid-testpod1": [0]}, seq=2))
    assert asked.woken() == ["testpod3"]
    assert asked.place(pods[2], "a", "b") == first
    assert asked.woken() == []


def test_zones_that_are_fresh_again_wake_a_pod() -> None:
    asked = Zoned(record("a", zone(0), zone(1)))
    pod = manifest()
    asked.bind(pod, "")
    asked.clock.now_s += ZONES_STALE_S + 1
    assert "not published NUMA zones" in asked.refused(pod, "a")
    assert asked.woken() == []
    asked.say(record("a", zone(0), zone(1), seq=2))
    assert asked.woken() == ["p"]


def test_a_refusal_names_the_zone_the_need_what_is_free_and_whose_reservation_counts() -> None:
    asked = Zoned(record("a", zone(0), zone(1, 7_000)))
    assert asked.place(manifest("first"), "a") == "a"

    assert asked.refused(manifest("second"), "a") == (
        "numa_over_reserved: closest is node a: pod requests cpu 6000m, zone 0 has 2000m free of 8000m; "
        "reserved for default/first (cpu 6000m memory 128Mi) until its zones show them"
    )
    assert asked.refused(manifest("large", cpu="9"), "a") == (
        "numa_no_zone:cpu: closest is node a: pod requests cpu 9000m, zone 0 has 2000m free of 8000m"
    )


def test_a_reservation_ends_with_the_record_the_pod_or_its_binding_elsewhere() -> None:
    def left_after(act: Any) -> str:
        asked = Zoned(record("a", zone(0)), record("b", zone(0)))
        first = manifest("first")
        asked.place(first, "a")
        act(asked, first)
        return asked.place(manifest("second"), "a")

    assert left_after(lambda asked, first: None) == ""
    assert left_after(lambda asked, first: asked.bind(first, "a")) == ""
    assert left_after(lambda asked, first: asked.bind(first, "b")) == "a"
    assert left_after(lambda asked, first: asked.bind(first, "a", "Failed")) == "a"
    assert left_after(lambda asked, first: asked.place(first, "b")) == "a"
    assert left_after(lambda asked, first: asked.say(record("a", zone(0), seq=2, pods={"uid-first": []}))) == "a"


@pytest.mark.parametrize("last", [0, 1])
def test_of_two_replicas_that_refused_a_pod_only_the_one_that_answered_last_wakes_it(last: int) -> None:
    """Each reads the other's answers from Kafka."""
    full = record("a", zone(0, 2_000), zone(1, 2_000))
    replicas, pod = [Zoned(full), Zoned(full)], manifest("waits")
    for seconds, replica in enumerate((replicas[1 - last], replicas[last])):
        replica.clock.now_s += seconds
        replica.bind(pod, "")
        assert replica.place(pod, "a") == ""
    replicas[1 - last].clock.now_s += 1
    for replica in replicas:
        for told in (*replicas[0].told, *replicas[1].told):
            replica.answers.waiting.leave(told.pod_uid, told.decided_ms)
        replica.say(record("a", zone(0), zone(1, 2_000), seq=2))

    woken = [replica.woken() for replica in replicas]
    assert woken[last] == ["waits"]
    assert woken[1 - last] == []


def test_a_replica_that_is_not_asked_any_more_wakes_the_pods_that_it_refused_last() -> None:
    """The other kube-scheduler leads now. It tries a pod on the annotation, whoever wrote that."""
    full = record("a", zone(0, 2_000), zone(1, 2_000))
    before, leads = Zoned(full), Zoned(full)
    pod = manifest("waits")
    for replica in (before, leads):
        replica.bind(pod, "")
    assert before.place(pod, "a") == ""
    for replica in (before, leads):
        replica.say(record("a", zone(0), zone(1, 2_000), seq=2))

    assert (before.woken(), leads.woken()) == (["waits"], [])
    assert leads.place(pod, "a") == "a"


def test_another_pods_record_ends_no_reservation() -> None:
    asked = Zoned(record("a", zone(0)))
    asked.place(manifest("first"), "a")
    asked.say(record("a", zone(0), seq=2, pods={"uid-other": [0]}))
    assert asked.refused(manifest("second"), "a").startswith("numa_over_reserved")


def test_restricted_takes_what_the_kubelet_admits_on_two_zones() -> None:
    """It admits as many zones as an empty node would need, and no more."""

    def refused(free_milli: int, cpu: str) -> str:
        zones = zone(0, free_milli), zone(1, free_milli)
        return Zoned(record("a", *zones, policy="restricted")).refused(manifest(cpu=cpu), "a")

    assert refused(8_000, "12") == ""
    assert refused(3_000, "4") == (
        "numa_restricted:cpu: closest is node a: pod requests cpu 4000m, zone 0 has 3000m free"
    )


@pytest.mark.parametrize("policy", ["none", "best-effort", None])
def test_under_other_policies_and_an_unknown_one_every_pod_fits(policy: str | None) -> None:
    assert Zoned(record("a", zone(0, 0), policy=policy)).refused(manifest(), "a") == ""


def test_a_node_that_publishes_no_zones_is_not_asked_for_them() -> None:
    assert Zoned().refused(manifest(), "a") == ""


def test_a_node_that_changes_its_policy_is_judged_by_the_new_one() -> None:
    asked = Zoned(record("a", zone(0, 4_000), zone(1, 4_000), policy="best-effort"))
    assert asked.refused(manifest(), "a") == ""
    asked.filter(manifest(), "nobody")
    asked.say(record("a", zone(0, 4_000), zone(1, 4_000), seq=2))
    assert asked.refused(manifest("q"), "a").startswith("numa_no_zone:cpu")


def test_pod_scope_adds_containers_up_and_container_scope_does_not() -> None:
    asks = {"cpu": "5", "memory": "1Gi"}
    two = [{"name": name, "resources": {"requests": asks, "limits": asks}} for name in ("x", "y")]
    pod = manifest(containers=two)
    assert Zoned(record("a", zone(0), zone(1))).refused(pod, "a") == ""
    assert Zoned(record("a", zone(0), zone(1), scope="pod")).refused(pod, "a").startswith("numa_no_zone:cpu")


def test_ids_with_gaps_and_zones_of_memory_alone_are_used_as_they_are() -> None:
    asked = Zoned(record("a", zone(0, None), zone(2, 2_000), zone(3)))
    assert asked.refused(manifest(), "a") == ""
    [placement] = asked.told
    terms = placement.best[0].terms
    assert (terms["zone_count"], terms["zone_3_free_milli"], terms["zone_3_left_milli"]) == (1, 8_000, 2_000)


def test_zones_that_cannot_be_read_take_no_pod_that_needs_them() -> None:
    asked = Zoned(record("a"))
    assert asked.refused(manifest(), "a") == "its NUMA zones, or the allocations of pods in them, cannot be read"
    burstable = manifest("burstable")
    del burstable["spec"]["containers"][0]["resources"]["limits"]
    assert asked.refused(burstable, "a") == ""


def test_a_record_older_than_15_s_takes_no_pods_until_a_new_one_comes() -> None:
    asked = Zoned(record("a", zone(0)))
    asked.clock.now_s += ZONES_STALE_S
    assert asked.refused(manifest(), "a") == ""
    asked.view.gone(("default", "p"))
    asked.clock.now_s += 1
    assert asked.refused(manifest(), "a") == "its agent has not published NUMA zones for 15 s"
    assert asked.told[-1].refused[0].reason == "zones_stale"
    asked.say(record("a", zone(0), seq=2))
    assert asked.refused(manifest(), "a") == ""


def test_an_older_record_is_passed_over_while_the_newer_one_is_fresh() -> None:
    asked = Zoned(record("a", zone(0, 0), seq=5))
    asked.say(record("a", zone(0), seq=4))
    assert asked.refused(manifest(), "a").startswith("numa_no_zone")
    asked.say(record("a", zone(0), seq=1, boot_id="2-b"))
    assert asked.refused(manifest(), "a") == ""


def test_a_node_that_was_removed_keeps_no_zones() -> None:
    asked = Zoned()
    asked.view.has("a", Resources(cpu_milli=8_000))
    asked.say(record("a", zone(0, 0)))
    asked.view.has("a", None)
    assert asked.view.counts(asked.clock.now_s)[0] == 0
    assert asked.refused(manifest(), "a") == ""


def test_a_pod_that_is_static_reserves_nothing() -> None:
    """The node's record would never name it: the kubelet knows it by another uid."""
    asked = Zoned(record("a", zone(0)))
    mirror = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "0123"}
    asked.bind(manifest("static", metadata={"annotations": mirror}), "a")
    assert asked.refused(manifest(), "a") == ""


def test_a_daemon_sets_pod_goes_to_every_node() -> None:
    owner = {"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}
    assert Zoned(record("a", zone(0, 0))).refused(manifest(metadata=owner), "a") == ""


def score(strategy: str, *zones: Zone, cpu: str = "6", **said: Any) -> int | None:
    asked = Zoned(record("a", *zones, **said), numa_strategy=strategy)
    pod = parsed(manifest(cpu=cpu)).asked.zoned
    view = asked.view._nodes["a"].view(asked.clock.now_s).zones
    assert pod is not None
    assert view is not None
    return zones_score(pod, view, strategy)  # type: ignore[arg-type]


def test_the_strategies_score_by_zones_needed_or_by_how_full_a_zone_would_be() -> None:
    two = (zone(0), zone(1))
    assert score("LeastNUMANodes", *two) == 94
    assert score("LeastNUMANodes", *two, cpu="12", policy="restricted") == 82
    assert score("LeastAllocated", *two) == 62
    assert score("MostAllocated", *two) == 37
    assert score("BalancedAllocation", *two) == 72


@pytest.mark.parametrize(("weight", "order"), [(0, ["a", "b"]), (1, ["b", "a"])])
def test_a_node_that_needs_one_zone_is_preferred_to_one_that_needs_two(weight: int, order: list[str]) -> None:
    small = [zone(number, 4_000, cpu_milli=4_000) for number in (0, 1)]
    asked = Zoned(
        record("a", *small, policy="restricted"),
        record("b", zone(0), zone(1), policy="restricted"),
        numa_weight=weight,
    )
    asked.receive(*figures("a", cpu=16_000), *figures("b", cpu=16_000))
    choice = asked.view.choose(parsed(manifest()).asked, ["a", "b"], now_s=asked.clock.now_s)

    assert {one.name: one.willing.numa_score for one in choice.ranked} == {"a": 82, "b": 94}
    assert [one.name for one in choice.ranked] == order


def test_zones_change_no_score_where_no_node_publishes_them() -> None:
    def ranks(weight: int) -> Any:
        asked = Zoned(numa_weight=weight)
        asked.receive(*figures("a", cpu=16_000), *figures("b", cpu=16_000))
        return asked.view.choose(parsed(manifest()).asked, ["a", "b"], now_s=asked.clock.now_s).scores

    assert ranks(0) == ranks(100)


def test_explain_shows_the_zone_with_what_is_free_there_before_and_after() -> None:
    asked = Zoned(record("a", zone(0, 7_000), zone(1)))
    asked.place(manifest("first", cpu="1"), "a")
    asked.place(manifest("second"), "a")
    shown = placement_text(Logged(body=asked.told[-1], place=None), asked_ms=asked.clock.wall_ms())  # type: ignore[arg-type]
    assert (
        "a: container main requests cpu 6000m memory 128Mi, zone 0; "
        "zone 0: cpu 6000m free, 0m with it, memory 16256Mi free, 16256Mi with it; "
        "reserved for default/first (cpu 1000m memory 128Mi) until its zones show them; NUMA score 94 x 1" in shown
    )


def test_explain_shows_what_the_kubelet_admits_and_does_not_align() -> None:
    asked = Zoned(record("a", zone(0, 4_000), zone(1, 3_000), policy="best-effort"))
    asked.place(manifest(), "a")
    assert asked.told[-1].best[0].zones == ("would not be aligned: pod requests cpu 6000m, zone 0 has 4000m free")


def test_explain_shows_what_zones_do_not_count_and_what_the_kubelet_may_refuse() -> None:
    def container(name: str, cpu: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}}

    asked = Zoned(record("a", zone(0, 8_000), zone(1, 8_000)))
    small, big = container("small", "2"), container("big", "8")
    pod = manifest(containers=[small, big], initContainers=[container("init", "4")], overhead={"cpu": "100m"})
    pod["status"]["qosClass"] = "Guaranteed"
    asked.place(pod, "a")
    assert asked.told[-1].best[0].zones == (
        "container small requests cpu 2000m, zone 0; container big requests cpu 8000m, zone 1; "
        "zone 0: cpu 8000m free, 6000m with it; zone 1: cpu 8000m free, 0m with it; "
        "the kubelet rejects big if it reuses an init container's CPUs, which are in other zones; "
        "overhead cpu 100m is counted in no zone"
    )


async def test_records_are_read_from_their_topic_and_bad_ones_laid_aside() -> None:
    asked, refused = Zoned(), []
    reader = TopicReader(
        Cluster("127.0.0.1:1"), asked.view, asked.args, lambda _record, why: refused.append(why), asked.clock
    )
    reader._live = True

    async def put(value: bytes | None, key: bytes = b"a") -> None:
        one = Record(topic=ZONES.name, partition=0, offset=0, timestamp_ms=0, key=key, value=value)
        await reader._receive_all([one], asked.clock.now_s)

    await put(encode(record("a", zone(0, 0))))
    assert asked.refused(manifest(), "a").startswith("numa_no_zone")
    await put(b"{}")
    await put(encode(record("a", zone(0))), key=b"b")
    assert len(refused) == 2
    assert "its node 'a'" in refused[1]
    await put(None)
    assert asked.refused(manifest(), "a") == ""


def test_a_repeated_record_asks_no_node_anew() -> None:
    asked = Zoned(record("a", zone(0), zone(1)))
    asked.filter(manifest(), "a")
    before = dict(asked.view._changed)
    asked.say(record("a", zone(0), zone(1), seq=2))
    assert asked.view._changed == before
    asked.say(record("a", zone(0), zone(1, 4_000), seq=3))
    assert asked.view._changed != before


def test_more_than_eight_zones_are_not_looked_at() -> None:
    assert Zoned(record("a", *(zone(number, 0) for number in range(9)))).refused(manifest(), "a") == ""
