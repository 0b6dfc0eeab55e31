"""What is due for an object of the queue: the mark on it keeps an admission from being acted on twice."""

from typing import Any

import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.queue.actuator import Actuator
from slacktide.agents.cluster.queue.job import JOB, Job
from slacktide.agents.cluster.queue.known import SOURCE, Known, Place
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.work import Answer, due, merged
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import LogError
from slacktide.schemas.queue import QueueBooking, QueueOutcome, QueuePodSet, QueueState, QueueWorkload
from slacktide.schemas.queue_objects import Metadata, ResourceFlavorObject, ResourceFlavorSpec, Toleration
from slacktide.streams.records import Record
from testbed.scenarios import plain, scenarios

Json = dict[str, Any]
SPOT = ResourceFlavorObject(
    metadata=Metadata(name="spot"),
    spec=ResourceFlavorSpec(node_labels={"kind": "spot"}, tolerations=[Toleration(key="spot", operator="Exists")]),
)
FLAVORS = {"spot": SPOT}
OWN = {"key": "own", "operator": "Exists", "tolerationSeconds": 30}


def booking(turn: int = 3, count: int = 2, epoch: int = 7) -> QueueBooking:
    main = QueuePodSet(name="main", count=count, flavors={"cpu": "spot"}, usage={"cpu": 1_000})
    return QueueBooking(epoch=epoch, turn=turn, cluster_queue="research", reserved_ms=0, pod_sets=[main])


def state(phase: Any = "reserved", of: QueueBooking | None = None, **more: Any) -> QueueState:
    return QueueState(uid="u1", phase=phase, epoch=7, turn=9, booking=of, **more)


