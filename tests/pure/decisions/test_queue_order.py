"""Which workload of a ClusterQueue is next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.queue_order import (
    Condition,
    Queued,
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


@given(QUEUED, QUEUED, st.integers(-2, 2))
def test_a_higher_sub_priority_goes_first_among_equal_priorities_alone(first, second, sub) -> None:
    above = second.sub_priority + 1
    equal = first._replace(priority=second.priority, sub_priority=above)
    higher = second._replace(priority=(first.priority or 0) + 1, sub_priority=sub)

    assert place(equal) < place(second)
    assert place(higher) < place(first._replace(sub_priority=9))


def test_a_condition_holds_unless_it_is_stated_otherwise() -> None:
    assert Condition("Preempted", 0).status
    assert place(Queued("a", 3, 5)) == (-3, 0, 5, "a")


@pytest.mark.parametrize(
    ("reason", "requeuing", "status", "since_s"),
    [
        ("PodsReadyTimeout", "Eviction", True, 9),
        ("PodsReadyTimeout", "Creation", True, 1),
        ("AdmissionCheck", "Creation", True, 9),
        ("AdmissionCheck", "Eviction", False, 1),
        ("Preempted", "Eviction", True, 1),
        ("Aardvark", "Eviction", True, 1),
    ],
)
def test_only_two_evictions_set_a_workload_back(reason, requeuing, status, since_s) -> None:
    assert queue_time_s(Queued("a", None, 1, Condition(reason, 9, status)), requeuing) == since_s
