"""Quotas in a tree of cohorts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.quota_tree import (
    AMOUNT_MIN,
    UNLIMITED,
    NodeSpec,
    Quota,
    QuotaTree,
    QuotaUsage,
    cohort_on_cycle,
    minus,
    plus,
    potential_available,
    quota_tree,
    total,
)
from testbed.queue_worlds import AMOUNTS, CPU, GPU, QUOTAS, SMALL, worlds


@given(st.lists(AMOUNTS))
def test_sums_are_unlimited_with_an_unlimited_part_and_exact_without(amounts: list[int]) -> None:
    assert total(amounts) == (UNLIMITED if UNLIMITED in amounts else sum(amounts))


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [(UNLIMITED, UNLIMITED, 0), (UNLIMITED, 5, UNLIMITED), (5, UNLIMITED, AMOUNT_MIN), (5, 7, -2)],
)
def test_what_is_unlimited_stays_so_less_something_limited(left: int, right: int, difference: int) -> None:
    assert minus(left, right) == difference


def test_sums_and_differences_stay_within_64_bits() -> None:
    assert plus(UNLIMITED - 1, UNLIMITED - 1) == UNLIMITED
    assert minus(AMOUNT_MIN, 1) == AMOUNT_MIN
    assert plus(AMOUNT_MIN, -1) == AMOUNT_MIN


@given(worlds(), SMALL)
def test_requests_that_fit_never_lift_usage_above_quota_and_borrowing_limit(
    world: tuple[QuotaTree, QuotaUsage], amount: int
) -> None:
    tree, _ = world
    usage = QuotaUsage()
    for _ in range(5):
        for node in tree.queues.values():
            if usage.fits(node, CPU, amount):
                usage.book(node, CPU, amount)
    for node in tree.nodes():
        limit = node.quota(CPU).borrowing_limit
        most = node.subtree_quota(CPU) if node.parent is None else UNLIMITED
        if node.parent is not None and limit is not None:
            most = plus(node.subtree_quota(CPU), limit)
        assert usage.usage(node, CPU) <= most


@given(worlds())
def test_usage_of_a_cohort_is_what_its_children_use_of_what_they_lend_or_borrow(
    world: tuple[QuotaTree, QuotaUsage],
) -> None:
    tree, usage = world
    for cohort in tree.cohorts.values():
        parts = [max(0, minus(usage.usage(child, CPU), child.local_quota(CPU))) for child in cohort.children]
        assert usage.usage(cohort, CPU) == total(parts)


@given(worlds(), st.lists(SMALL, max_size=4))
def test_what_is_booked_and_taken_off_again_leaves_all_as_it_was(
    world: tuple[QuotaTree, QuotaUsage], amounts: list[int]
) -> None:
    tree, usage = world
    tried = usage.copy()
    node = tree.queues["q0"]
    for amount in amounts:
        tried.book_all(node, {CPU: amount, GPU: 2 * amount})
    for amount in amounts:
        tried.book_all(node, {CPU: amount, GPU: 2 * amount}, -1)
    for each in tree.nodes():
        assert tried.usage(each, CPU) == usage.usage(each, CPU)
        assert tried.usage(each, GPU) == usage.usage(each, GPU)


@given(worlds(), SMALL)
def test_a_change_that_is_tried_on_a_copy_changes_nothing_else(
    world: tuple[QuotaTree, QuotaUsage], amount: int
) -> None:
    tree, usage = world
    before = {name: usage.usage(node, CPU) for name, node in tree.queues.items()}
    usage.copy().book(tree.queues["q0"], CPU, amount + 1)

    assert {name: usage.usage(node, CPU) for name, node in tree.queues.items()} == before


@given(worlds())
def test_no_more_is_available_than_if_nothing_were_used(world: tuple[QuotaTree, QuotaUsage]) -> None:
    tree, usage = world
    for node in tree.nodes():
        assert usage.available(node, CPU) <= potential_available(node, CPU)
        assert QuotaUsage().available(node, CPU) == potential_available(node, CPU)


@given(worlds(), SMALL)
def test_a_larger_request_borrows_from_no_nearer(world: tuple[QuotaTree, QuotaUsage], amount: int) -> None:
    tree, usage = world
    for node in tree.queues.values():
        fits = [usage.lowest_fit(node, CPU, each) for each in range(amount, amount + 5)]
        assert all(smaller.height <= larger.height for smaller, larger in pairwise(fits))
        assert all(one.height == 0 for one in fits if node.parent is None)


@given(st.lists(QUOTAS, min_size=1, max_size=4))
def test_what_queues_never_lend_and_what_their_cohort_has_make_up_their_quotas(quotas: list[Quota]) -> None:
    tree = quota_tree([NodeSpec(f"q{at}", "c", {CPU: quota}) for at, quota in enumerate(quotas)])
    lent = [minus(node.subtree_quota(CPU), node.local_quota(CPU)) for node in tree.queues.values()]

    assert tree.cohorts["c"].subtree_quota(CPU) == total(lent)


def test_a_cohort_may_not_be_its_own_ancestor() -> None:
    rows = [NodeSpec("a", "b"), NodeSpec("b", "c"), NodeSpec("c", "b"), NodeSpec("d", "a")]

    assert cohort_on_cycle(rows) == "b"
    assert cohort_on_cycle([NodeSpec("a", "b"), NodeSpec("b"), NodeSpec("c", "b")]) is None


def test_a_chain_of_thousands_of_cohorts_is_a_tree_like_any_other() -> None:
    chain = [NodeSpec(f"c{at}", f"c{at - 1}" if at else None) for at in range(3_000)]
    tree = quota_tree([NodeSpec("q", "c2999", {CPU: Quota(5)})], chain)

    assert tree.cohorts["c0"].height == 3_000
    assert QuotaUsage().available(tree.queues["q"], CPU) == 5


def test_the_largest_and_smallest_amount_are_those_of_64_bits() -> None:
    """By value, however an amount came about."""
    largest = int("9223372036854775807")
    assert largest == UNLIMITED
    assert -largest - 1 == AMOUNT_MIN
    assert minus(int("9223372036854775807"), int("9223372036854775807")) == 0
    assert minus(int("9223372036854775807"), 1) == largest
    assert minus(1, int("9223372036854775807")) == -largest - 1
    assert plus(largest - 1, 0) == largest - 1
    assert minus(-largest, 0) == -largest


def test_a_node_is_within_nominal_if_it_borrows_nothing_of_what_is_asked_for() -> None:
    node = quota_tree([NodeSpec("a", quotas={CPU: Quota(1000), GPU: Quota(1000)})]).queues["a"]
    for used, within in ((999, True), (int("1000"), True), (1001, False)):
        usage = QuotaUsage({node: {CPU: used}})
        assert usage.within_nominal(node, [CPU]) is within
        assert usage.within_nominal(node, [GPU])
        assert usage.within_nominal(node, [CPU, GPU]) is within


def test_a_whole_request_is_booked_and_taken_off() -> None:
    node = quota_tree([NodeSpec("a", quotas={CPU: Quota(1000)})]).queues["a"]
    usage = QuotaUsage()
    usage.book_all(node, {CPU: 3, GPU: 2})
    assert (usage.usage(node, CPU), usage.usage(node, GPU)) == (3, 2)
    usage.book_all(node, {CPU: 1, GPU: 2}, -1)
    assert (usage.usage(node, CPU), usage.usage(node, GPU)) == (2, 0)


def test_a_node_without_more_has_no_quota_a_weight_of_one_and_no_height() -> None:
    tree = quota_tree([NodeSpec("a", "c")], [NodeSpec("empty")])
    assert Quota().nominal == 0
    assert NodeSpec("a").fair_weight == 1.0
    assert [tree.cohorts[name].height for name in ("empty", "c")] == [0, 1]
    assert tree.queues["a"].height == 0
