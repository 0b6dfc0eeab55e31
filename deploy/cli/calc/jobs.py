"""The case of a Job's status."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.forms import Given
from slacktide.schemas.bounds import Name, TimeMs
from slacktide.schemas.job_pod import ControllerStatus, JobEvent, JobPodFacts, JobSpec
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.jobs.fold import JobFold


class GivenEvent(Given, frozen=True, kw_only=True):
    """The Job or one of its pods at a time."""

    observed_ms: TimeMs = 0
    spec: JobSpec | None = None
    counted: ControllerStatus | None = None
    pod: JobPodFacts | None = None


class JobStatusInput(Given, frozen=True, kw_only=True):
    """A Job and its events in order, as in slacktide.job.pod.v1."""

    namespace: Name = "default"
    name: Name = "job"
    spec: JobSpec
    events: Annotated[list[GivenEvent], msgspec.Meta(max_length=10_000)] = []


def calc_job_status(given: JobStatusInput) -> Calculated:
    """Compute the Job's status."""
    fold = JobFold()
    first = GivenEvent(spec=given.spec)
    for offset, one in enumerate([first, *given.events]):
        event = JobEvent(
            uid="job",
            namespace=given.namespace,
            name=given.name,
            observed_ms=one.observed_ms,
            spec=one.spec,
            counted=one.counted,
            pod=one.pod,
        )
        fold.take(event, offset)
    status = fold.status()
    output = msgspec.to_builtins(status)
    for field in ("uid", "namespace", "name", "folded_to", "observed_ms", "spec", "counted"):
        output.pop(field, None)
    bound = "open" if status.decided is None else status.decided.reason
    terms: Terms = {
        "active_count": status.active,
        "terminating_count": status.terminating,
        "succeeded_count": status.succeeded,
        "failed_count": status.failed,
        "backoff_limit": given.spec.backoff_limit,
    }
    return Calculated(output=output, because=[Because(of="conditions", bound=bound, terms=terms)])
