"""What a workload lacks: on the flavor that lacks the least part of what it asks for."""

import pytest

from slacktide.streams.decisions.queue.assign import Cluster, Fungibility, Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, NodeNeeds
from slacktide.streams.decisions.queue.missing import missing
from slacktide.streams.decisions.queue.preempt import Preemption
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaUsage, quota_tree

F_CPU, F_MEMORY, G_CPU, G_MEMORY = (FlavorResource(flavor, of) for flavor in "fg" for of in ("cpu", "memory"))
BOTH = Group(frozenset({"cpu", "memory"}), ("f", "g"))


def lacks(
    there: dict[FlavorResource, int], asked: dict[str, int], *groups: Group, used: int = 0, **flavors: NodeFlavor
):
    """What one pod lacks; ``used``: of the first resource there is."""
    node = quota_tree([NodeSpec("q", quotas={of: Quota(amount) for of, amount in there.items()})]).queues["q"]
    usage = QuotaUsage()
    usage.book(node, next(iter(there)), used)
    pod_set = PodSet("main", 1, None, asked, NodeNeeds({"zone": "a"}))
    cluster = Cluster(node, groups or (BOTH,), flavors, Fungibility(), Preemption(), [], usage)
    return dict(missing([pod_set], cluster).amounts)


@pytest.mark.parametrize(
    ("f", "g", "asked", "expected"),
    [
        pytest.param((1, 100), (2, 70), (2, 100), {G_MEMORY: 30}, id="half of the CPU, or 30% of memory"),
        pytest.param((3, 100), (4, 40), (4, 100), {F_CPU: 1}, id="a quarter of the CPU, or 60% of memory"),
        pytest.param((0, 4), (1, 1), (1, 4), {G_MEMORY: 3}, id="all of the CPU, or three quarters of memory"),
        pytest.param((0, 1), (0, 0), (0, 2), {F_MEMORY: 1}, id="nothing is asked of CPU"),
    ],
)
def test_the_flavor_counts_that_lacks_the_least_part(f, g, asked, expected) -> None:
    there = dict(zip((F_CPU, F_MEMORY, G_CPU, G_MEMORY), (*f, *g), strict=True))
    assert lacks(there, {"cpu": asked[0], "memory": asked[1]}) == expected


def test_what_others_use_above_the_quota_is_not_lacking() -> None:
    assert lacks({F_CPU: 4}, {"cpu": 1}, Group(frozenset({"cpu"}), ("f",)), used=6) == {F_CPU: 1}


def test_each_group_counts_whether_another_is_asked_for_or_has_nodes() -> None:
    groups = Group(frozenset({"cpu"}), ("f",)), Group(frozenset({"memory"}), ("g",))
    there = {F_CPU: 1, G_MEMORY: 1}
    assert lacks(there, {"memory": 3}, *groups) == {G_MEMORY: 2}
    elsewhere = NodeFlavor({"zone": "b"})
    assert lacks(there, {"cpu": 9, "memory": 3}, *groups, f=elsewhere) == {G_MEMORY: 2}
