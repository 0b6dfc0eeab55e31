"""A Job's status follows from its pods' events as the Job controller's does, whatever is killed when."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.schemas.job_pod import ControllerStatus, FailureRule, JobEviction, JobSpec, SuccessRule
from slacktide.streams.decisions.jobs.job_end import index_text, indexes_of
from slacktide.streams.jobs.fold import JobFold
from testbed.job_events import SLIDE, KilledWorker, by_rule, by_type, event, folded, pod, records

INDEXED = JobSpec(completions=100, parallelism=10, indexed=True)


def test_the_indexed_job_of_the_talk():
    done = [pod(f"j-{index}", "Succeeded", index=index) for index in range(10)]
    running = [pod(f"j-{index}", index=index, ready=index < 12) for index in range(10, 20)]
    status = folded(INDEXED, *done, *running)
    assert (status.active, status.ready, status.succeeded, status.completed_indexes) == (10, 2, 10, "0-9")


def test_neighbours_are_written_as_kubernetes_writes_them():
    assert index_text({0, 1, 3, 5, 6, 7}) == "0,1,3,5-7"
    assert indexes_of("0,1,3,5-7,x,9-", 7) == {0, 1, 3, 5, 6}


@pytest.mark.parametrize(
    ("conditions", "code", "why", "failed", "ends"),
    [
        ({"ConfigIssue": "True"}, None, "rule 0: FailJob", 1, True),
        ({"DisruptionTarget": "True"}, 139, "rule 1: Ignore", 0, False),
        ({"DisruptionTarget": "False"}, 139, "rule 2: FailJob", 1, True),
        ({}, 1, "rule 2: FailJob", 1, True),
        ({}, 137, "rule 3: Ignore", 0, False),
        ({}, 3, "exit code 3", 1, False),
        ({}, None, "no exit code", 1, False),
    ],
)
def test_the_first_rule_of_the_policy_that_matches_decides(conditions, code, why, failed, ends):
    spec = JobSpec(completions=2, failure_rules=SLIDE, replaces_failed_only=True)
    status = folded(spec, pod("a", "Failed", pod_conditions=conditions, code=code))
    assert (by_rule(status), status.failed) == ({why: 1}, failed)
    assert (by_type(status).get("Failed") == ("True", "PodFailurePolicy")) is ends


def test_the_seventh_failure_passes_a_backoff_limit_of_six():
    failures = [pod(f"a{number}", "Failed", code=3) for number in range(7)]
    assert by_type(folded(JobSpec(completions=1), *failures[:6])) == {}
    reason = ("True", "BackoffLimitExceeded")
    assert by_type(folded(JobSpec(completions=1), *failures)) == {"FailureTarget": reason, "Failed": reason}


def test_a_bad_index_fails_alone_and_the_job_when_all_others_are_done():
    rules = [FailureRule(action="FailIndex", operator="In", values=[42])]
    spec = JobSpec(completions=3, indexed=True, backoff_limit=2**31 - 1, backoff_limit_per_index=1, failure_rules=rules)
    first = pod("a", "Failed", index=0, code=1)
    again = pod("b", "Failed", index=0, code=1, index_failures=1)
    assert folded(spec, first).failed_indexes == ""
    assert folded(spec, first, again).failed_indexes == "0"
    at_once = pod("c", "Failed", index=2, code=42)
    status = folded(spec, first, again, at_once, pod("d", "Succeeded", index=1))
    assert (status.failed_indexes, status.failed) == ("0,2", 3)
    assert by_type(status)["Failed"] == ("True", "FailedIndexes")
    most = msgspec.structs.replace(spec, max_failed_indexes=1)
    assert by_type(folded(most, first, again, at_once))["Failed"] == ("True", "MaxFailedIndexesExceeded")


def test_a_success_policy_ends_the_job_and_counts_no_leftover_as_failed():
    spec = JobSpec(completions=5, indexed=True, success_rules=[SuccessRule(indexes="0,2-3", count=2)])
    left = pod("l", index=1)
    done = [pod("a", "Succeeded", index=2), pod("b", "Succeeded", index=0)]
    gone = msgspec.structs.replace(left, deleting=True, last=True)
    status = folded(spec, left, *done, gone)
    assert by_type(status)["Complete"] == ("True", "SuccessPolicy")
    assert (status.succeeded, status.failed, status.active) == (2, 0, 0)


def test_a_dying_pod_fails_at_once_or_only_at_its_end_as_the_policy_has_it():
    dying = pod("a", deleting=True)
    assert folded(JobSpec(completions=1), dying).failed == 1
    status = folded(JobSpec(completions=1, replaces_failed_only=True), dying)
    assert (status.failed, status.active, status.terminating) == (0, 0, 1)


def test_pods_that_a_failed_job_takes_along_count_as_failed():
    spec = JobSpec(completions=3, parallelism=3, failure_rules=SLIDE, replaces_failed_only=True)
    others = [pod("b"), pod("c")]
    dying = [msgspec.structs.replace(one, deleting=True) for one in others]
    status = folded(spec, *others, pod("a", "Failed", code=1), *dying)
    assert status.failed == 3
    assert set(by_type(status)) == {"FailureTarget"}
    gone = [msgspec.structs.replace(one, phase="Failed", last=True) for one in dying]
    assert set(by_type(folded(spec, *others, pod("a", "Failed", code=1), *dying, *gone))) == {"FailureTarget", "Failed"}


def test_a_suspended_job_counts_its_deleted_pods_as_nothing():
    fold = JobFold()
    running = pod("a")
    freed = msgspec.structs.replace(running, tracked=False)
    deleted = msgspec.structs.replace(freed, deleting=True)
    fold.take(event(spec=JobSpec(completions=1)), 0)
    for offset, one in enumerate((running, freed, deleted, msgspec.structs.replace(deleted, last=True)), 1):
        fold.take(event(pod=one), offset)
    fold.take(event(spec=JobSpec(completions=1, suspend=True)), 9)
    assert (fold.status().failed, fold.status().active) == (0, 0)
    assert by_type(fold.status()) == {"Suspended": ("True", "JobSuspended")}
    fold.take(event(spec=JobSpec(completions=1)), 10)
    assert by_type(fold.status()) == {"Suspended": ("False", "JobResumed")}


def test_an_elastic_job_that_shrinks_loses_the_indexes_above():
    fold = JobFold()
    fold.take(event(spec=JobSpec(completions=100, parallelism=100, indexed=True)), 0)
    for index in range(85, 100):
        fold.take(event(pod=pod(f"p{index}", "Succeeded", index=index)), index)
    fold.take(event(spec=JobSpec(completions=90, parallelism=90, indexed=True)), 100)
    assert (fold.status().succeeded, fold.status().completed_indexes) == (5, "85-89")


def test_restarts_count_towards_the_limit_where_pods_restart():
    spec = JobSpec(completions=1, backoff_limit=3, restarts_on_failure=True)
    assert by_type(folded(spec, pod("a", restarts=2))) == {}
    assert by_type(folded(spec, pod("a", restarts=3)))["FailureTarget"] == ("True", "BackoffLimitExceeded")


def test_a_pod_without_the_finalizer_was_counted_before():
    released = msgspec.structs.replace(pod("a", "Succeeded"), tracked=False, last=True)
    assert folded(JobSpec(completions=2), released).succeeded == 0


def test_what_only_the_controller_saw_is_counted_and_named():
    fold = JobFold()
    counted = ControllerStatus(succeeded=3, failed=2, completed_indexes="0-2")
    fold.take(event(spec=INDEXED, counted=counted), 0)
    fold.take(event(pod=pod("a", "Succeeded", index=1)), 1)
    status = fold.status()
    assert (status.succeeded, status.unseen_succeeded, status.unseen_indexes) == (3, 2, "0,2")
    assert (status.failed, status.unseen_failed) == (2, 2)


def test_an_eviction_counts_once_with_its_threshold():
    eviction = JobEviction(node="n", rule="BECPUEvict", threshold="be_usage 95 of 90 %", acted_ms=5)
    evicted = pod("a", "Failed", pod_conditions={"DisruptionTarget": "True"}, eviction=eviction)
    status = folded(JobSpec(completions=2, failure_rules=SLIDE), pod("a"), evicted, evicted)
    assert (status.evictions, status.failed) == (1, 0)
    assert status.evicted[0].eviction.threshold == "be_usage 95 of 90 %"


def test_cpu_requested_while_a_lost_pod_ran_is_lost():
    ran = pod("a", "Failed", code=3, cpu_milli=1_500, started_ms=10_000, ended_ms=30_000)
    done = pod("b", "Succeeded", cpu_milli=1_500, started_ms=10_000, ended_ms=30_000)
    assert folded(JobSpec(completions=2), ran, done).lost_core_ms == 30_000


def test_a_new_bridge_names_all_pods_and_the_others_are_gone():
    fold = JobFold()
    fold.take(event(spec=JobSpec(completions=3)), 0)
    for offset, name in enumerate("ab", 1):
        fold.take(event(pod=pod(name), writer_epoch=1), offset)
    fold.take(event(pod=pod("b"), writer_epoch=2), 3)
    fold.take(event(listed=True, writer_epoch=2), 4)
    assert fold.status().active == 1
    fold.take(event(pod=pod("a", "Succeeded"), writer_epoch=1), 5)
    assert fold.status().succeeded == 0, "the old bridge's word is late"


def test_progress_keeps_its_first_and_last_point_in_a_bounded_list():
    fold = JobFold()
    fold.take(event(spec=JobSpec(completions=500)), 0)
    for number in range(1, 501):
        fold.take(event(pod=pod(f"p{number}", "Succeeded"), at=number * 2_000), number)
    points = fold.status().progress
    assert len(points) <= 64
    assert (points[0].succeeded, points[-1].succeeded) == (0, 500)


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


@settings(max_examples=200)
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
