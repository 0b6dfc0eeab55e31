"""Which workload of a ClusterQueue is next."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.queue_order import (
    Condition,
    Queued,
    RequeuingTimestamp,
    place,
    queue_time_s,
)

TIMES = st.integers(0, 5)
REASONS = st.sampled_from(["PodsReadyTimeout", "AdmissionCheck", "Preempted"])
EVICTED = st.none() | st.builds(Condition, REASONS, TIMES, st.booleans())
QUEUED = st.builds(Queued, st.sampled_from("abcdef"), st.none() | st.integers(-1, 1), TIMES, EVICTED)
MANY = st.lists(QUEUED, max_size=6, unique_by=lambda one: one.uid)
REQUEUING = st.sampled_from(["Eviction", "Creation"])


@given(MANY, st.randoms(), REQUEUING)
def test_the_order_is_total_so_it_does_not_depend_on_how_workloads_came(workloads, random, requeuing) -> None:
    shuffled = random.sample(workloads, len(workloads))

    def ordered(some):
        return sorted(some, key=lambda one: place(one, requeuing))

    assert ordered(shuffled) == ordered(workloads)


@given(QUEUED, QUEUED)
def test_a_higher_priority_goes_first_whatever_the_times(first, second) -> None:
    if (first.priority or 0) > (second.priority or 0):
        assert place(first) < place(second)


def test_only_some_evictions_set_a_workload_back() -> None:
    def since(reason: str, requeuing: RequeuingTimestamp, *, status: bool = True) -> int:
        return queue_time_s(Queued("a", None, 1, Condition(reason, 9, status)), requeuing)

    assert since("PodsReadyTimeout", "Eviction") == 9
    assert since("PodsReadyTimeout", "Creation") == 1
    assert since("AdmissionCheck", "Creation") == 9
    assert since("Preempted", "Eviction") == 1
    assert since("AdmissionCheck", "Eviction", status=False) == 1


def test_a_condition_holds_unless_it_is_stated_otherwise() -> None:
    assert Condition("Preempted", 0).status
    assert place(Queued("a", 3, 5)) == (-3, 5, "a")


def test_only_two_reasons_change_the_time_that_a_workload_waits_from() -> None:
    for reason, requeuing, at_s in (
        ("AdmissionCheck", "Creation", 9),
        ("Aardvark", "Eviction", 1),
        ("PodsReadyTimeout", "Eviction", 9),
        ("PodsReadyTimeout", "Creation", 1),
        ("Preempted", "Eviction", 1),
    ):
        assert queue_time_s(Queued("a", 0, 1, Condition(reason, 9)), requeuing) == at_s
