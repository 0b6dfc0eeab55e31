"""Quotas that are a share of what nodes sell, and gangs that need room on nodes."""

from __future__ import annotations

import asyncio

import pytest

from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue_objects import (
    Metadata,
    NodeSize,
    ResourceFlavorObject,
    ResourceFlavorSpec,
    SoldObject,
    SoldSpec,
)
from slacktide.schemas.topics import ALLOCATABLE
from slacktide.streams.decisions.queue.amount import FlavorResource
from slacktide.streams.decisions.queue.excess import excess
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import NodeSpec, Quota, QuotaNode, quota_tree
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage
from slacktide.streams.decisions.queue.room import PodGroup, Room, pod_groups
from slacktide.streams.decisions.queue.sold_quota import Damped, damped, quota_percent, sold_nominal
from slacktide.streams.decisions.queue.victims import Holder
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.queue.selling import Selling
from testbed.queue_log import FLAVOR, Cluster, Log, lawful, local, queue, standing, term, turns, workload
from testbed.queue_nodes import GI, allocatable, inventory, record, sharing

MINUTE_MS = 60_000


def sold(cpu_milli: int, *nodes: int, memory: int = 100 * GI) -> SoldObject:
    sizes = [NodeSize(cpu_milli=node, memory_bytes=memory) for node in nodes]
    return SoldObject(
        metadata=Metadata(name="default"), spec=SoldSpec(cpu_milli=cpu_milli, memory_bytes=memory, nodes=sizes)
    )


