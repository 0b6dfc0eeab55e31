"""Quotas that are a share of what nodes sell, and gangs that need room on nodes."""

from slacktide.deploy.cli.queue.topics import standing as cluster_queues
from slacktide.schemas.queue import NodeSize, OfferedSpec
from slacktide.schemas.queue_objects import Metadata, ResourceFlavorObject, ResourceFlavorSpec
from slacktide.schemas.topics import ALLOCATABLE
from slacktide.streams.queue.offered import FlavorOffers
from slacktide.streams.queue.projection import objects_of
from testbed.queue_log import FLAVOR, Cluster, Log, lawful, local, queue, standing, term, turns, workload
from testbed.queue_nodes import GI, allocatable, inventory, record, sharing, sold

MINUTE_MS = 60_000


def test_a_flavor_sells_what_its_nodes_sell_that_take_pods() -> None:
    offers = FlavorOffers()
    flavor = ResourceFlavorObject(metadata=Metadata(name="default"), spec=ResourceFlavorSpec(node_labels={"zone": "a"}))
    offers.receive([inventory("n1", "a"), inventory("n2", "a"), inventory("n3", "b")])
    offers.receive([inventory("n4", "a", unschedulable=True), inventory("n5", "a"), inventory("n6", "a")])
    offers.receive([inventory("n7", "a", agent="slacktide-dry-run"), inventory("n8", "a", agent="slacktide")])
    offers.receive(allocatable(f"n{number}", 1_000 + number) for number in range(1, 9))
    offers.receive([allocatable("n5", None), record(ALLOCATABLE, "n6", None), record(ALLOCATABLE, "#heartbeat", None)])
    [one] = offers.due([sharing("a"), flavor], MINUTE_MS)
    assert one.spec == OfferedSpec(
        cpu_milli=3_011,
        memory_bytes=3 * GI,
        nodes=[NodeSize(cpu_milli=cpu, memory_bytes=GI) for cpu in (1_001, 1_002, 1_008)],
    )
    assert offers.due([queue("a", "1"), flavor], 2 * MINUTE_MS) == [], "no quota is a share of it"


def test_a_figure_is_written_at_most_once_a_minute_and_goes_on_from_the_last_record() -> None:
    offers = FlavorOffers()
    offers.receive([inventory("n1", "a"), allocatable("n1", 4_000)])
    known = sold(1_000, 1_000)
    [first] = offers.due([sharing("a"), FLAVOR, known], 10 * MINUTE_MS)
    assert first.spec.cpu_milli == 1_001
    assert offers.due([sharing("a"), FLAVOR, first], 11 * MINUTE_MS - 1) == []
    [second] = offers.due([sharing("a"), FLAVOR, first], 11 * MINUTE_MS)
    assert 1_390 < second.spec.cpu_milli <= 1_401


def test_a_late_record_of_an_older_sample_or_of_an_older_bridge_changes_nothing() -> None:
    offers = FlavorOffers()
    offers.receive([inventory("n1", "a", epoch=2), allocatable("n1", 4_000, seq=2), inventory("n2", "a", epoch=2)])
    offers.receive([allocatable("n1", 1_000, seq=1), inventory("n1", "a", unschedulable=True, epoch=1)])
    [one] = offers.due([sharing("a"), FLAVOR], MINUTE_MS)
    assert one.spec.cpu_milli == 4_000


async def test_admission_follows_what_is_sold_and_what_exceeds_it_is_listed_not_stopped() -> None:
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
    [line] = cluster_queues(objects_of(log.records)).exceeds
    assert line == "ClusterQueue a exceeds its quota by 2 cpu of default; will be stopped: jobs/w0, jobs/w1"
    cluster.finish("uid-00000")
    await turns(one, cluster, 3)
    assert standing(log)["uid-00003"][0] == "pending", "two run, and one is allowed"
    lawful(log)


async def test_of_two_gangs_of_eight_pods_exactly_one_runs_where_twelve_have_room() -> None:
    """Four nodes with 3.9 CPUs each: the quota suffices for 15 pods of one CPU, and the nodes for 12."""
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


async def test_a_gang_waits_until_there_is_room_on_nodes_even_in_another_queue() -> None:
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
