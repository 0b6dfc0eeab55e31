"""``slacktide calc queue_pods_ready_condition``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.queue.queue_case import GivenCondition, QueueAmount
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.pods_ready import JobProgress, pods_ready_condition


class GivenProgress(Given, frozen=True, kw_only=True):
    """Pod counts of a Job; absent counts are 0, absent completions are not set."""

    parallelism: QueueAmount = 1
    completions: QueueAmount | None = None
    succeeded: QueueAmount | None = None
    ready: QueueAmount | None = None
    uncounted_succeeded: QueueAmount | None = None

    def progress(self) -> JobProgress:
        """Convert to the rule's type."""
        return JobProgress(
            parallelism=self.parallelism,
            completions=self.completions,
            succeeded=self.succeeded or 0,
            ready=self.ready or 0,
            uncounted_succeeded=self.uncounted_succeeded or 0,
        )


class Input(GivenProgress, frozen=True, kw_only=True):
    """A Job, and its workload's old condition."""

    admitted: bool
    pods_ready: GivenCondition | None = None


def calculate(given: Input) -> Calculated:
    """Compute the PodsReady condition of a workload."""
    progress = given.progress()
    old = None if given.pods_ready is None else given.pods_ready.condition()
    status, reason = pods_ready_condition(old, admitted=given.admitted, ready=progress.pods_ready)
    terms: Terms = {
        "succeeded_count": progress.succeeded,
        "ready_count": progress.ready,
        "uncounted_succeeded_count": progress.uncounted_succeeded,
        "spec_count": progress.spec_count,
    }
    return Calculated(
        output={"status": status, "reason": reason}, because=[Because(of="status", bound=reason, terms=terms)]
    )
