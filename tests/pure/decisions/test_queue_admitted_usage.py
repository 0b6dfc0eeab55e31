"""What an admitted workload uses."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.workload_objects import AdmittedPodSet, admitted_usage, pod_set_usage
from testbed.queue_worlds import CPU, GPU

COUNTS = st.integers(0, 9)
USAGES = st.fixed_dictionaries({}, optional={CPU: st.integers(0, 900), GPU: st.integers(0, 9)})
POD_SETS = st.builds(AdmittedPodSet, st.just("main"), COUNTS, COUNTS, st.none() | COUNTS, USAGES)


@given(POD_SETS)
def test_pods_that_are_done_never_raise_usage_and_all_done_free_it(one: AdmittedPodSet) -> None:
    now = pod_set_usage(one)

    assert all(now.usage[of] <= amount for of, amount in one.usage.items())
    if now.admitted_pods and one.reclaimable >= one.spec_count:
        assert not any(now.usage.values())


@given(POD_SETS)
def test_each_further_pod_that_is_done_frees_as_much_or_nothing(one: AdmittedPodSet) -> None:
    less, more = (pod_set_usage(one._replace(reclaimable=one.reclaimable + further)) for further in (0, 1))

    assert less.pods - 1 <= more.pods <= less.pods
    assert all(more.usage[of] <= less.usage[of] for of in one.usage)


@given(st.lists(POD_SETS, max_size=3))
def test_a_workload_uses_the_sum_of_its_pod_sets(pod_sets: list[AdmittedPodSet]) -> None:
    now = [pod_set_usage(one) for one in pod_sets]

    assert admitted_usage(now).get(CPU, 0) == sum(one.usage.get(CPU, 0) for one in now)


def test_a_partly_admitted_set_frees_nothing_until_fewer_are_left_than_were_admitted() -> None:
    partly = AdmittedPodSet("main", spec_count=5, reclaimable=2, admitted_count=3, usage={CPU: 300})

    assert pod_set_usage(partly).usage == {CPU: 300}
    assert pod_set_usage(partly._replace(reclaimable=3)).usage == {CPU: 200}