def raw(
    annotations: dict[str, str] | None = None, *, conditions: tuple[str, ...] = (), started: bool = False, **spec: Any
) -> Json:
    """A Job as the API server has it."""
    template = {"spec": {"containers": [{"name": "main"}], "tolerations": [OWN]}}
    status: Json = {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    return {
        "metadata": {
            "name": "train",
            "namespace": "lab",
            "uid": "u1",
            "resourceVersion": "12",
            "labels": {"kueue.x-k8s.io/queue-name": "gpu"},
            "annotations": annotations or {},
        },
        "spec": {"suspend": True, "parallelism": 2, "template": template, **spec},
        "status": status | ({"startTime": "2026-03-01T12:00:00Z"} if started else {}),
    }


def job(given: Json) -> Job:
    return Job(msgspec.Raw(msgspec.json.encode(given)))


def patched(given: Json, body: Json) -> Json:
    """As a merge patch leaves it."""
    return _pruned(merged(given, body))


def _pruned(given: Json) -> Json:
    return {key: _pruned(one) if isinstance(one, dict) else one for key, one in given.items() if one is not None}


def step(given: Json, of: QueueState | None) -> Any:
    return due(job(given), of, FLAVORS)


def test_a_started_job_asks_for_what_it_asked_for_before() -> None:
    before = raw()
    after = patched(before, step(before, state(of=booking())).body)
    assert job(after).pod_sets == job(before).pod_sets


def test_a_partly_admitted_job_runs_fewer_pods_and_asks_for_all_again() -> None:
    least = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    running = patched(raw(least), step(raw(least), state(of=booking(count=1))).body)
    assert running["spec"]["parallelism"] == 1
    assert [one.count for one in job(running).pod_sets] == [2]
    back = patched(running, {"spec": {"suspend": True}})
    restored = patched(back, step(back, state("pending")).body)
    assert restored["spec"]["parallelism"] == 2


@scenarios("queue_steps")
def test_queue_steps(case: dict[str, Any]) -> None:
    """A Job as the API server has it, the queue's state of it, and the step that is due."""
    state = msgspec.convert(case["state"], QueueState) if "state" in case else None
    found = due(job(case["job"]), state, FLAVORS if case.get("flavors", True) else {})

    assert (found and plain([type(found).__name__, *found])) == case["gives"]


def put(source: Source, given: Json) -> None:
    source.put(JOB, msgspec.Raw(msgspec.json.encode(given)))


def test_a_job_that_cannot_be_read_costs_itself_only_and_an_old_version_nothing() -> None:
    known = Known()
    source = Source(known)
    put(source, raw())
    [(place, value)] = known.pending(9)
    assert (place.key, b'"parallelism"' in value) == ("u1", False)
    bad = raw(parallelism="many")
    put(source, bad | {"metadata": bad["metadata"] | {"resourceVersion": "13"}})
    old = raw(parallelism=5)
    put(source, old | {"metadata": old["metadata"] | {"resourceVersion": "9"}})
    assert known.pending(9) == [(place, value)]
    more = raw({"slacktide.io/queue-active": "false"}, parallelism=5)
    put(source, more | {"metadata": more["metadata"] | {"resourceVersion": "14"}})
    [(_, value)] = known.pending(9)
    found = decode(value, QueueWorkload).workload.spec
    assert (found.pod_sets[0].count, found.active) == (5, False)


def record(key: str, value: bytes | None, offset: int, source: str = SOURCE) -> Record:
    return Record(topic="t", partition=0, offset=offset, timestamp_ms=0, key=key.encode(), value=value,
                  headers=[("ce_source", source.encode())])  # fmt: skip


def test_only_differences_are_written_and_only_what_was_written_here_is_deleted() -> None:
    known = Known()
    known.begin()
    for number, one in enumerate(("same", "other", "gone")):
        known.read(record(one, b"1", number))
    known.read(record("by-hand", b"1", 3, "queue/publish"))
    known.want(Place("t", "same"), b"1")
    known.want(Place("t", "other"), b"2")
    known.want(Place("t", "new"), b"3")
    assert {place.key for place, _ in known.pending(9)} == {"other", "new"}
    known.complete()
    assert {(place.key, value) for place, value in known.pending(9)} == {("other", b"2"), ("new", b"3"), ("gone", None)}
    for number, (place, value) in enumerate(known.pending(9)):
        known.wrote(place, value, 4 + number)
    assert known.pending(9) == []


def test_a_late_writers_record_is_put_right() -> None:
    known = Known()
    known.begin()
    known.want(Place("t", "a"), b"new")
    known.wrote(Place("t", "a"), b"new", 5)
    known.read(record("a", b"older", 4))
    assert known.pending(9) == []
    known.read(record("a", b"late", 6))
    assert known.pending(9) == [(Place("t", "a"), b"new")]


def test_nothing_is_listed_before_it_was_asked_for() -> None:
    """Else a bridge that reads Kafka first would delete all that its predecessor published, with its quota."""
    assert not Source(Known()).listed


def test_an_answer_quotes_a_bounded_part_of_what_a_user_wrote() -> None:
    """A record with the whole of it, escaped, is larger than Kafka accepts: the workload would hold its quota."""
    actuator = Actuator(Source(Known()), lambda _: None, SystemClock())
    booking = QueueBooking(epoch=7, turn=3, cluster_queue="a", reserved_ms=0, pod_sets=[])
    outcome = actuator._outcome("u1", Answer(booking, "conflict", repr("\x01" * 250_000)))
    assert outcome is not None
    assert len(encode(outcome)) < 10_000


async def test_an_error_is_over_once_answers_are_published() -> None:
    errors = [LogError("kafka-1:9092: Connection refused")]

    async def answer(_: object) -> None:
        if errors:
            raise errors.pop()

    actuator = Actuator(Source(Known()), answer, SystemClock())
    outcomes = [QueueOutcome(uid="u1", result="started", epoch=7, turn=3)]
    await actuator._send(outcomes)
    assert actuator.trouble == "kafka-1:9092: Connection refused"
    await actuator._send(outcomes)
    assert actuator.trouble == ""
