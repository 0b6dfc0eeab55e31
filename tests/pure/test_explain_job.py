"""``slacktide explain job`` in words: progress, failures by rule, and what to do."""

import math

from slacktide.deploy.cli.explain.workload_text import job_text
from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.codec import encode
from slacktide.schemas.job_pod import JobEviction, JobSpec
from slacktide.schemas.topics import JOB_STATUS
from slacktide.streams.analysis.explain.job import borrowed, explain_job, statuses
from slacktide.streams.records import Record
from testbed.job_events import SLIDE, folded, pod
from testbed.snapshots import situations

NOW_MS = 700_000


def record(value: bytes | None, offset: int = 0) -> Record:
    return Record(topic=JOB_STATUS.name, partition=0, offset=offset, timestamp_ms=NOW_MS, key=b"j", value=value)


EVICTION = JobEviction(node="node-1", rule="BECPUEvict", threshold="95% used, threshold 90%", acted_ms=1)


@situations(
    "given",
    {
        "what is left and how long that takes": (
            JobSpec(completions=13), *[pod(f"p{number}", "Succeeded") for number in range(3)],
        ),
        "one that failed, with its reason first": (
            JobSpec(completions=2, failure_rules=SLIDE), pod("p", "Failed", index=7, code=1),
        ),
        "an eviction that counts as failure, with the rule to add": (
            JobSpec(completions=2), pod("p", "Failed", eviction=EVICTION),
        ),
        "an annotation that nobody can read": (
            JobSpec(completions=2, ignored=['metadata.annotations["a"]: \'x\': ignored; accepted: a whole number']),
        ),
    },
)  # fmt: skip
def test_a_job_is_explained(given: tuple, snapshot) -> None:
    found = explain_job(statuses([record(encode(folded(*given)))]), "jobs", "j", NOW_MS)
    assert found is not None
    assert job_text(found) == snapshot


def test_a_share_without_end_is_no_percentage():
    assert borrowed("a", 154.0, 0.0) == "a borrowed 15.4% of its cohort, and then 0%"
    for endless in (math.inf, float(AMOUNT_MAX)):  # in a simulation, in a record
        assert borrowed("a", endless, 0.0) == "a borrowed although its fair weight is 0"


def test_a_deleted_job_is_not_known():
    alive = record(encode(folded(JobSpec(completions=2))))
    assert explain_job(statuses([alive, record(None, 1)]), "jobs", "j", NOW_MS) is None
