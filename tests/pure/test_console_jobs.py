"""The console's page of Jobs and the queue: as the topics stand, in trouble first, and in the words of the CLI."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.explain.job_text import job_text
from slacktide.deploy.cli.queue.standing import rows, standing
from slacktide.deploy.console.answers import NotKeptError, Question, answer
from slacktide.deploy.console.history.latest import LATEST, Latest
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.queue import QueueState
from slacktide.schemas.topics import JOB_STATUS, QUEUE_STATE
from slacktide.streams.explain.job import explain_job, statuses
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.queue.reading import last_of_each
from slacktide.streams.records import Record
from testbed.console import HTML, jobs_and_queue
from testbed.samples import START_MS

FOLLOWED = {topic.name for topic in LATEST}


@cache
def log() -> tuple[Record, ...]:
    return tuple(one for one in asyncio.run(jobs_and_queue()) if one.topic in FOLLOWED)


def page(records: tuple[Record, ...], **given_: str) -> Any:
    recorder = Recorder(START_MS // 1_000)
    for record in records:
        recorder.take(record)
    found = answer(History(Path("/nowhere"), lambda: recorder), "jobs", Question(at_ms=START_MS, given=given_))
    return msgspec.json.decode(msgspec.json.encode(found))


def test_jobs_in_trouble_come_first_and_those_that_are_done_last() -> None:
    jobs = page(log())["jobs"]
    assert [one["job"] for one in jobs] == ["jobs/bad", "jobs/etl", f"jobs/{HTML}"]
    assert [one["condition"] for one in jobs] == ["Failed", "running", "Complete"]
    etl = jobs[1]
    assert (etl["active"], etl["succeeded"], etl["of"], etl["failed"]) == (1, 1, 4, 1)
    assert (etl["evictions"], etl["lost_core_s"], etl["place"]) == (1, 60, f"{JOB_STATUS.name} 0:0")


def test_the_filter_finds_jobs_and_workloads_by_a_part_of_their_name() -> None:
    assert [one["job"] for one in page(log(), filter="/et")["jobs"]] == ["jobs/etl"]
    assert [one["name"] for one in page(log(), filter="w2")["workloads"]] == ["jobs/w2"]
    assert page(log(), filter="nothing")["jobs_count"] == 0


def test_a_job_has_the_text_of_explain_and_its_evicted_pods_with_threshold() -> None:
    found = page(log(), job="jobs/etl")
    explained = explain_job(statuses(log()), "jobs", "etl", START_MS)
    assert explained is not None
    assert found["text"] == job_text(explained)
    assert [one["eviction"]["threshold"] for one in found["evicted"]] == ["threshold_pct 70, observed 91"]
    assert [(one["why"], one["pods"]) for one in page(log(), job="jobs/bad")["failures"]] == [("rule 2: FailJob", 1)]


def test_a_figure_of_a_job_is_explained_with_its_record() -> None:
    recorder = Recorder(START_MS // 1_000)
    for record in log():
        recorder.take(record)
    asked = Question(at_ms=START_MS, given={"job": "jobs/etl", "figure": "evictions"})
    lines = answer(History(Path("/nowhere"), lambda: recorder), "explain", asked)["lines"]
    assert lines[0].startswith("evictions 1 at ")
    assert lines[0].endswith(f"of {JOB_STATUS.name} 0:0")
    assert "evicted by Slacktide, the newest last:" in lines


def test_the_queue_stands_as_its_command_has_it() -> None:
    found = page(log())
    assert [tuple(one) for one in found["queues"]] == rows(standing(objects_of(log())).queues, wide=False)[1]
    assert [one[:4] for one in found["queues"]] == [["gpu", "all", "2 cpu", "2 cpu"]]
    phases = [(one["name"], one["phase"]) for one in found["workloads"]]
    assert phases == [("jobs/w0", "evicting"), ("jobs/w1", "pending"), ("jobs/w2", "pending")]
    assert found["workloads"][0]["preemptor"] == "jobs/w1"
    assert found["workloads"][0]["place"].startswith(f"{QUEUE_STATE.name} 0:")


def test_without_records_the_page_is_empty_and_at_an_earlier_moment_it_says_so() -> None:
    empty = page(())
    assert empty["kept"]
    assert not any(empty[name] for name in ("jobs", "queues", "workloads", "notes"))
    assert page(log(), at=str(START_MS - 1)) == {"at_ms": START_MS, "kept": False}
    with pytest.raises(NotKeptError, match=r"no status of a Job jobs/none .* slacktide\.job\.status\.v1"):
        page(log(), job="jobs/none")


def test_what_cannot_be_read_leaves_what_was_held() -> None:
    recorder = Recorder(START_MS // 1_000)
    for record in log():
        recorder.take(record)
        recorder.take(msgspec.structs.replace(record, offset=record.offset + 100, value=b"{"))
    assert recorder.unreadable == len(log())
    assert len(recorder.latest.of(*LATEST)) == len(last_of_each(log()))


def test_a_null_takes_back_what_was_held() -> None:
    latest = Latest()
    for record in log():
        latest.take(record)
    for record in log():
        latest.take(msgspec.structs.replace(record, value=None))
    assert not latest.of(*LATEST)


@given(st.permutations(range(4)))
def test_a_state_that_a_late_decider_wrote_does_not_replace_a_newer_one(order: list[int]) -> None:
    latest = Latest()
    for offset, turn in enumerate(order):
        state = QueueState(uid="w", phase="pending", epoch=turn // 2, turn=turn % 2)
        latest.take(
            Record(topic=QUEUE_STATE.name, partition=0, offset=offset, timestamp_ms=START_MS, key=b"w",
                   value=encode(state))
        )  # fmt: skip
    [held] = latest.of(QUEUE_STATE)
    assert (one := decode(held.value, QueueState)).epoch == one.turn == 1
