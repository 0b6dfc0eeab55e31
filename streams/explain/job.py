"""Explains a Job's status: progress, failures, evictions, and advice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.topics import JOB_STATUS
from slacktide.schemas.units import count
from slacktide.streams.explain.evidence import Finding, Logged, Place, by_key, logged
from slacktide.streams.explain.ignored import ignored_findings
from slacktide.streams.explain.queued import QueuePlace
from slacktide.streams.records import Record

PACE_POINTS = 8
"""The newest points of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """One Job's explanation."""

    namespace: str
    name: str
    asked_ms: int
    place: Place
    """The position of the status record."""
    age_ms: int
    left: int | None
    """Pods that must still succeed; None: unknown, as for a work queue."""
    pace_per_min: float | None
    """Successes per minute, by the newest points of progress."""
    findings: list[Finding]
    status: JobStatus
    queue: QueuePlace | None = None
    """None: it is in no queue."""


def statuses(records: Iterable[Record]) -> list[Logged[JobStatus]]:
    """Return the last status of each existing Job."""
    found = []
    for uid, of_job in by_key(records, JOB_STATUS).items():
        if last := logged(of_job, JOB_STATUS, JobStatus, uid):
            found.append(last[-1])
    return found


def explain_job(found: Iterable[Logged[JobStatus]], namespace: str, name: str, now_ms: int) -> JobExplanation | None:
    """Return the newest Job of that name; None: unknown."""
    mine = [one for one in found if (one.body.namespace, one.body.name) == (namespace, name)]
    if not mine:
        return None
    logged_status = max(mine, key=lambda one: (one.body.observed_ms, one.place.logged_ms))
    status = logged_status.body
    return JobExplanation(
        namespace=namespace,
        name=name,
        asked_ms=now_ms,
        place=logged_status.place,
        age_ms=logged_status.age_ms(now_ms),
        left=_left(status),
        pace_per_min=_pace_per_min(status),
        findings=list(_findings(status)),
        status=status,
    )


def ended(status: JobStatus) -> str:
    """Return ``Complete`` or ``Failed``; "": the Job is active."""
    return next((one.type for one in status.conditions if one.type in {"Complete", "Failed"}), "")


def condition(status: JobStatus) -> str:
    """Return how the Job ended, else ``suspended``, ``running`` or ``no pod runs``."""
    if end := ended(status):
        return end
    if any(one.type == "Suspended" and one.status == "True" for one in status.conditions):
        return "suspended"
    return "running" if status.active or status.terminating else "no pods are running"


def _left(status: JobStatus) -> int | None:
    if status.spec is None or status.spec.completions is None or ended(status):
        return None
    return max(0, status.spec.completions - status.succeeded)


def _pace_per_min(status: JobStatus) -> float | None:
    points = status.progress[-PACE_POINTS:]
    if ended(status) or len(points) < 2 or points[-1].seen_ms <= points[0].seen_ms:
        return None
    span_min = (points[-1].seen_ms - points[0].seen_ms) / 60_000
    return max(0, points[-1].succeeded - points[0].succeeded) / span_min


def _findings(status: JobStatus) -> Iterator[Finding]:
    spec = status.spec
    failed = next((one for one in status.conditions if one.type in {"FailureTarget", "Failed"}), None)
    if failed is not None:
        yield Finding(
            name="job.failed",
            text=f"the Job failed, and does not restart: {failed.reason}: {failed.message}",
        )
    elif spec is not None and status.failed and not ended(status) and not _per_index(status):
        name = "job.backoff-near" if 2 * status.failed > spec.backoff_limit else "job.failures"
        text = (
            f"{count(status.failed, 'failure')} of the {spec.backoff_limit + 1} that fail the Job (backoffLimit "
            f"{spec.backoff_limit})"
        )
        yield Finding(name=name, text=text)
    if status.failed_indexes:
        text = f"permanently failed indexes: {status.failed_indexes[:200]}"
        yield Finding(name="job.failed-indexes", text=text)
    if status.evictions:
        ignored = any(one.why.endswith(": Ignore") for one in status.failures)
        counts = (
            ""
            if ignored
            else "add a podFailurePolicy that ignores DisruptionTarget, so that evictions do not count as failures; "
        )
        yield Finding(
            name="job.evicted",
            text=f"Slacktide evicted {status.evictions} of its pods",
            advice=f"{counts}save progress regularly, so that an eviction loses little work; see slacktide explain pod",
        )
    yield from ignored_findings("job", [] if spec is None else spec.ignored)
    if status.unseen_succeeded or status.unseen_failed:
        yield Finding(
            name="job.unseen",
            text=f"known only from the Job controller: {count(status.unseen_succeeded, 'pod')} that succeeded and "
            f"{count(status.unseen_failed, 'pod')} that failed, when no bridge was running",
        )


def _per_index(status: JobStatus) -> bool:
    return status.spec is not None and status.spec.backoff_limit_per_index is not None