def test_a_figure_grows_by_a_tenth_of_what_is_sold_a_minute_and_never_beyond_it() -> None:
    one = Damped(1_000, 0)
    assert damped(one, 4_000, MINUTE_MS) == Damped(1_400, MINUTE_MS)
    assert damped(one, 4_000, MINUTE_MS // 2).amount == 1_200
    assert damped(one, 1_050, MINUTE_MS).amount == 1_050
    assert damped(one, 4_000, 0).amount == 1_001


def test_a_figure_shrinks_only_past_a_tenth_and_two_minutes_to_the_most_that_was_sold_meanwhile() -> None:
    one = damped(Damped(1_000, 0), 900, 1_000)
    assert one == Damped(1_000, 1_000), "a tenth below is not past the line"
    below = damped(one, 800, 2_000)
    assert below == Damped(1_000, 2_000, 2_000, 800)
    still = damped(below, 850, 121_999)
    assert still.amount == 1_000
    assert damped(still, 700, 122_000) == Damped(850, 122_000)
    assert damped(damped(still, 950, 122_000), 700, 130_000).amount == 1_000, "it began anew"


@pytest.mark.parametrize("sold_after", [0, 1, 499, 500, 501, 899, 900, 1_000, 1_001, 10**12])
def test_a_figure_stays_between_what_it_was_and_what_is_sold(sold_after: int) -> None:
    one = Damped(1_000, 0)
    for minute in range(1, 30):
        one = damped(one, sold_after, minute * MINUTE_MS)
        assert min(1_000, sold_after) <= one.amount <= max(1_000, sold_after)


def test_a_share_is_a_percentage_and_anything_else_is_refused() -> None:
    assert quota_percent({}, "ClusterQueue a") is None
    assert quota_percent({"slacktide.io/quota-of": "batch"}, "ClusterQueue a") == 100
    for bad in ("", "-1", "40%", "1001", "4.5", "٣"):
        with pytest.raises(CaseError, match="0 to 1000"):
            quota_percent({"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": bad}, "ClusterQueue a")
    with pytest.raises(CaseError, match="accepted: batch"):
        quota_percent({"slacktide.io/quota-of": "mid"}, "ClusterQueue a")


def test_a_share_is_of_cpu_and_memory_by_either_name() -> None:
    spec = SoldSpec(cpu_milli=1_001, memory_bytes=7)
    assert [sold_nominal(name, spec, 50) for name in ("cpu", "kubernetes.io/batch-cpu")] == [500, 500]
    assert [sold_nominal(name, spec, 50) for name in ("memory", "kubernetes.io/batch-memory")] == [3, 3]
    assert sold_nominal("pods", spec, 50) is None
    assert sold_nominal("cpu", None, 50) == 0


CPU = FlavorResource("default", "cpu")


def holder(uid: str, node: QuotaNode, cpu: int, *, priority: int = 0, at_s: int = 0) -> Holder:
    return Holder(Queued(uid, priority, 0), node, frozenset({CPU}), {CPU: cpu}, at_s)


def test_after_shrinking_those_exceed_that_borrow_and_the_least_important_and_newest_first() -> None:
    tree = quota_tree(
        [
            NodeSpec("a", "all", {CPU: Quota(4)}),
            NodeSpec("b", "all", {CPU: Quota(4)}),
            NodeSpec("c", None, {CPU: Quota(1)}),
        ]
    )
    a, b, c = (tree.queues[name] for name in "abc")
    holders = [
        *(holder("a1", a, 2), holder("a2", a, 2, at_s=9)),
        *(holder("b1", b, 3, priority=5), holder("b2", b, 2), holder("b3", b, 2, at_s=1)),
        holder("c1", c, 1),
    ]
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    found = excess(holders, usage)
    assert [(one.queue, dict(one.amounts), one.stops) for one in found] == [
        ("a", {CPU: 3}, ()),
        ("b", {CPU: 3}, ("b3", "b2")),
    ]
    usage.book(c, CPU, 1)
    assert [one.stops for one in excess([*holders, holder("c2", c, 1, at_s=3)], usage) if one.queue == "c"] == [("c2",)]
    assert excess([], QuotaUsage()) == []


def test_a_flavor_sells_what_its_nodes_sell_that_take_pods() -> None:
    selling = Selling()
    flavor = ResourceFlavorObject(metadata=Metadata(name="default"), spec=ResourceFlavorSpec(node_labels={"zone": "a"}))
    selling.receive([inventory("n1", "a"), inventory("n2", "a"), inventory("n3", "b")])
    selling.receive([inventory("n4", "a", unschedulable=True), inventory("n5", "a"), inventory("n6", "a")])
    selling.receive(allocatable(f"n{number}", 1_000 + number) for number in range(1, 7))
    selling.receive([allocatable("n5", None), record(ALLOCATABLE, "n6", None), record(ALLOCATABLE, "#heartbeat", None)])
    [one] = selling.due([sharing("a"), flavor], MINUTE_MS)
    assert one.spec == SoldSpec(
        cpu_milli=2_003, memory_bytes=2 * GI, nodes=[NodeSize(cpu_milli=cpu, memory_bytes=GI) for cpu in (1_001, 1_002)]
    )
    assert selling.due([queue("a", "1"), flavor], 2 * MINUTE_MS) == [], "no quota is a share of it"


def test_a_figure_is_written_at_most_once_a_minute_and_goes_on_from_the_last_record() -> None:
    selling = Selling()
    selling.receive([inventory("n1", "a"), allocatable("n1", 4_000)])
    known = sold(1_000, 1_000)
    [first] = selling.due([sharing("a"), FLAVOR, known], 10 * MINUTE_MS)
    assert first.spec.cpu_milli == 1_001
    assert selling.due([sharing("a"), FLAVOR, first], 11 * MINUTE_MS - 1) == []
    [second] = selling.due([sharing("a"), FLAVOR, first], 11 * MINUTE_MS)
    assert 1_390 < second.spec.cpu_milli <= 1_401


def test_admission_follows_what_is_sold_and_what_exceeds_it_is_listed_not_stopped() -> None:
    async def run() -> None:
        log = Log()
        log.put(FLAVOR, sharing("a", "50"), local("a"), *(workload(number, "a") for number in range(4)))
        one, cluster = term(log, "first"), Cluster(log)
        await one.begin(None)
        await turns(one, cluster, 2)
        assert {state[0] for state in standing(log).values()} == {"pending"}, "nothing is known to be sold"
        log.put(sold(6_000))
        await turns(one, cluster, 3)
        assert [state[0] for _, state in sorted(standing(log).items())] == ["reserved"] * 3 + ["pending"]
        log.put(sold(2_000))
        await turns(one, cluster, 3)
        assert len(cluster.running) == 3, "nobody is stopped"
        cluster.finish("uid-00000")
        await turns(one, cluster, 3)
        assert standing(log)["uid-00003"][0] == "pending", "two run, and one is allowed"
        lawful(log)
        assert any(isinstance(each, SoldObject) for each in objects_of(log.records))

    asyncio.run(run())


def test_of_two_gangs_of_eight_pods_exactly_one_runs_where_twelve_have_room() -> None:
    """Four nodes with 3.9 CPUs each: the quota suffices for 15 pods of one CPU, and the nodes for 12."""

    async def run() -> None:
        log = Log()
        log.put(FLAVOR, sharing("a", "110"), local("a"), sold(15_600, *[3_900] * 4))
        log.put(workload(1, "a", pods=8), workload(2, "a", pods=8), workload(3, "a", pods=4))
        one, cluster = term(log, "first"), Cluster(log)
        await one.begin(None)
        await turns(one, cluster, 3)
        assert sorted(cluster.running) == ["uid-00001", "uid-00003"]
        assert standing(log)["uid-00002"][0] == "pending"
        cluster.finish("uid-00001")
        await turns(one, cluster, 3)
        assert sorted(cluster.running) == ["uid-00002", "uid-00003"]
        lawful(log)

    asyncio.run(run())


def test_a_gang_waits_until_there_is_room_on_nodes_even_in_another_queue() -> None:
    async def run() -> None:
        log = Log()
        log.put(FLAVOR, sharing("a"), sharing("b"), local("a"), local("b"), sold(16_000, *[3_900] * 4))
        log.put(workload(1, "a", pods=8), workload(2, "b", pods=8))
        one, cluster = term(log, "first"), Cluster(log)
        await one.begin(None)
        await turns(one, cluster, 3)
        [runs] = cluster.running
        waits = {"uid-00001": "uid-00002", "uid-00002": "uid-00001"}[runs]
        assert [one.reason for one in log.decisions()[1].changes if one.uid == waits] == ["NoRoomForAllPods"]
        cluster.finish(runs)
        await turns(one, cluster, 3)
        assert list(cluster.running) == [waits]
        lawful(log)

    asyncio.run(run())


def test_room_is_whole_pods_of_each_node_by_cpu_and_memory() -> None:
    room = Room({"f": [(3_900, 2 * GI), (10_000, GI)]})
    assert room.fits([PodGroup("f", 3, 1_000, GI)])
    assert not room.fits([PodGroup("f", 4, 1_000, GI)]), "memory is short"
    assert room.fits([PodGroup("f", 13, 1_000, 0)])
    assert not room.fits([PodGroup("f", 14, 1_000, 0)])
    assert room.fits([PodGroup("other", 1_000, 1_000, GI)]), "its nodes are not known"
    assert not room.fits([PodGroup("f", 2, 1_000, GI), PodGroup("f", 2, 0, GI)]), "together they have none"
    room.take("x", [PodGroup("f", 2, 1_000, GI)])
    assert not room.fits([PodGroup("f", 2, 1, GI)])
    room.take("x", [PodGroup("f", 1, 1_000, GI)])
    assert room.fits([PodGroup("f", 2, 1, GI)])
    room.give("x")
    room.give("x")
    assert room.fits([PodGroup("f", 3, 1_000, GI)])


def test_a_pod_set_needs_room_for_each_of_its_pods_on_the_nodes_of_its_flavors() -> None:
    both = pod_groups(3, {"cpu": "f", "memory": "f", "pods": "f"}, {"cpu": 3_001, "memory": 9, "pods": 3})
    assert both == [PodGroup("f", 3, 1_001, 3)]
    assert pod_groups(0, {"cpu": "f"}, {"cpu": 0}) == []
    assert pod_groups(1, {"cpu": "f", "memory": "g"}, {"cpu": 1, "memory": 2}) == [
        PodGroup("f", 1, 1, 0),
        PodGroup("g", 1, 0, 2),
    ]
