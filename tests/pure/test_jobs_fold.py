"""A Job's status follows from its pods' events as the Job controller's does, whatever is killed when."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.bounds import AMOUNT_MAX, INT64_MAX
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.job_pod import JobCondition, JobEvent, JobEviction, JobSpec
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.topics import DEAD_LETTER, JOB_STATUS
from slacktide.streams.decisions.job_end import index_text, indexes_of
from slacktide.streams.jobs.fold import JobFold
from slacktide.streams.jobs.folder import Folder
from slacktide.streams.records import Record
from testbed.job_events import SLIDE, KilledWorker, event, folded, pod, records
from testbed.scenarios import run, scenarios


class Fold:
    """One Job's events, one after the other."""

    def __init__(self) -> None:
        self._fold, self._taken = JobFold(), 0

    def event(self, at_ms: int = 0, **of: Any) -> None:
        known = {"uid": "j", "namespace": "jobs", "name": "j", "observed_ms": at_ms}
        self._fold.take(msgspec.convert(known | of, JobEvent), self._taken)
        self._taken += 1

    def spec(self, **spec: Any) -> None:
        self.event(spec=spec)

    def pod(self, *, name: str, at_ms: int = 0, **facts: Any) -> None:
        self.event(at_ms, pod={"uid": f"uid-{name}", "name": name, "tracked": True} | facts)

    def status(self) -> dict[str, Any]:
        found = msgspec.to_builtins(self._fold.status())
        return {key: value for key, value in found.items() if key not in {"uid", "namespace", "name", "spec"}}


def test_neighbours_are_written_as_kubernetes_writes_them():
    assert index_text({0, 1, 3, 5, 6, 7}) == "0,1,3,5-7"
    assert indexes_of("0,1,3,5-7,x,9-", 7) == {0, 1, 3, 5, 6}


def test_progress_keeps_its_first_and_last_point_in_a_bounded_list():
    fold = JobFold()
    fold.take(event(spec=JobSpec(completions=500)), 0)
    for number in range(1, 501):
        fold.take(event(pod=pod(f"p{number}", "Succeeded"), at=number * 2_000), number)
    points = fold.status().progress
    assert len(points) <= 64
    assert (points[0].succeeded, points[-1].succeeded) == (0, 500)


def test_requests_beyond_reason_leave_a_status_that_can_be_read():
    """A tenant's 10,000 pods that ask for all a record holds, and are refused by their node."""
    fold = JobFold()
    fold.take(event(spec=JobSpec(parallelism=10_000, backoff_limit=2**31 - 1)), 0)
    for number in range(1, 10_001):
        failed = pod(f"p{number}", "Failed", cpu_milli=AMOUNT_MAX, started_ms=1)
        fold.take(event(pod=failed, at=60_000), number)
    status = fold.status()
    assert decode(encode(status), JobStatus).lost_core_ms == INT64_MAX


def test_a_status_that_cannot_be_computed_costs_its_job_alone():
    strange = folded(JobSpec(completions=3), job="strange")
    decided = JobCondition(type="Unheard", status="True")
    value = encode(msgspec.structs.replace(strange, decided=decided, folded_to=-1))
    known = Record(topic=JOB_STATUS.name, partition=0, offset=0, timestamp_ms=0, key=b"strange", value=value)
    folder = Folder(0, [known])
    folder.take(records([event(job=name, spec=JobSpec(completions=3), at=1) for name in ("good", "strange")]), 0)
    outs = {out.topic: out.key for out in folder.due(5)}
    assert outs == {JOB_STATUS.name: b"good", DEAD_LETTER.name: b"strange"}


LIVES = [
    ["Pending", "Running", "Succeeded"],
    ["Pending", "Failed"],
    ["Running", "deleting", "Failed"],
    ["Pending", "Running"],
    ["Running", "evicted"],
]


@st.composite
def histories(draw: st.DrawFn):
    """Two Jobs' events in an order that keeps each pod's own."""
    left: list[list] = []
    for job in ("j", "k"):
        limit = draw(st.sampled_from([None, 0, 1]))
        spec = JobSpec(
            completions=6, indexed=True, backoff_limit=99, backoff_limit_per_index=limit, failure_rules=SLIDE
        )
        left.append([{"job": job, "spec": spec}])
        for number, life in enumerate(draw(st.lists(st.sampled_from(LIVES), max_size=6))):
            code = draw(st.sampled_from([3, 137]))
            left.append([{"job": job, "pod": _step(f"{job}{number}", number, step, code)} for step in life])
            if life[-1] == "Succeeded":
                last = msgspec.structs.replace(left[-1][-1]["pod"], last=True)
                left[-1].append({"job": job, "pod": last})
    return left


def _step(name: str, index: int, step: str, code: int):
    if step == "evicted":
        eviction = JobEviction(node="n", rule="BECPUEvict", acted_ms=1)
        return pod(name, "Failed", index=index, pod_conditions={"DisruptionTarget": "True"}, eviction=eviction)
    if step == "deleting":
        return pod(name, "Running", index=index, deleting=True)
    return pod(name, step, index=index, code=code if step == "Failed" else None, ready=step == "Running")


def _interleaved(lives, choose) -> list:
    left = [list(life) for life in lives if "pod" in life[0]]
    events = [event(at=0, **life[0]) for life in lives if "spec" in life[0]]
    while left:
        life = left[choose(len(left))]
        events.append(event(at=len(events) * 1_000, **life.pop(0)))
        left = [one for one in left if one]
    return events


def _timeless(statuses):
    """What does not depend on the order of different pods."""
    untimed = {"observed_ms": 0, "recent": [], "progress": [], "evicted": []}
    return {uid: msgspec.structs.replace(status, **untimed) for uid, status in statuses.items()}


@given(histories(), st.data())
def test_any_order_that_keeps_each_pods_own_comes_to_the_same(lives, data):
    one = KilledWorker(records(_interleaved(lives, lambda many: 0))).final()
    other = KilledWorker(records(_interleaved(lives, lambda many: data.draw(st.integers(0, many - 1))))).final()
    assert _timeless(one) == _timeless(other)


@given(histories(), st.data())
def test_killed_anywhere_the_statuses_come_to_the_same(lives, data):
    log = records(_interleaved(lives, lambda many: data.draw(st.integers(0, many - 1))))
    whole = KilledWorker(log).final()
    worker = KilledWorker(log)
    acts = data.draw(st.lists(st.sampled_from(["fold", "publish", "publish only", "kill"]), max_size=30))
    for act in acts:
        if act == "fold":
            worker.fold(data.draw(st.integers(1, 5)))
        elif act == "kill":
            worker.start()
        else:
            worker.publish(commit=act == "publish")
    assert worker.final() == whole


@given(histories(), st.data())
def test_events_that_are_named_again_change_nothing(lives, data):
    events = _interleaved(lives, lambda many: data.draw(st.integers(0, many - 1)))
    repeated, last = [], {}
    for one in events:
        repeated.append(one)
        if one.pod is not None and not one.pod.last:
            last[one.pod.uid] = one
        elif one.pod is not None:
            last.pop(one.pod.uid, None)
        if last and data.draw(st.booleans()):
            repeated.append(last[data.draw(st.sampled_from(sorted(last)))])
    assert _timeless(KilledWorker(records(events)).final()) == _timeless(KilledWorker(records(repeated)).final())


@scenarios("jobs_fold")
def test_jobs_fold(case: dict[str, Any]) -> None:
    run(case, Fold)
