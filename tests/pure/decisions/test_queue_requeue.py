"""The workloads that wait in one ClusterQueue."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.queue_order import Pending, PendingQueue, Queued

REASONS = ["", "NoFit", "PreemptionNoCandidates", "PendingPreemption", "FailedAfterNomination", "NamespaceMismatch"]
STRATEGIES = st.sampled_from(["BestEffortFIFO", "StrictFIFO"])


def pending(uid: str, priority: int = 0, **more) -> Pending:
    return Pending(queued=Queued(uid, priority, 0), generation=1, **more)


def anew(text: str) -> str:
    """The same text, read again."""
    return text.encode().decode()


UIDS = st.sampled_from("abcd")
EVENTS = st.lists(
    st.tuples(st.just("push"), UIDS, st.integers(0, 2))
    | st.tuples(st.just("requeue"), UIDS, st.sampled_from(REASONS))
    | st.tuples(st.sampled_from(["pop", "retry"]))
    | st.tuples(st.just("delete"), UIDS),
    max_size=25,
)


def play(queue: PendingQueue, events) -> None:
    for kind, *rest in events:
        if kind == "push":
            queue.push(pending(rest[0], rest[1]), 0)
        elif kind == "requeue":
            queue.requeue(pending(rest[0]), rest[1], 0)
        elif kind == "delete":
            queue.delete(rest[0])
        else:
            queue.pop() if kind == "pop" else queue.retry(0)


@given(STRATEGIES, EVENTS)
def test_a_workload_waits_in_one_place_at_a_time(strategy, events) -> None:
    queue = PendingQueue(strategy)
    play(queue, events)
    waiting = [one.uid for one in (*queue.active, *queue.inadmissible)]

    assert sorted(waiting) == sorted(set(waiting))


@given(STRATEGIES, EVENTS)
def test_what_is_popped_is_the_first_of_the_active_ones(strategy, events) -> None:
    queue = PendingQueue(strategy)
    play(queue, events)
    active = queue.active

    assert queue.pop() == (active[0] if active else None)
    assert queue.active == active[1:]


@given(STRATEGIES, EVENTS)
def test_a_retry_leaves_nothing_aside_that_may_be_tried(strategy, events) -> None:
    queue = PendingQueue(strategy)
    play(queue, events)
    aside = len(queue.inadmissible)

    assert queue.retry(0) == aside
    assert not queue.inadmissible


@given(STRATEGIES, EVENTS, UIDS)
def test_a_workload_that_is_gone_waits_nowhere(strategy, events, uid) -> None:
    queue = PendingQueue(strategy)
    play(queue, events)
    queue.delete(uid)

    assert uid not in {one.uid for one in (*queue.active, *queue.inadmissible)}


def test_a_workload_is_the_same_by_its_uid_wherever_that_was_read() -> None:
    queue = PendingQueue()
    for back in ("tried", "gone"):
        queue.push(pending("w1"), 0)
        assert queue.pop() is not None
        again = pending(anew("w1"), requeue_at_s=9)
        if back == "tried":
            assert queue.requeue(again, anew("ExceedsMaxQuota"), 0), "it waits anew"
            assert queue.retry(9) == 0, "until quotas change"
        else:
            queue.delete(again.uid)
        queue.push(again._replace(pod_sets="other"), 9)
        assert [one.uid for one in queue.active] == ["w1"], "it is in flight no more"
        queue.delete("w1")
