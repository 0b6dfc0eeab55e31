"""How much ClusterQueues and cohorts borrow of what may be lent."""

import math

from hypothesis import given

from slacktide.streams.decisions.queue.quota_tree import (
    NodeSpec,
    Quota,
    QuotaTree,
    QuotaUsage,
    Share,
    node_share,
    quota_tree,
)
from testbed.queue_worlds import CPU, GPU, SMALL, worlds


@given(worlds())
def test_who_borrows_nothing_or_is_a_root_has_no_share(world: tuple[QuotaTree, QuotaUsage]) -> None:
    tree, usage = world
    for node in tree.nodes():
        share = node_share(node, usage)
        if node.parent is None:
            assert (share.share, share.borrowing_on) == (0, frozenset())
        else:
            assert share.borrowing_on == {of for of in (CPU, GPU) if usage.borrowing(node, of)}
            assert share.share >= 0
            assert not share.share or share.borrowing_on


@given(worlds(), SMALL)
def test_a_share_never_falls_as_more_is_used(world: tuple[QuotaTree, QuotaUsage], amount: int) -> None:
    tree, usage = world
    for node in tree.queues.values():
        more = usage.copy()
        more.book(node, CPU, amount)
        assert node_share(node, more).order >= node_share(node, usage).order


@given(worlds())
def test_a_share_without_a_weight_is_above_all_with_one(world: tuple[QuotaTree, QuotaUsage]) -> None:
    tree, usage = world
    shares = [node_share(node, usage) for node in tree.queues.values()]
    for endless in (one for one in shares if math.isinf(one.share)):
        assert all(endless.order > one.order for one in shares if not math.isinf(one.share))


def test_shares_without_a_weight_compare_by_their_ratio() -> None:
    assert Share(ratio_permille=2.0, weight=0.0).order > Share(ratio_permille=1.0, weight=0.0).order
    assert Share(ratio_permille=0.0, weight=0.0).order < Share(ratio_permille=0.1).order


def test_who_borrows_what_nobody_may_lend_borrows_all_the_same() -> None:
    lonely = NodeSpec("a", "c", {CPU: Quota(0)})
    tree, usage = quota_tree([lonely]), QuotaUsage()
    usage.book(tree.queues["a"], CPU, 5)
    share = node_share(tree.queues["a"], usage)

    assert (share.share, share.dominant_resource, share.borrowing_on) == (0, "", {CPU})
