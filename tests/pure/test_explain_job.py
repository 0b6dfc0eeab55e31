"""``slacktide explain job`` in words: progress, failures by rule, and what to do."""

from __future__ import annotations

from slacktide.deploy.cli.explain.workload_text import job_text
from slacktide.schemas.codec import encode
from slacktide.schemas.job_pod import JobEviction, JobSpec
from slacktide.schemas.topics import JOB_STATUS
from slacktide.streams.explain.job import JobExplanation, explain_job, statuses
from slacktide.streams.records import Record
from testbed.job_events import SLIDE, folded, pod

NOW_MS = 700_000


def record(value: bytes | None, offset: int = 0) -> Record:
    return Record(topic=JOB_STATUS.name, partition=0, offset=offset, timestamp_ms=NOW_MS, key=b"j", value=value)


def explained(spec: JobSpec, *pods) -> JobExplanation:
    found = explain_job(statuses([record(encode(folded(spec, *pods)))]), "jobs", "j", NOW_MS)
    assert found is not None
    return found


def test_it_names_what_is_left_and_how_long_that_takes():
    job = explained(JobSpec(completions=13), *[pod(f"p{number}", "Succeeded") for number in range(3)])
    assert (job.left, job.pace_per_min) == (10, 60.0)
    assert "3 of 13 succeeded, 0 failed, 10 left; 0 min at the recent rate of 60.0 a minute" in job_text(job)


def test_a_job_that_failed_has_its_reason_first():
    job = explained(JobSpec(completions=2, failure_rules=SLIDE), pod("p", "Failed", index=7, code=1))
    assert job.findings[0].name == "job.failed"
    assert "PodFailurePolicy: Container main for pod jobs/p failed with exit code 1" in job.findings[0].text
    assert "rule 2: FailJob     1" in job_text(job)


def test_an_eviction_that_counts_as_failure_comes_with_the_rule_to_add():
    eviction = JobEviction(node="node-1", rule="BECPUEvict", threshold="95% used, threshold 90%", acted_ms=1)
    job = explained(JobSpec(completions=2), pod("p", "Failed", eviction=eviction))
    [evicted] = [one for one in job.findings if one.name == "job.evicted"]
    assert "ignores DisruptionTarget" in evicted.advice
    assert "95% used, threshold 90%" in job_text(job)


def test_a_deleted_job_is_not_known():
    alive = record(encode(folded(JobSpec(completions=2))))
    assert explain_job(statuses([alive, record(None, 1)]), "jobs", "j", NOW_MS) is None
