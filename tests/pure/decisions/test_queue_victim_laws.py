"""Whom a workload preempts, with and without fair sharing."""

from hypothesis import assume, given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.preempt import (
    Holder,
    Preemption,
    Preemptor,
    by_queue,
    candidates,
    remove,
    targets,
)
from slacktide.streams.decisions.queue.preempt_fair import fair_targets
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.quota_tree import QuotaUsage
from testbed.queue_worlds import CPU, GPU, trees

POLICIES = st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"])
PREEMPTION = st.builds(Preemption, POLICIES, POLICIES, st.booleans(), st.none() | st.integers(-1, 1))


@st.composite
def clusters(draw: st.DrawFn):
    """Quotas, their usage by workloads, and a workload that needs more CPU than it may use."""
    tree, usage, holders = draw(trees()), QuotaUsage(), []
    for at in range(draw(st.integers(0, 6))):
        queue = draw(st.sampled_from(list(tree.queues.values())))
        evicted = draw(st.none() | st.just(Condition("Preempted", 1)))
        used = {CPU: draw(st.integers(0, 9)), GPU: draw(st.integers(0, 3))}
        queued = Queued(f"u{at}", draw(st.integers(-1, 1)), draw(st.integers(0, 3)), evicted)
        holders.append(Holder(queued, queue, frozenset(used), used, draw(st.none() | st.integers(0, 3))))
        usage.book_all(queue, used)
    queue = tree.queues["q0"]
    queued = Queued("p", draw(st.integers(-1, 1)), 1)
    preemptor = Preemptor(queued, queue, {CPU: draw(st.integers(1, 9))}, frozenset({CPU}))
    assume(not preemptor.fits(usage, borrowing=True))
    return preemptor, holders, usage


@given(clusters(), PREEMPTION)
def test_once_all_victims_are_gone_the_request_fits(cluster, policies: Preemption) -> None:
    preemptor, holders, usage = cluster
    chosen = targets(preemptor, policies, candidates(preemptor, policies, holders, usage), usage)
    for one in chosen:
        remove(usage, one.holder)

    assert not chosen or preemptor.fits(usage, borrowing=True)


@given(clusters(), PREEMPTION)
def test_each_victim_is_a_candidate_once_and_its_policy_allows_it(cluster, policies: Preemption) -> None:
    preemptor, holders, usage = cluster
    tried = candidates(preemptor, policies, holders, usage)
    chosen = [one.holder.queued.uid for one in targets(preemptor, policies, tried, usage)]

    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= {one.holder.queued.uid for one in tried}
    for one in tried:
        same = one.holder.queue is preemptor.queue
        policy = policies.within_cluster_queue if same else policies.reclaim_within_cohort
        assert preemptor.may_preempt(one.holder, policy)


@given(clusters(), PREEMPTION, st.randoms())
def test_victims_do_not_depend_on_how_workloads_are_listed(cluster, policies: Preemption, random) -> None:
    preemptor, holders, usage = cluster
    shuffled = random.sample(holders, len(holders))

    tried = candidates(preemptor, policies, holders, usage)
    assert candidates(preemptor, policies, shuffled, usage) == tried


@given(clusters(), PREEMPTION)
def test_who_looks_for_victims_changes_no_usage(cluster, policies: Preemption) -> None:
    preemptor, holders, usage = cluster
    before = {one.queue.name: dict(usage.used(one.queue)) for one in holders}
    targets(preemptor, policies, candidates(preemptor, policies, holders, usage), usage)

    assert {one.queue.name: dict(usage.used(one.queue)) for one in holders} == before


STRATEGIES = st.permutations(["LessThanOrEqualToFinalShare", "LessThanInitialShare"])


@given(clusters(), PREEMPTION, STRATEGIES, st.integers(1, 2))
def test_with_fair_sharing_the_request_fits_too_once_all_victims_are_gone(
    cluster, policies: Preemption, strategies, count: int
) -> None:
    preemptor, holders, usage = cluster
    chosen = fair_targets(preemptor, policies, holders, usage, strategies[:count])
    for one in chosen:
        remove(usage, one.holder)

    assert len(chosen) == len({one.holder.queued.uid for one in chosen})
    assert not chosen or preemptor.fits(usage, borrowing=True)


@given(clusters(), PREEMPTION, st.randoms())
def test_fair_victims_do_not_depend_on_how_workloads_are_listed(cluster, policies: Preemption, random) -> None:
    preemptor, holders, usage = cluster
    shuffled = random.sample(holders, len(holders))

    assert fair_targets(preemptor, policies, shuffled, usage) == fair_targets(preemptor, policies, holders, usage)


@given(clusters(), PREEMPTION)
def test_each_fair_victim_is_one_that_its_policy_allows(cluster, policies: Preemption) -> None:
    preemptor, holders, usage = cluster
    for one in fair_targets(preemptor, policies, holders, usage):
        same = one.holder.queue is preemptor.queue
        policy = policies.within_cluster_queue if same else policies.reclaim_within_cohort
        assert preemptor.may_preempt(one.holder, policy)
        assert same == (one.reason == "InClusterQueue")


@given(clusters())
def test_without_policies_nobody_is_preempted(cluster) -> None:
    preemptor, holders, usage = cluster

    assert candidates(preemptor, Preemption(), holders, usage) == []


@given(clusters(), PREEMPTION)
def test_workloads_listed_by_their_queue_make_no_difference(cluster, policies: Preemption) -> None:
    preemptor, holders, usage = cluster
    held = by_queue(holders)
    assert sum(len(list(each)) for each in held.values()) == len(holders)
    assert candidates(preemptor, policies, held, usage) == candidates(preemptor, policies, holders, usage)
    assert fair_targets(preemptor, policies, held, usage) == fair_targets(preemptor, policies, holders, usage)
