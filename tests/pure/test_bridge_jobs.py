"""What the bridge writes of Jobs: each change once, a Job before its pods, nothing that a fold counts twice."""

import json
from typing import Any

import msgspec
import pytest

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.bridge.job_facts import Job, pod_facts
from slacktide.agents.cluster.bridge.job_log import AGAIN_MS, JobLog, JobSource, Key
from slacktide.agents.cluster.events import IgnoredFields
from slacktide.agents.kubernetes.objects import Condition, Pod
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.job_pod import JobEvent, JobEviction
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.outcome import PodName
from slacktide.streams.jobs.fold import JobFold
from testbed.chains import outcome, outcome_record
from testbed.scenarios import run, scenarios
from testbed.vectors import each_row

EVICTION = JobEviction(node="node-1", rule="BECPUEvict", acted_ms=5)
FINALIZER = "batch.kubernetes.io/job-tracking"


class Clock:
    now_ms = 1_000


def log_of(*known: JobEvent) -> JobLog:
    Clock.now_ms = 1_000
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


def folded(log: JobLog) -> JobFold:
    fold = JobFold()
    for offset, one in enumerate(log.pending.values()):
        fold.take(one, offset)
    return fold


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


def test_a_pod_with_more_containers_than_a_record_holds_is_still_counted():
    log, many = log_of(), pod(phase="Failed", code=1)
    ends = many.status.container_statuses * 60
    log.job(job())
    log.pod(msgspec.structs.replace(many, status=msgspec.structs.replace(many.status, container_statuses=ends)))
    assert [decode(encode(one), JobEvent) for one in log.pending.values()] == list(log.pending.values())
    assert folded(log).status().failed == 1


def test_a_pod_of_a_lost_node_is_what_it_was_and_says_why():
    lost, gone = pod(phase="Unknown"), pod(phase="Failed")
    disrupted = [Condition(type="DisruptionTarget", status="True", reason="DeletionByPodGC")]
    gone = msgspec.structs.replace(gone, status=msgspec.structs.replace(gone.status, conditions=disrupted))
    never = msgspec.structs.replace(lost, status=msgspec.structs.replace(lost.status, start_time=None))
    facts = [pod_facts(one, frozenset(), None) for one in (lost, never, gone)]
    assert [(one.phase, one.reason) for one in facts] == [
        ("Running", "phase Unknown"),
        ("Pending", "phase Unknown"),
        ("Failed", "DeletionByPodGC"),
    ]
    log = log_of()
    log.job(job())
    log.pod(lost)
    log.pod(gone)
    assert [one.why for one in folded(log).status().failures] == ["DeletionByPodGC"]


def test_a_policy_without_rules_hides_no_job():
    log = log_of()
    log.job(job(podFailurePolicy={"rules": None}))
    assert [one.kind for one in log.pending] == ["job"]


@pytest.mark.parametrize(
    "terms", [{"used_pct": 1}, {"average_satisfied_ratio": 1}, {"allocatable_milli": 1, "requested_milli": 1}]
)
async def test_an_outcome_that_lacks_a_term_is_an_eviction_like_another(terms: dict[str, float]):
    letters, ignored = list[str](), IgnoredFields("bridge", "one", lambda: 0)
    jobs = JobSource(Cluster("127.0.0.1:1"), 1, lambda _, why: letters.append(why), SystemClock(), ignored)
    made = outcome(1, result="applied", target="pod/uid-a", pod=PodName(namespace="jobs", name="a"), terms=terms)
    jobs._log.job(job())
    jobs._log.pod(pod())
    bad = outcome_record(msgspec.structs.replace(made, acted_ms=2**60))
    await jobs._take_outcomes([bad, outcome_record(made)], 0)
    assert [len(letters), folded(jobs._log).status().evictions] == [1, 1]


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


class Written:
    """The Jobs and pods that a bridge sees, and what it has to write of them."""

    def __init__(self, known: list[dict[str, Any]] | None = None) -> None:
        self._log = log_of(*msgspec.convert(known or [], list[JobEvent]))

    def job(self, uid: str, **spec: Any) -> None:
        self._log.job(job(uid, **spec))

    def pod(self, name: str, phase: str, **of: Any) -> None:
        self._log.pod(pod(name, phase, **of))

    def jobs_listed(self, *uids: str) -> None:
        self._log.jobs_listed([job(uid) for uid in uids])

    def pods_listed(self, *pods: list[Any]) -> None:
        self._log.pods_listed([pod(name, phase, **dict(*of)) for name, phase, *of in pods])

    def pod_gone(self, namespace: str, name: str) -> None:
        self._log.pod_gone(namespace, name)

    def pending(self) -> list[Any]:
        return [[key.kind, event] for key, event in self._log.pending.items()]


@scenarios("bridge_jobs")
def test_bridge_jobs(case):
    run(case, Written)


@each_row("spec", "status", "wanted")
def test_what_the_kubelet_allocated_counts(spec: dict[str, Any], status: dict[str, Any], wanted: int) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]
    item = {"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": containers} | spec, "status": status}
    read = msgspec.convert(item, Pod)

    assert pod_facts(read, frozenset(), None).cpu_milli == wanted
    assert read_pod(item).requests.cpu_milli == wanted, "all parts count the same"
