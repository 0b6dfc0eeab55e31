"""Jobs and the queue as the topics stand now. The history keeps neither, so at an earlier moment there is nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from slacktide.deploy.cli.explain.job_text import job_text
from slacktide.deploy.cli.queue.standing import rows, standing
from slacktide.deploy.cli.text import instant
from slacktide.deploy.console.history.queries import History
from slacktide.schemas.errors import CaseError
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.queue import Phase, QueueState
from slacktide.schemas.queue_objects import QueueObject, WorkloadObject
from slacktide.schemas.topics import JOB_STATUS, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.explain.evidence import Logged, Severity, logged, place_of
from slacktide.streams.explain.job import JobExplanation, condition, explain_job, statuses
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record

SHOWN_MAX = 200
"""Of Jobs, and of workloads: the rest is counted, and the filter finds it."""
_WORST_FIRST = tuple(reversed(get_args(Severity)))
_PHASES: tuple[Phase, ...] = ("evicting", "pending", "reserved", "finished")
_FIGURES = ("active", "succeeded", "failed", "evictions")


def listed(history: History, at_ms: int, text: str) -> dict[str, Any]:
    """All Jobs and the queue; ``text``: what names of Jobs and workloads must contain."""
    named: dict[tuple[str, str], list[Logged[JobStatus]]] = {}
    for status in statuses(history.latest(JOB_STATUS)):
        named.setdefault((status.body.namespace, status.body.name), []).append(status)
    jobs = [job for name, mine in named.items() if (job := explain_job(mine, *name, at_ms)) is not None]
    shown = sorted((row for one in jobs if text in (row := _row(one))["job"]), key=_by_trouble)
    return {"jobs": shown[:SHOWN_MAX], "jobs_count": len(shown), **_queue(history, text)}


def job_of(history: History, name: str, at_ms: int) -> JobExplanation | None:
    """One Job by NAMESPACE/NAME; None: no status of it was read."""
    namespace, _, short = name.partition("/")
    return explain_job(statuses(history.latest(JOB_STATUS)), namespace, short, at_ms)


def detailed(job: JobExplanation) -> dict[str, Any]:
    """All of one Job, and its explanation as text."""
    status = job.status
    return {
        "row": _row(job),
        "findings": job.findings,
        "failures": status.failures,
        "evicted": status.evicted,
        "recent": status.recent,
        "progress": status.progress,
        "text": job_text(job),
    }


def job_lines(job: JobExplanation, figure: str) -> Iterator[str]:
    """One figure of a Job explained, a line each."""
    value = _row(job).get(figure)
    if isinstance(value, int):
        yield f"{figure} {value:,} at {instant(job.place.logged_ms)}, of {job.place}"
        yield "the history keeps no statuses of Jobs; this is the newest"
        yield ""
    yield from job_text(job).split("\n")


def _row(job: JobExplanation) -> dict[str, Any]:
    status = job.status
    return {
        "job": f"{job.namespace}/{job.name}",
        "condition": condition(status),
        "severity": min((one.severity for one in job.findings), key=_WORST_FIRST.index, default="ok"),
        "of": None if status.spec is None else status.spec.completions,
        "lost_core_s": round(status.lost_core_ms / 1_000),
        "place": str(job.place),
        **{name: getattr(status, name) for name in _FIGURES},
    }


def _by_trouble(row: dict[str, Any]) -> tuple[int, bool, str]:
    """What runs comes before what has ended well."""
    return _WORST_FIRST.index(row["severity"]), row["condition"] == "Complete", row["job"]


def _queue(history: History, text: str) -> dict[str, Any]:
    records = history.latest(QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE)
    objects = objects_of(records)
    workloads = sorted(_workloads(objects, records, text), key=lambda one: (_PHASES.index(one["phase"]), one["name"]))
    queues, notes = _queues(objects)
    return {
        "queues": queues,
        "notes": notes,
        "workloads": workloads[:SHOWN_MAX],
        "workloads_count": len(workloads),
    }


def _queues(objects: Sequence[QueueObject]) -> tuple[list[tuple[str | int, ...]], list[str]]:
    """Rows as ``slacktide queue status`` prints them, and what could not be counted."""
    try:
        found = standing(objects)
    except CaseError as exc:
        return [], [str(exc)]
    return rows(found.queues, wide=False)[1], found.notes


def _workloads(objects: Iterable[QueueObject], records: Iterable[Record], text: str) -> Iterator[dict[str, Any]]:
    """Each where it stands; one without a state waits, and was not tried yet."""
    given = [one for one in objects if isinstance(one, WorkloadObject)]
    names = {one.metadata.uid: f"{one.metadata.namespace or 'default'}/{one.metadata.name}" for one in given}
    states = {one.body.uid: one for one in logged(records, QUEUE_STATE, QueueState)}
    places = {record.key: str(place_of(record)) for record in records if record.topic == QUEUE_WORKLOAD.name}
    for one in given:
        uid, state = one.metadata.uid, states.get(one.metadata.uid)
        if text not in names[uid] or (state is not None and state.body.phase == "gone"):
            continue
        yield {
            "name": names[uid],
            "queue": one.spec.queue_name,
            "phase": "pending" if state is None else state.body.phase,
            "reason": "" if state is None else state.body.reason,
            "preemptor": "" if state is None else names.get(state.body.preemptor, state.body.preemptor),
            "place": places.get(uid.encode(), "") if state is None else str(state.place),
        }
