"""Formats a Job's explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.explain.findings import age, findings_text
from slacktide.deploy.cli.explain.queue_text import queue_text
from slacktide.deploy.runtime.text import instant, table
from slacktide.schemas.topics import JOB_POD
from slacktide.streams.explain.job import JobExplanation, condition

INDEXES_CHARS = 100
POINTS = 8


def job_text(job: JobExplanation) -> str:
    """Return the complete text."""
    status = job.status
    parts = ["\n".join(_head(job)), findings_text(job.findings)]
    if job.queue is not None:
        parts.append(queue_text(job.queue, job.asked_ms))
    if status.failures:
        parts.append(table(["FAILED BY", "PODS"], [(one.why, one.pods) for one in status.failures]))
    if status.evicted:
        parts.append("evicted by Slacktide, the newest last:\n" + _evicted(job))
    if status.recent:
        parts.append("failed pods, the newest last:\n" + _recent(job))
    if len(status.progress) > 1:
        points = status.progress[:: max(1, len(status.progress) // POINTS)]
        rows = [(instant(one.seen_ms), one.succeeded, one.failed) for one in points]
        parts.append(table(["AT", "SUCCEEDED", "FAILED"], rows))
    return "\n\n".join(parts)


def _head(job: JobExplanation) -> Iterator[str]:
    status = job.status
    spec = status.spec
    kind = "" if spec is None else ", Indexed" if spec.indexed else ", NonIndexed"
    of = "" if spec is None or spec.completions is None else f" of {spec.completions:,}"
    yield f"job {job.namespace}/{job.name}{kind}, {condition(status)}"
    yield f"  {status.succeeded:,}{of} succeeded, {status.failed:,} failed{_left(job)}"
    yield f"  pods: {status.active:,} active, {status.ready:,} of them ready; {status.terminating:,} terminating"
    if status.completed_indexes:
        yield f"  completed indexes: {_short(status.completed_indexes)}"
    if status.lost_core_ms:
        yield f"  lost: {status.lost_core_ms / 1000:,.0f} core-seconds, by the requests of pods that did not succeed"
    for one in status.conditions:
        yield f"  condition {one.type} {one.status}: {one.reason}"
    events = f"{JOB_POD.name} {job.place.partition}:{status.folded_to}"
    yield f"  {job.place}, {age(job.age_ms)}; includes events up to {events}"


def _left(job: JobExplanation) -> str:
    if job.left is None:
        return ""
    if not job.pace_per_min:
        return f", {job.left:,} left"
    return (
        f", {job.left:,} left; {job.left / job.pace_per_min:,.0f} min at the recent rate of {job.pace_per_min:,.1f} "
        "a minute"
    )


def _evicted(job: JobExplanation) -> str:
    rows = [
        (
            one.pod,
            "" if one.index is None else str(one.index),
            one.eviction.node,
            one.eviction.rule,
            one.eviction.threshold or one.eviction.bound,
            age(max(0, job.asked_ms - one.eviction.acted_ms)),
        )
        for one in job.status.evicted
    ]
    return table(["POD", "INDEX", "NODE", "RULE", "THRESHOLD", "WHEN"], rows)


def _recent(job: JobExplanation) -> str:
    rows = [
        (
            "" if one.index is None else str(one.index),
            one.pod,
            one.node,
            one.result,
            one.why,
            ", ".join(f"{each.name} {each.exit_code}" for each in one.exits),
            age(max(0, job.asked_ms - one.seen_ms)),
        )
        for one in job.status.recent
    ]
    return table(["INDEX", "POD", "NODE", "RESULT", "BY", "EXIT CODES", "WHEN"], rows)


def _short(text: str) -> str:
    return text if len(text) <= INDEXES_CHARS else f"{text[:INDEXES_CHARS]}…"
