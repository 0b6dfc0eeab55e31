"""The console's page of Jobs and the queue: as the topics stand, in trouble first, and in the words of the CLI."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.explain.workload_text import job_text
from slacktide.deploy.cli.queue.topics import rows, standing
from slacktide.deploy.console.answers import NotKeptError, Question, answer
from slacktide.deploy.console.history.minute import Latest, Minute, Version
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import OBJECTS, Recorder
from slacktide.deploy.console.history.store import Store
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.queue import QueueState
from slacktide.schemas.topics import JOB_STATUS, QUEUE_STATE
from slacktide.streams.analysis.explain.job import explain_job, statuses
from slacktide.streams.queue.ledger import last_of_each
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record
from testbed.console import jobs_and_queue
from testbed.samples import START_MS
from testbed.snapshots import json_text, stable
from testbed.vectors import each_row

FOLLOWED = {topic.name for topic in OBJECTS}


@cache
def log() -> tuple[Record, ...]:
    return tuple(one for one in asyncio.run(jobs_and_queue()) if one.topic in FOLLOWED)


def held() -> History:
    recorder = Recorder(START_MS // 1_000)
    for record in log():
        recorder.take(record)
    return History(Path("/nowhere"), lambda: recorder)


def page(question: str = "jobs", **given_: str) -> Any:
    return msgspec.json.decode(msgspec.json.encode(answer(held(), question, Question(at_ms=START_MS, given=given_))))


@each_row("given_")
def test_the_page_is_what_the_topics_hold(given_: dict[str, str], snapshot) -> None:
    assert stable(json_text(page(**given_))) == snapshot


@each_row("given_")
def test_a_figure_is_explained_with_its_records(given_: dict[str, str], snapshot) -> None:
    assert stable("\n".join(page("explain", **given_)["lines"])) == snapshot


def test_jobs_and_queues_are_told_in_the_words_of_the_command_line() -> None:
    explained = explain_job(statuses(log()), "jobs", "etl", START_MS)
    assert explained is not None
    assert page(job="jobs/etl")["text"] == job_text(explained)
    assert [tuple(one) for one in page()["queues"]] == rows(standing(objects_of(log())).queues, wide=False)[1]


def test_without_records_the_page_is_empty() -> None:
    nothing = History(Path("/nowhere"), lambda: Recorder(START_MS // 1_000))
    empty = answer(nothing, "jobs", Question(at_ms=START_MS, given={}))
    assert not any(empty[name] for name in ("jobs", "queues", "workloads", "notes"))
    with pytest.raises(NotKeptError, match=r"no status of Job jobs/none .* slacktide\.job\.status\.v1"):
        page(job="jobs/none")


@pytest.mark.parametrize("minutes", [0, 3])
def test_jobs_and_queue_are_shown_as_they_stood_at_an_earlier_moment(tmp_path: Path, minutes: int) -> None:
    """Before its minute is stored, and from the file."""
    recorder, store = Recorder(START_MS // 1_000), Store(tmp_path / "history.db")
    for number, record in enumerate(log()):
        recorder.take(dated(record, number, 1_000 * number))
    etl, count = next(one for one in log() if one.key == b"etl"), len(log())
    lost = encode(msgspec.structs.replace(decode(etl.value, JobStatus), evictions=2))
    later = msgspec.structs.replace(dated(etl, count, 30_000), value=lost)
    recorder.take(later)
    recorder.take(msgspec.structs.replace(dated(etl, count + 1, 40_000), value=None))
    recorder.advance(START_MS + 45_000 + 60_000 * minutes)
    for minute in recorder.minutes:
        store.add(minute)
    recorder.minutes.clear()
    history = History(store.path, lambda: recorder)

    def shown(after_ms: int, **given_: str) -> Any:
        return answer(history, "jobs", Question(at_ms=START_MS + after_ms, given=given_))

    assert [one["job"] for one in shown(1_500)["jobs"]] == ["jobs/bad", "jobs/etl"]
    assert [one["evictions"] for one in shown(29_000, filter="etl")["jobs"]] == [1]
    assert [one["evictions"] for one in shown(31_000, filter="etl")["jobs"]] == [2]
    assert shown(31_000, job="jobs/etl")["row"]["place"] == f"{JOB_STATUS.name} 0:{count}"
    assert not shown(41_000, filter="etl")["jobs"]
    assert len(shown(41_000)["jobs"]) == 2
    assert [list(one) for one in shown(29_000)["queues"]] == page()["queues"]
    assert not shown(-1_000)["jobs"]
    store.close()


def dated(record: Record, offset: int, after_ms: int) -> Record:
    return msgspec.structs.replace(record, offset=offset, timestamp_ms=START_MS + after_ms)


def test_of_many_versions_of_a_job_few_are_kept_and_each_that_differs_in_kind() -> None:
    latest, status = Latest(), decode(next(one for one in log() if one.key == b"etl").value, JobStatus)
    for second in range(180):
        now = msgspec.structs.replace(status, active=1 + second, evictions=second // 100)
        latest.take(dated(Record(topic=JOB_STATUS.name, partition=0, offset=second, timestamp_ms=0, key=b"etl",
                                 value=encode(now)), second, 100 * second))  # fmt: skip
    kept = [one.at_ms - START_MS for one in latest.full(START_MS + 60_000)]
    assert kept == [*range(0, 10_000, 1_000), *range(10_000, 18_000, 1_000), 17_900]
    assert not latest.full(START_MS + 120_000)


def test_what_is_known_already_is_kept_once_more_and_a_null_ends_it(tmp_path: Path) -> None:
    latest, store, etl = Latest(), Store(tmp_path / "history.db"), next(one for one in log() if one.key == b"etl")
    for _ in range(2):  # as after a restart
        latest = Latest()
        latest.take(etl, known=True)
        store.add(minute(latest.full(START_MS + 60_000)))
    [[count]] = store._db.execute("SELECT count(*) FROM version")
    assert count == 1
    latest.take(msgspec.structs.replace(etl, offset=9, timestamp_ms=START_MS + 61_000, value=None))
    store.add(minute(latest.full(START_MS + 120_000)))
    history = History(store.path)
    assert [len(history.objects.jobs(START_MS + at_ms)) for at_ms in (-1, 0, 60_999, 61_000)] == [0, 1, 1, 0]
    store.add(minute([], 8 * 24 * 3_600))
    assert [list(row) for row in store._db.execute("SELECT count(*) FROM object")] == [[0]]
    store.close()


def minute(versions: list[Version], after_s: int = 0) -> Minute:
    return Minute(start_s=START_MS // 1_000 + after_s, blocks={}, kept={}, entries=[], rates={}, offsets={}, firsts={},
                  texts=[], versions=versions)  # fmt: skip


def test_what_cannot_be_read_leaves_what_was_held() -> None:
    recorder = Recorder(START_MS // 1_000)
    for record in log():
        recorder.take(record)
        recorder.take(msgspec.structs.replace(record, offset=record.offset + 100, value=b"{"))
    assert recorder.unreadable == len(log())
    assert len(recorder.latest.of(*OBJECTS).records) == len(last_of_each(log()))


def test_a_null_takes_back_what_was_held() -> None:
    latest = Latest()
    for record in log():
        latest.take(record)
    for record in log():
        latest.take(msgspec.structs.replace(record, value=None))
    assert not latest.of(*OBJECTS).records


@given(st.permutations(range(4)))
def test_a_state_that_a_late_decider_wrote_does_not_replace_a_newer_one(order: list[int]) -> None:
    latest = Latest()
    for offset, turn in enumerate(order):
        state = QueueState(uid="w", phase="pending", epoch=turn // 2, turn=turn % 2)
        latest.take(
            Record(topic=QUEUE_STATE.name, partition=0, offset=offset, timestamp_ms=START_MS, key=b"w",
                   value=encode(state))
        )  # fmt: skip
    [held] = latest.of(QUEUE_STATE).records
    assert (one := decode(held.value, QueueState)).epoch == one.turn == 1
