"""Reads Jobs and the queue at a moment from the history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from slacktide.deploy.cli.explain.workload_text import job_text
from slacktide.deploy.cli.queue.topics import rows, standing
from slacktide.deploy.console.history.latest import Held, JobRow, job_row
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.runtime.text import instant
from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue import Phase, QueueState
from slacktide.schemas.queue_objects import QueueObject, WorkloadObject
from slacktide.schemas.topics import JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.explain.evidence import Logged, logged, place_of
from slacktide.streams.explain.facts import WORST_FIRST
from slacktide.streams.explain.job import JobExplanation, explain_job, statuses
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record

SHOWN_MAX = 200
"""Limit for listed Jobs and workloads; the filter finds the others."""
_PHASES: tuple[Phase, ...] = ("evicting", "pending", "reserved", "finished")
_SHOWN = ("job", "condition", "severity", "of", "active", "succeeded", "failed", "evictions", "lost_core_s", "place")


def listed(history: History, at_ms: int, text: str) -> dict[str, Any]:
    """Return all Jobs and the queue; ``text``: filters Jobs and workloads by name."""
    shown = sorted((one for _, one in _named(history, at_ms, text)), key=_order)
    jobs = {"jobs": [_row(one) for one in shown[:SHOWN_MAX]], "jobs_count": len(shown)}
    standing_now = _stood(history.objects.held(at_ms, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE))
    workloads = [one for one in standing_now["workloads"] if text in one["name"]]
    return jobs | standing_now | {"workloads": workloads[:SHOWN_MAX], "workloads_count": len(workloads)}


def job_of(history: History, name: str, at_ms: int) -> JobExplanation | None:
    """Return one Job by NAMESPACE/NAME; None: it has no status at that moment."""
    namespace, _, short = name.partition("/")
    for key, one in _named(history, at_ms, name):
        if one.job == name and (record := history.objects.one(at_ms, JOB_STATUS, key)) is not None:
            return explain_job(statuses([record]), namespace, short, at_ms)
    return None


def _named(history: History, at_ms: int, text: str) -> Iterable[tuple[bytes, JobRow]]:
    """Return the Jobs whose names contain a text, the newest of each name."""
    found: dict[str, tuple[bytes, JobRow]] = {}
    for key, one in history.objects.jobs(at_ms).items():
        before = found.get(one.job, (b"", one))[1]
        if text in one.job and (before.observed_ms, before.logged_ms) <= (one.observed_ms, one.logged_ms):
            found[one.job] = key, one
    return found.values()


def detailed(job: JobExplanation) -> dict[str, Any]:
    """Return one Job's details, and its explanation as text."""
    status = job.status
    return {
        "row": _row(_row_of(job)),
        "findings": job.findings,
        "failures": status.failures,
        "evicted": status.evicted,
        "recent": status.recent,
        "progress": status.progress,
        "text": job_text(job),
    }


def job_lines(job: JobExplanation, figure: str) -> Iterator[str]:
    """Explain one figure of a Job in lines."""
    value = _row(_row_of(job)).get(figure)
    if isinstance(value, int):
        yield f"{figure} {value:,} at {instant(job.place.logged_ms)}, of {job.place}"
        yield ""
    yield from job_text(job).split("\n")


def _order(row: JobRow) -> tuple[int, bool, str]:
    """Return the sort key of rows: problems first, active before completed."""
    return WORST_FIRST.index(row.severity), row.condition == "Complete", row.job


def _row_of(job: JobExplanation) -> JobRow:
    return job_row(Logged(body=job.status, place=job.place))


def _row(one: JobRow) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _SHOWN}


@lru_cache(maxsize=2)
def _stood(held: Held) -> dict[str, Any]:
    """Return the queue, cached until it changes."""
    objects = objects_of(held.records)
    queues, notes = _queues(objects)
    workloads = sorted(_workloads(objects, held.records), key=lambda one: (_PHASES.index(one["phase"]), one["name"]))
    return {"queues": queues, "notes": notes, "workloads": workloads}


def _queues(objects: Sequence[QueueObject]) -> tuple[list[tuple[str | int, ...]], list[str]]:
    """Return the rows of ``slacktide queue status``, and notes about objects that could not be counted."""
    try:
        found = standing(objects)
    except CaseError as exc:
        return [], [str(exc)]
    return rows(found.queues, wide=False)[1], found.notes


def _workloads(objects: Iterable[QueueObject], records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield workloads with their state. Without a state a workload is pending and was never tried."""
    given = [one for one in objects if isinstance(one, WorkloadObject)]
    names = {one.metadata.uid: f"{one.metadata.namespace or 'default'}/{one.metadata.name}" for one in given}
    states = {one.body.uid: one for one in logged(records, QUEUE_STATE, QueueState)}
    places = {record.key: str(place_of(record)) for record in records if record.topic == QUEUE_WORKLOAD.name}
    for one in given:
        uid, state = one.metadata.uid, states.get(one.metadata.uid)
        if state is not None and state.body.phase == "gone":
            continue
        yield {
            "name": names[uid],
            "queue": one.spec.queue_name,
            "phase": "pending" if state is None else state.body.phase,
            "reason": "" if state is None else state.body.reason,
            "preemptor": "" if state is None else names.get(state.body.preemptor, state.body.preemptor),
            "place": places.get(uid.encode(), "") if state is None else str(state.place),
        }
