"""Which flavors a workload gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue import assign as rules
from slacktide.streams.decisions.queue.assign import (
    Assignment,
    Cluster,
    Fungibility,
    Group,
    PodSet,
    assign,
    exceeds_max_quota,
)
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds, Taint, matches
from slacktide.streams.decisions.queue.job import Toleration
from slacktide.streams.decisions.queue.preempt import Holder, Preemption, targets
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaUsage, quota_tree
from testbed.queue_worlds import worlds
from testbed.vectors import each_row

POD_SETS = st.lists(
    st.builds(
        PodSet,
        st.sampled_from("ab"),
        st.integers(1, 5),
        st.none() | st.just(1),
        st.fixed_dictionaries({"cpu": st.integers(0, 5)}),
        st.just(NodeNeeds()),
    ),
    min_size=1,
    max_size=2,
)
FUNGIBILITY = st.builds(Fungibility, st.booleans(), st.booleans(), st.booleans())
GROUPS = (Group(frozenset({"cpu"}), ("f0", "f1")),)


def assigned(world, pod_sets, fungibility) -> tuple[Assignment, Cluster]:
    tree, usage = world
    cluster = Cluster(tree.queues["q0"], GROUPS, {}, fungibility, Preemption(), (), usage)
    return assign(Queued("w", 0, 0), pod_sets, cluster), cluster


@given(worlds(), POD_SETS, FUNGIBILITY)
def test_what_fits_uses_no_more_than_is_available(world, pod_sets, fungibility) -> None:
    done, cluster = assigned(world, pod_sets, fungibility)
    if done.mode == "Fit":
        assert all(cluster.usage.fits(cluster.queue, of, amount) for of, amount in done.usage().items())


@given(worlds(), POD_SETS, FUNGIBILITY)
def test_a_workload_starts_with_all_its_pods_or_no_fewer_than_its_minimum(world, pod_sets, fungibility) -> None:
    done, _ = assigned(world, pod_sets, fungibility)
    for one, asked in zip(done.pod_sets, pod_sets, strict=False):
        assert (asked.pods if asked.min_pods is None else asked.min_pods) <= one.pods <= asked.pods
        assert one.pods == asked.pods or done.works


CPU = FlavorResource("f", "cpu")


def full(*used: int, **changed) -> Cluster:
    """A ClusterQueue whose workloads hold these, all of its CPUs."""
    node = quota_tree([NodeSpec("a", quotas={CPU: Quota(sum(used))})]).queues["a"]
    held = [Holder(Queued(f"h{at}", 0, 0), node, frozenset({CPU}), {CPU: each}, 0) for at, each in enumerate(used)]
    groups, usage = (Group(frozenset({"cpu"}), ("f",)),), QuotaUsage({node: {CPU: sum(used)}})
    return Cluster(node, groups, {}, Fungibility(), Preemption("LowerPriority"), held, usage)._replace(**changed)


def asks(cpu: int) -> list[PodSet]:
    return [PodSet("main", 1, None, {"cpu": cpu}, NodeNeeds())]


def test_what_fits_only_while_nobody_else_uses_it_does_not_exceed_the_quota() -> None:
    own, held = Queued("w", 0, 0), full(4)
    assert not assign(own, asks(4), held).works
    assert not exceeds_max_quota(own, [asks(4)[0]._replace(last_tried={"cpu": 0})], held)
    assert exceeds_max_quota(own, asks(5), held)


@each_row("changed", "victim")
def test_a_corrected_choice_keeps_that_of_the_cycle_before(changed, victim) -> None:
    done = assign(Queued("w", 1, 0), asks(2), full(2, 2, **changed))
    assert [one.holder.queued.uid for one in done.targets] == [victim]


@pytest.mark.parametrize("compares", [True, False])
def test_whom_a_corrected_choice_saved_is_counted_only_where_it_is_asked_for(compares) -> None:
    held = full(1, 1, 2, 4, corrected=True, compares=compares)
    assert assign(Queued("w", 1, 0), asks(6), held).targets_saved_count == compares


def test_victims_of_the_same_request_are_searched_once(monkeypatch) -> None:
    searched: list[object] = []

    def counted(preemptor, *given):
        searched.append(preemptor.request)
        return targets(preemptor, *given)

    monkeypatch.setattr(rules, "targets", counted)
    assert assign(Queued("w", 1, 0), asks(2), full(4)).works
    assert searched == [{CPU: 2}]


def test_a_taint_keeps_pods_away_unless_it_is_only_preferred() -> None:
    assert not matches(NodeNeeds(), NodeFlavor(taints=(Taint("spot", "", "NoSchedule"),)))
    assert matches(NodeNeeds(), NodeFlavor(taints=(Taint("spot", "", "PreferNoSchedule"),)))
    assert matches(NodeNeeds(selector={"disk": "ssd"}), NodeFlavor(node_labels={"zone": "a"}))


@each_row("operator", "values", "holds")
def test_an_affinity_holds_by_its_operator(operator: str, values: tuple[str, ...], holds: bool) -> None:  # noqa: FBT001
    needs = NodeNeeds(affinity=((Expression("size", operator, values),),))
    assert matches(needs, NodeFlavor({"size": "5"})) == holds
    assert matches(needs, NodeFlavor({"zone": "a"})), "labels that the flavor does not have exclude nothing"


def test_one_term_of_an_affinity_suffices_and_all_of_it_has_to_hold() -> None:
    a, b = Expression("zone", "In", ("a",)), Expression("disk", "In", ("ssd",))
    flavor = NodeFlavor({"zone": "a", "disk": "hdd"})
    assert matches(NodeNeeds(affinity=((b,), (a,))), flavor)
    assert not matches(NodeNeeds(affinity=((a, b),)), flavor)


@each_row("toleration", "tolerated")
def test_a_toleration_is_of_a_key_a_value_and_an_effect(toleration: Toleration, tolerated: bool) -> None:  # noqa: FBT001
    flavor = NodeFlavor(taints=(Taint("k", "v", "NoSchedule"),))
    assert matches(NodeNeeds(tolerations=(toleration,)), flavor) == tolerated
    assert matches(NodeNeeds(), flavor._replace(tolerations=(toleration,))) == tolerated
