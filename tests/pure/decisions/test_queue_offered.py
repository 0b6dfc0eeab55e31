"""Quotas that are a share of what nodes sell, what exceeds them, and room for gangs on nodes."""

import pytest

from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue import OfferedSpec
from slacktide.streams.decisions.queue.flavor_match import (
    Damped,
    PodGroup,
    Room,
    damped,
    offered_nominal,
    pod_groups,
    quota_percent,
)
from slacktide.streams.decisions.queue.preempt import Holder, excess
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.quota_tree import (
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaNode,
    QuotaUsage,
    quota_tree,
)

MINUTE_MS = 60_000
GI = 1 << 30


def test_a_figure_grows_by_a_tenth_of_what_is_sold_a_minute_and_never_beyond_it() -> None:
    one = Damped(1_000, 0)
    assert damped(one, 4_000, MINUTE_MS) == Damped(1_400, MINUTE_MS)
    assert damped(one, 4_000, MINUTE_MS // 2).amount == 1_200
    assert damped(one, 1_050, MINUTE_MS).amount == 1_050
    assert damped(one, 4_000, 0).amount == 1_001
    assert damped(Damped(1_000, MINUTE_MS), 4_000, 2 * MINUTE_MS) == Damped(1_400, 2 * MINUTE_MS, None, 0)
    assert damped(one, 5_999_999, 1) == Damped(1_009, 1), "rounded down"


def test_a_figure_shrinks_only_past_a_tenth_and_two_minutes_to_the_most_that_was_sold_meanwhile() -> None:
    one = damped(Damped(1_000, 0), 900, 1_000)
    assert one == Damped(1_000, 1_000), "a tenth below is not past the line"
    below = damped(one, 800, 2_000)
    assert below == Damped(1_000, 2_000, 2_000, 800)
    still = damped(below, 850, 121_999)
    assert still.amount == 1_000
    assert damped(still, 700, 122_000) == Damped(850, 122_000)
    assert damped(still, 700, 500_000) == Damped(850, 500_000)
    assert damped(Damped(1_000, 0), 899, 1) == Damped(1_000, 1, 1, 899), "past the line"
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
    for text, percent in (("0", 0), ("1", 1), ("1000", 1_000), ("00100", 100)):
        asks = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": text}
        assert quota_percent(asks, "ClusterQueue a") == percent
    for bad in ("", "-1", "40%", "1001", "10000", "000100", "4.5", "٣"):
        with pytest.raises(CaseError, match="0 to 1000"):
            quota_percent({"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": bad}, "ClusterQueue a")
    for other in ("mid", "all"):
        with pytest.raises(CaseError, match="accepted: batch"):
            quota_percent({"slacktide.io/quota-of": other}, "ClusterQueue a")


def test_a_share_is_of_cpu_and_memory_by_either_name() -> None:
    spec = OfferedSpec(cpu_milli=1_001, memory_bytes=70_001)
    assert [offered_nominal(name, spec, 50) for name in ("cpu", "kubernetes.io/batch-cpu")] == [500, 500]
    assert [offered_nominal(name, spec, 50) for name in ("memory", "kubernetes.io/batch-memory")] == [35_000, 35_000]
    assert offered_nominal("pods", spec, 50) is None
    assert [offered_nominal(name, None, 50) for name in ("cpu", "memory")] == [0, 0]


CPU = FlavorResource("default", "cpu")


def holder(uid: str, node: QuotaNode, cpu: int, *, priority: int = 0, at_s: int = 0) -> Holder:
    return Holder(Queued(uid, priority, 0), node, frozenset({CPU}), {CPU: cpu}, at_s)


def test_after_shrinking_those_exceed_that_borrow_and_the_least_important_and_newest_first() -> None:
    tree = quota_tree(
        [
            NodeSpec("a", "all", {CPU: Quota(4)}),
            NodeSpec("b", "all", {CPU: Quota(4)}),
            NodeSpec("c", None, {CPU: Quota(1)}),
            NodeSpec("d", None, {CPU: Quota(5)}),
            NodeSpec("e", "all", {CPU: Quota(0)}),
        ]
    )
    a, b, c, d, e = (tree.queues[name] for name in "abcde")
    holders = [
        *(holder("a1", a, 2), holder("a2", a, 2, at_s=9)),
        *(holder("b1", b, 3, priority=5), holder("b2", b, 2), holder("b3", b, 2, at_s=1)),
        *(holder("b0", b, 0, priority=-5), holder("c1", c, 1), holder("d1", d, 1), holder("e1", e, 0)),
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


def stops(*holders: Holder, lost: int = 0) -> tuple[str, ...]:
    """Who stops; ``lost``: usage that no workload has."""
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    usage.book(holders[0].queue, CPU, lost)
    return excess(holders, usage)[0].stops


def test_the_least_important_stops_first_and_of_equal_ones_the_newest() -> None:
    node = quota_tree([NodeSpec("a", None, {CPU: Quota(1)})]).queues["a"]

    assert stops(holder("x", node, 1, at_s=5), holder("y", node, 1, at_s=9), holder("z", node, 1, at_s=7)) == ("y", "z")
    assert stops(holder("x", node, 1), holder("y", node, 1, priority=1, at_s=9)) == ("x",)
    assert stops(holder("x", node, 1, priority=-1), holder("y", node, 1, at_s=9)) == ("x",)
    assert stops(holder("x", node, 1), lost=5) == ("x",), "no more can stop"


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
    assert not room.fits([PodGroup("f", 4, 1_000, GI)]), "it gave as much as it took"
    assert room.fits([PodGroup("f", 2, 5_000, 0)])
    room.take("y", [PodGroup("f", 2, 4_000, 0)])
    assert not room.fits([PodGroup("f", 1, 3_950, 0)]), "both are on the larger node, of which two CPUs are left"
    assert room.fits([PodGroup("f", 1, 3_900, 0)])
    room.give("y")
    assert not room.fits([PodGroup("other", 1, 1_000, GI), PodGroup("f", 4, 1_000, GI)])


def test_a_pod_set_needs_room_for_each_of_its_pods_on_the_nodes_of_its_flavors() -> None:
    both = pod_groups(3, {"cpu": "f", "memory": "f", "pods": "f"}, {"cpu": 3_001, "memory": 9, "pods": 3})
    assert both == [PodGroup("f", 3, 1_001, 3)]
    assert pod_groups(0, {"cpu": "f"}, {"cpu": 0}) == []
    assert pod_groups(1, {"cpu": "f"}, {}) == [PodGroup("f", 1, 0, 0)]
    assert pod_groups(1, {"cpu": "f", "memory": "g"}, {"cpu": 1, "memory": 2}) == [
        PodGroup("f", 1, 1, 0),
        PodGroup("g", 1, 0, 2),
    ]


def test_one_that_is_to_stop_already_stops_first() -> None:
    node = quota_tree([NodeSpec("a", None, {CPU: Quota(2)})]).queues["a"]
    holders = [holder("x", node, 2), holder("y", node, 2, priority=5, at_s=1)]
    holders[1] = holders[1]._replace(queued=Queued("y", 5, 0, Condition("Preempted", 0)))
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    assert excess(holders, usage)[0].stops == ("y",)
    holders[1] = holders[1]._replace(queued=Queued("y", 5, 0, Condition("Preempted", 0, status=False)))
    assert excess(holders, usage)[0].stops == ("x",)


def test_a_flavor_without_nodes_has_room_for_nothing_but_what_asks_for_nothing() -> None:
    assert not Room({"f": []}).fits([PodGroup("f", 1, 1, 0)])
    assert Room({"f": []}).fits([PodGroup("f", 1, 0, 0)]), "it asks for nothing"
