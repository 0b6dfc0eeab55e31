"""Where the queue may decide better than the reference, beside the mode that decides as it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.job import PodsReadyConfig, PriorityClass, backoff_s, job_priority
from slacktide.streams.decisions.queue.missing import wait
from slacktide.streams.decisions.queue.preempt import Holder, Preemption, Preemptor, candidates, targets
from slacktide.streams.decisions.queue.preempt_fair import fair_targets
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import (
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaNode,
    QuotaUsage,
    quota_tree,
)

CPU = FlavorResource("f", "cpu")
LOWER = Preemption("LowerPriority", "Any")
FAIR = pytest.mark.parametrize("fair", [False, True], ids=["by priority", "by shares"])


def holders_of(node: QuotaNode, *used: int) -> list[Holder]:
    """The last came last, so that it goes first."""
    return [Holder(Queued(f"h{at}", 0, 0), node, frozenset({CPU}), {CPU: each}, at) for at, each in enumerate(used)]


def asks(node: QuotaNode, cpu: int, *before: str) -> Preemptor:
    """``before``: its choice of the cycle before."""
    chosen = dict.fromkeys(before, "x")
    return Preemptor(Queued("p", 1, 0), node, {CPU: cpu}, frozenset({CPU}), corrected=True, chosen_before=chosen)


def chosen(preemptor: Preemptor, holders: list[Holder], *, fair: bool = False) -> list[str]:
    usage = QuotaUsage()
    for one in holders:
        usage.book_all(one.queue, one.usage)
    if fair:
        found = fair_targets(preemptor, LOWER, holders, usage)
    else:
        found = targets(preemptor, LOWER, candidates(preemptor, LOWER, holders, usage), usage)
    return [one.holder.queued.uid for one in found]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 12), st.booleans())
def test_no_victim_of_a_corrected_choice_can_be_spared_and_there_are_no_more_than_the_references(used, asked, fair):
    node = quota_tree([NodeSpec("a", quotas={CPU: Quota(sum(used))})]).queues["a"]
    holders = holders_of(node, *used)
    found = chosen(asks(node, asked), holders, fair=fair)
    reference = chosen(asks(node, asked)._replace(corrected=False), holders, fair=fair)

    assert bool(found) == bool(reference)
    assert len(found) <= len(reference)
    freed = {one.queued.uid: one.usage[CPU] for one in holders if one.queued.uid in found}
    assert all(sum(freed.values()) - each < asked for each in freed.values())


@FAIR
def test_the_choice_of_the_cycle_before_is_kept_while_it_suffices(fair) -> None:
    node = quota_tree([NodeSpec("a", quotas={CPU: Quota(6)})]).queues["a"]
    holders = holders_of(node, 2, 2, 2)

    assert chosen(asks(node, 2), holders, fair=fair) == ["h2"]
    assert chosen(asks(node, 2, "h0"), holders, fair=fair) == ["h0"]
    assert chosen(asks(node, 4, "h0"), holders, fair=fair) == ["h2", "h1"]
    assert chosen(asks(node, 2, "h0", "gone"), holders, fair=fair) == ["h2"]


@FAIR
def test_a_choice_of_its_own_queue_is_kept_although_the_queue_borrows(fair) -> None:
    tree = quota_tree([NodeSpec("a", "c", {CPU: Quota(2)})], [NodeSpec("c", quotas={CPU: Quota(4)})])
    assert chosen(asks(tree.queues["a"], 2, "h0"), holders_of(tree.queues["a"], 2, 2, 2), fair=fair) == ["h0"]


def test_a_choice_that_is_reclaimed_is_kept_although_the_queue_borrows_within_its_cohort() -> None:
    queues = [NodeSpec("a", "r", {CPU: Quota(0)}), NodeSpec("b", "c", {CPU: Quota(0)})]
    tree = quota_tree(queues, [NodeSpec("r"), NodeSpec("c", "r", {CPU: Quota(2)})])
    assert chosen(asks(tree.queues["b"], 1, "h0"), holders_of(tree.queues["a"], 1, 1)) == ["h0"]


def test_the_first_backoff_is_held_to_the_maximum() -> None:
    config = PodsReadyConfig(backoff_base_s=100, backoff_max_s=30)
    assert backoff_s(1, config) == 100
    assert [backoff_s(count, config._replace(corrected=True)) for count in (1, 2)] == [30, 30]
    assert backoff_s(1, PodsReadyConfig(backoff_base_s=100, backoff_max_s=0, corrected=True)) == 100


def test_several_global_defaults_are_named() -> None:
    classes = [PriorityClass("b", 2, True), PriorityClass("a", 5, True), PriorityClass("c", 1)]
    assert job_priority("", "", {}, classes).global_defaults == ("a", "b")
    assert job_priority("", "", {}, classes[1:]).global_defaults == ()
    assert job_priority("", "c", {}, classes).global_defaults == ()


def test_the_wait_is_an_interval_around_what_the_rate_lets_expect() -> None:
    done = wait(10, 60)
    assert (done.state, done.least_s, done.most_s) == ("interval", 314, 1017)
    assert wait(11, 60).most_s > done.most_s
    assert wait(10, 600).most_s < done.most_s
    assert wait(10, 60, window_s=7200).most_s > done.most_s


def test_there_is_no_interval_while_quota_is_waited_for_or_nothing_was_admitted() -> None:
    assert wait(1, 0).state == "unknown"
    assert wait(1, 9, blocked_by="NoFit").state == "unknown"
    assert "NoFit" in wait(1, 9, blocked_by="NoFit").reason
    assert wait(1, 9, blocked_by="ExceedsMaxQuota").state == "never"


@given(st.integers(1, 50_000), st.integers(1, 100_000))
def test_an_interval_has_a_least_and_a_most(position, admitted) -> None:
    done = wait(position, admitted)
    assert 0 <= done.least_s < done.most_s
