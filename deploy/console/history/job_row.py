"""A Job's row in the list. Pure."""

from __future__ import annotations

from typing import get_args

import msgspec

from slacktide.schemas.job_status import JobStatus
from slacktide.streams.explain.evidence import Logged, Severity
from slacktide.streams.explain.job import condition, explain_job

WORST_FIRST: tuple[Severity, ...] = tuple(reversed(get_args(Severity)))


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Job."""

    job: str
    """NAMESPACE/NAME."""
    condition: str
    severity: Severity
    """The worst of its findings."""
    of: int | None
    """Required completions; None: not fixed."""
    active: int
    succeeded: int
    failed: int
    evictions: int
    lost_core_s: int
    place: str
    """Position of the status record."""
    observed_ms: int
    logged_ms: int

    @property
    def newness(self) -> tuple[int, int]:
        """Return the sort key of Jobs of the same name. The greatest is shown."""
        return self.observed_ms, self.logged_ms

    @property
    def order(self) -> tuple[int, bool, str]:
        """Return the sort key of rows: problems first, active before completed."""
        return WORST_FIRST.index(self.severity), self.condition == "Complete", self.job


def job_row(one: Logged[JobStatus]) -> JobRow:
    """Return the row of a status."""
    status = one.body
    job = explain_job((one,), status.namespace, status.name, one.place.logged_ms)
    assert job is not None  # callers pass existing Jobs only
    return JobRow(
        job=f"{status.namespace}/{status.name}",
        condition=condition(status),
        severity=min((each.severity for each in job.findings), key=WORST_FIRST.index, default="ok"),
        of=None if status.spec is None else status.spec.completions,
        active=status.active,
        succeeded=status.succeeded,
        failed=status.failed,
        evictions=status.evictions,
        lost_core_s=round(status.lost_core_ms / 1_000),
        place=str(one.place),
        observed_ms=status.observed_ms,
        logged_ms=one.place.logged_ms,
    )


def unpack_row(packed: bytes) -> JobRow:
    """Decode a row from MessagePack."""
    return msgspec.msgpack.decode(packed, type=JobRow)
