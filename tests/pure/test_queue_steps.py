"""What is due for an object of the queue: the mark on it keeps an admission from being acted on twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slacktide.agents.cluster.queue.job import JOB, ORIGINAL, Job
from slacktide.agents.cluster.queue.known import SOURCE, Known, Place
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.steps import Answer, Look, due
from slacktide.agents.cluster.queue.work import MARK, Write, merged
from slacktide.schemas.codec import decode
from slacktide.schemas.queue import QueueBooking, QueuePodSet, QueueState, QueueWorkload
from slacktide.schemas.queue_objects import Metadata, ResourceFlavorObject, ResourceFlavorSpec, Toleration
from slacktide.streams.records import Record

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


def marked(result: str, turn: int = 3) -> dict[str, str]:
    return {MARK: f"7/{turn} {result}"}


def step(given: Json, of: QueueState | None) -> Any:
    return due(job(given), of, FLAVORS)


def test_an_admitted_job_starts_on_its_flavors_nodes_and_is_marked() -> None:
    found = step(raw(), state(of=booking()))
    after = patched(raw(), found.body)
    assert found.what == "start"
    assert after["metadata"]["annotations"][MARK] == "7/3 started"
    assert after["spec"]["suspend"] is False
    pods = after["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"kind": "spot"}
    assert pods["spec"]["tolerations"] == [OWN, {"key": "spot", "operator": "Exists"}]
    assert pods["metadata"]["labels"] == {
        "kueue.x-k8s.io/podset": "main",
        "kueue.x-k8s.io/local-queue-name": "gpu",
        "kueue.x-k8s.io/cluster-queue-name": "research",
    }
    assert step(after, state(of=booking())) == Answer(booking(), "started")
    assert step(after, state(of=booking(), started=True)) is None


def test_a_started_job_asks_for_what_it_asked_for_before() -> None:
    before = raw()
    after = patched(before, step(before, state(of=booking())).body)
    assert job(after).pod_sets == job(before).pod_sets


def test_a_stopped_job_comes_back_as_it_was_queued() -> None:
    running = patched(raw(), step(raw(), state(of=booking())).body)
    running["status"]["startTime"] = "2026-03-01T12:00:00Z"
    evicting = state("evicting", booking(), started=True)
    stop = step(running, evicting)
    stopped = patched(running, stop.body)
    assert (stop.what, stopped["spec"]["suspend"]) == ("stop", True)
    assert step(stopped, evicting) == Look(booking()), "its pods may still run"
    waits = state("pending")
    reset = step(stopped, waits)
    assert (reset.what, reset.sub) == ("reset", "status")
    bare = patched(stopped, reset.body)
    restore = step(bare, waits)
    restored = patched(bare, restore.body)
    assert restore.what == "restore"
    assert ORIGINAL not in restored["metadata"]["annotations"]
    assert restored["spec"]["template"]["spec"] == raw()["spec"]["template"]["spec"] | {"nodeSelector": {}}
    assert step(restored, waits) is None


@pytest.mark.parametrize("result", ["stopped", "conflict", "refused"])
def test_an_admission_that_was_answered_for_good_is_never_started(result: str) -> None:
    found = step(raw(marked(result)), state(of=booking()))
    assert found == (Look(booking()) if result == "stopped" else Answer(booking(), result))


def test_an_old_state_changes_nothing() -> None:
    for phase in ("reserved", "evicting"):
        assert step(raw(marked("started", turn=4), suspend=False), state(phase, booking())) is None


@pytest.mark.parametrize("known", [state("pending"), None, state(of=booking())])
def test_a_job_that_runs_without_an_admission_is_suspended_first(known: QueueState | None) -> None:
    found = step(raw(suspend=False), known)
    assert (found.what, found.body) == ("suspend", {"spec": {"suspend": True}})


def test_what_was_started_runs_on_where_the_decider_knows_nothing_of_it() -> None:
    assert step(raw(marked("started"), suspend=False), None) is None
    assert step(raw(marked("started"), suspend=False), state("pending")).what == "suspend"


def test_a_job_that_grows_beyond_its_admission_is_stopped() -> None:
    found = step(raw(marked("started"), suspend=False, parallelism=3), state(of=booking(), started=True))
    assert (found.what, found.body["metadata"]["annotations"]) == ("stop", marked("stopped"))
    found = step(raw(parallelism=3), state(of=booking()))
    assert (found.what, found.why) == ("refuse", "it has more pods than were admitted: main")


def test_a_job_whose_template_names_other_nodes_is_not_started() -> None:
    given = raw()
    given["spec"]["template"]["spec"]["nodeSelector"] = {"kind": "dear"}
    found = step(given, state(of=booking()))
    assert found == Write(
        "refuse",
        {"metadata": {"annotations": marked("conflict")}},
        why="node_selector: kind is 'dear', not 'spot'",
    )
    missing = due(job(raw()), state(of=booking()), {})
    assert isinstance(missing, Write)
    assert missing.why == "ResourceFlavor spot does not exist"


def test_a_partly_admitted_job_runs_fewer_pods_and_asks_for_all_again() -> None:
    least = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    running = patched(raw(least), step(raw(least), state(of=booking(count=1))).body)
    assert running["spec"]["parallelism"] == 1
    assert [one.count for one in job(running).pod_sets] == [2]
    back = patched(running, {"spec": {"suspend": True}})
    restored = patched(back, step(back, state("pending")).body)
    assert restored["spec"]["parallelism"] == 2


def test_pods_that_become_ready_and_are_not_any_more_are_answered_once() -> None:
    running = raw(marked("started"), suspend=False)
    ready = running | {"status": {"ready": 1, "succeeded": 1}}
    assert step(running, state(of=booking(), started=True)) is None
    assert step(ready, state(of=booking(), started=True)) == Answer(booking(), "ready")
    for reason in ("Started", "Recovered"):
        assert step(ready, state(of=booking(), started=True, ready_reason=reason)) is None
        assert step(running, state(of=booking(), started=True, ready_reason=reason)) == Answer(booking(), "unready")
    waits = state(of=booking(), started=True, ready_reason="WaitForRecovery")
    assert step(ready, waits) == Answer(booking(), "ready")
    assert step(running, waits) is None


def test_a_job_whose_pods_were_too_often_not_ready_is_taken_out_of_the_queue() -> None:
    limit = state("pending", reason="RequeuingLimitExceeded")
    found = step(raw(), limit)
    assert found.body == {"metadata": {"annotations": {"slacktide.io/queue-active": "false"}}}
    assert step(patched(raw(), found.body), limit) is None


def test_a_finished_job_gives_its_quota_back() -> None:
    done = raw(marked("started"), conditions=("Complete",), suspend=False)
    assert step(done, state(of=booking())) == Answer(booking(), "finished")
    assert step(done, state("finished")) is None


def put(source: Source, given: Json) -> None:
    source.put(JOB, msgspec.Raw(msgspec.json.encode(given)))


def test_a_job_that_cannot_be_read_costs_itself_only_and_an_old_version_nothing() -> None:
    known = Known()
    source = Source(known, (JOB,))
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
    assert not Source(Known(), (JOB,)).listed
