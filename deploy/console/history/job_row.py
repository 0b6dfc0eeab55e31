"""A Job as a list of Jobs shows it. Pure."""

from __future__ import annotations

from typing import get_args

import msgspec

from slacktide.schemas.job_status import JobStatus
from slacktide.streams.explain.evidence import Logged, Severity
from slacktide.streams.explain.job import condition, explain_job

WORST_FIRST: tuple[Severity, ...] = tuple(reversed(get_args(Severity)))


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Job by its status."""

    job: str
    """NAMESPACE/NAME."""
    condition: str
    severity: Severity
    """The worst of its findings."""
    of: int | None
    """Completions that it needs; None: not fixed."""
    active: int
    succeeded: int
    failed: int
    evictions: int
    lost_core_s: int
    place: str
    """Of the status."""
    observed_ms: int
    logged_ms: int

    @property
    def newness(self) -> tuple[int, int]:
        """Of Jobs of one name the greatest is shown."""
        return self.observed_ms, self.logged_ms

    @property
    def order(self) -> tuple[int, bool, str]:
        """In trouble first; what runs comes before what has ended well."""
        return WORST_FIRST.index(self.severity), self.condition == "Complete", self.job


def job_row(one: Logged[JobStatus]) -> JobRow:
    """The row of one status."""
    status = one.body
    job = explain_job((one,), status.namespace, status.name, one.place.logged_ms)
    assert job is not None  # it is the one that is given
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
    """A row that was packed with MessagePack."""
    return msgspec.msgpack.decode(packed, type=JobRow)
