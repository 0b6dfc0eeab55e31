"""The workloads that wait in one ClusterQueue."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.streams.decisions.queue.queue_order import EXCEEDS_MAX_QUOTA, Condition, Pending, PendingQueue, Queued

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


def test_what_waits_for_a_backoff_is_not_tried_before_its_end() -> None:
    queue = PendingQueue()
    queue.push(pending("a", requeue_at_s=10), 9)
    queue.push(pending("b", requeued=Condition("PodsReadyTimeout", 1, status=False)), 9)

    assert (queue.retry(9), queue.retry(10)) == (0, 1)
    assert [one.uid for one in queue.active] == ["a"]


def test_what_does_not_fit_takes_all_of_its_shape_aside_unless_the_order_is_strict() -> None:
    left = {}
    for strategy in ("BestEffortFIFO", "StrictFIFO"):
        queue = PendingQueue(strategy)
        for uid in "abc":
            queue.push(pending(uid, priority=uid == "c"), 0)
        queue.delete("c")
        queue.push(pending("c", pod_sets="other"), 0)
        first = queue.pop()
        assert first is not None
        queue.requeue(first, "NoFit", 0)
        left[strategy] = [one.uid for one in queue.active]

    assert left == {"BestEffortFIFO": ["c"], "StrictFIFO": ["a", "b", "c"]}


def test_what_exceeds_the_quota_is_tried_again_once_it_changed_also_behind_a_backoff() -> None:
    left = {}
    for shape in ("same", "other"):
        queue = PendingQueue()
        queue.push(pending("a", pod_sets="same", requeue_at_s=0), 0)
        first = queue.pop()
        assert first is not None
        queue.requeue(first, EXCEEDS_MAX_QUOTA, 0)
        queue.push(pending("a", pod_sets=shape, requeue_at_s=10), 0)
        left[shape] = queue.retry(10)

    assert left == {"same": 0, "other": 1}


def test_all_that_wait_count_whether_they_may_be_tried_or_not() -> None:
    queue = PendingQueue()
    for uid, at_s in (("a", 0), ("b", 0), ("c", 9)):
        queue.push(pending(uid, requeue_at_s=at_s), 0)

    assert (len(queue), len(queue.active), len(queue.inadmissible)) == (3, 2, 1)


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


def test_a_retry_while_a_workload_is_tried_brings_it_back_and_one_before_does_not() -> None:
    queue = PendingQueue()
    left = []
    for retries in ((), ("before",), ("while",), ("while", "while"), ("before", "while"), ()):
        queue.push(pending("a", pod_sets=len(left)), 0)
        queue.retry(0) if "before" in retries else None
        one = queue.pop()
        assert one is not None
        [queue.retry(0) for each in retries if each == "while"]
        queue.requeue(one, "NoFit", 0)
        left.append(queue.is_active("a"))

    assert left == [False, False, True, True, True, False]


def test_a_workload_that_changes_moves_to_its_new_place() -> None:
    queue = PendingQueue()
    for uid, priority in (("a", 1), ("b", 2), ("c", 3), ("a", 4), ("c", 0), ("b", 2)):
        queue.push(pending(uid, priority), 0)

    assert [one.uid for one in queue.active] == ["a", "b", "c"]
    queue.delete("b")
    assert [queue.pop(), queue.pop(), queue.pop()] == [pending("a", 4), pending("c", 0), None]


def test_no_priority_is_of_the_shape_of_priority_0_alone() -> None:
    queue = PendingQueue()
    queue.push(Pending(Queued("none", None, 0)), 0)
    first = queue.pop()
    assert first is not None
    queue.requeue(first, "NoFit", 0)
    for uid, priority in (("zero", 0), ("below", -1), ("above", 1)):
        queue.push(Pending(Queued(uid, priority, 0)), 0)

    assert [one.uid for one in queue.active] == ["above", "below"]


def test_a_workload_that_is_not_there_is_refused_with_what_is_accepted() -> None:
    case = '{"name": "a", "input": {"workloads": [{"name": "w"}], "events": [{"type": "delete", "workload": "x"}]}}'

    assert b"input.events[0].workload: x: accepted: w" in Calculation("queue_requeue").answer(case).line
