"""Which flavors a workload gets."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.assign import Assignment, Cluster, Fungibility, Group, PodSet, assign
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, NodeNeeds, Taint, matches
from slacktide.streams.decisions.queue.queue_order import Queued
from slacktide.streams.decisions.queue.victims import Preemption
from testbed.queue_worlds import worlds

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


def test_a_taint_keeps_pods_away_unless_it_is_only_preferred() -> None:
    assert not matches(NodeNeeds(), NodeFlavor(taints=(Taint("spot", "", "NoSchedule"),)))
    assert matches(NodeNeeds(), NodeFlavor(taints=(Taint("spot", "", "PreferNoSchedule"),)))
    assert matches(NodeNeeds(selector={"disk": "ssd"}), NodeFlavor(node_labels={"zone": "a"}))
