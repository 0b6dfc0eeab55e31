"""What the bridge writes of Jobs: each change once, a Job before its pods, nothing that a fold counts twice."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from slacktide.agents.cluster.bridge.job_facts import Job, Pod
from slacktide.agents.cluster.bridge.job_log import AGAIN_MS, JobLog, Key
from slacktide.schemas.job_pod import JobEvent, JobEviction
from slacktide.streams.jobs.fold import JobFold
from testbed.job_events import by_rule

EVICTION = JobEviction(node="node-1", rule="BECPUEvict", acted_ms=5)
FINALIZER = "batch.kubernetes.io/job-tracking"


class Clock:
    now_ms = 1_000


def log_of(*known: JobEvent) -> JobLog:
    return JobLog(2, known, lambda: Clock.now_ms)


def job(uid: str = "j", **spec: Any) -> Job:
    metadata = {"name": "etl", "namespace": "jobs", "uid": uid}
    return msgspec.json.decode(json.dumps({"metadata": metadata, "spec": {"completions": 3, **spec}}), type=Job)


def pod(name: str = "a", phase: str = "Running", *, tracked: bool = True, code: int | None = None, **meta: Any) -> Pod:
    owner = {"kind": "Job", "uid": "j", "controller": True, "name": "etl", "apiVersion": "batch/v1"}
    metadata = {"name": name, "namespace": "jobs", "uid": f"uid-{name}", "ownerReferences": [owner], **meta}
    metadata |= {"finalizers": [FINALIZER]} if tracked else {}
    ended = {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:01:00Z"}}
    containers = [] if code is None else [{"name": "main", "state": ended, "restartCount": 1}]
    status = {"phase": phase, "startTime": "2026-01-01T00:00:00Z", "containerStatuses": containers}
    requests = {"kubernetes.io/batch-cpu": "1500", "cpu": "4"}
    spec = {"containers": [{"name": "main", "resources": {"requests": requests}}], "nodeName": "node-1"}
    return msgspec.json.decode(json.dumps({"metadata": metadata, "spec": spec, "status": status}), type=Pod)


def pods_of(log: JobLog) -> list[JobEvent]:
    return [event for key, event in log.pending.items() if key.kind == "pod"]


def folded(log: JobLog) -> JobFold:
    fold = JobFold()
    for offset, one in enumerate(log.pending.values()):
        fold.take(one, offset)
    return fold


def test_a_pod_that_comes_before_its_job_is_written_after_it():
    log = log_of()
    log.pod(pod())
    assert log.pending == {}
    log.job(job())
    assert list(log.pending) == [Key("job", "j"), Key("pod", "uid-a")]


def test_a_pod_has_the_figures_that_a_status_depends_on():
    log = log_of()
    log.job(job())
    log.pod(pod(phase="Failed", code=137, annotations={"batch.kubernetes.io/job-completion-index": "2"}))
    [one] = pods_of(log)
    assert one.pod is not None
    assert (one.pod.index, one.pod.cpu_milli, one.pod.restarts, one.pod.node) == (2, 1_500, 1, "node-1")
    assert (one.pod.exits[0].exit_code, one.pod.ended_ms - one.pod.started_ms) == (137, 60_000)


def test_a_pod_that_ends_and_is_counted_between_two_writes_counts_once():
    log = log_of()
    log.job(job())
    log.pod(pod())
    log.pod(pod(phase="Failed", code=3))
    log.pod(pod(phase="Failed", code=3, tracked=False))
    log.pod_gone("jobs", "a")
    assert [one.pod is not None and (one.pod.tracked, one.pod.last) for one in pods_of(log)] == [(True, True)]
    assert by_rule(folded(log).status()) == {"exit code 3": 1}


def test_a_pod_that_was_counted_before_this_bridge_saw_it_is_left_out():
    log = log_of()
    log.jobs_listed([job()])
    log.pods_listed([pod(phase="Succeeded", tracked=False)])
    assert pods_of(log) == []


def test_what_a_second_list_lacks_is_gone():
    log = log_of()
    log.jobs_listed([job()])
    log.pods_listed([pod("a"), pod("b")])
    log.pods_listed([pod("b")])
    assert [(one.pod.name, one.pod.last) for one in pods_of(log) if one.pod] == [("a", True), ("b", False)]
    log.jobs_listed([])
    assert log.pending[Key("job", "j")].gone


def test_a_job_of_an_earlier_bridge_that_is_not_listed_is_gone():
    log = log_of(JobEvent(uid="old", namespace="jobs", name="old", observed_ms=1))
    log.jobs_listed([job()])
    assert [event.uid for event in log.pending.values() if event.gone] == ["old"]


def test_once_both_are_listed_it_says_so_after_all_pods():
    log = log_of()
    log.pods_listed([pod()])
    log.jobs_listed([job()])
    assert [key.kind for key in log.pending] == ["job", "pod", "listed"]


def test_a_job_that_is_made_anew_under_its_name_is_another():
    log = log_of()
    log.job(job("j"))
    log.job(job("k"))
    assert [(event.uid, event.gone) for event in log.pending.values()] == [("j", True), ("k", False)]


def test_an_eviction_is_joined_whether_it_is_reported_before_or_after_the_pods_end():
    early, late = log_of(), log_of()
    early.evicted("uid-a", EVICTION)
    for log in (early, late):
        log.job(job())
        log.pod(pod())
        log.pod(pod(phase="Failed", tracked=False))
    late.evicted("uid-a", EVICTION)
    late.evicted("uid-a", EVICTION)
    assert [folded(log).status().evictions for log in (early, late)] == [1, 1]


def test_what_lives_is_written_again_after_ten_minutes():
    log = log_of()
    log.job(job())
    log.pod(pod())
    log.wrote(dict(log.pending))
    log.name_again()
    assert log.pending == {}
    Clock.now_ms += AGAIN_MS
    log.name_again()
    assert list(log.pending) == [Key("job", "j"), Key("pod", "uid-a")]


def test_what_changes_while_it_is_being_written_is_written_again():
    log = log_of()
    log.job(job())
    log.pod(pod())
    sent = dict(log.pending)
    log.pod(pod(phase="Succeeded"))
    log.wrote(sent)
    assert list(log.pending) == [Key("pod", "uid-a")]
