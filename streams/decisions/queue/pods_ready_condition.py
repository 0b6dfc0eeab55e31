"""Whether the pods of a workload are ready, and what its condition ``PodsReady`` becomes.

Reading: kueue v0.19.2, pkg/controller/jobframework/reconciler.go, generatePodsReadyCondition;
pkg/controller/jobs/job/job_controller.go, PodsReady.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slacktide.streams.decisions.queue.queue_order import Condition


class JobProgress(NamedTuple):
    """Pods of a Job."""

    parallelism: int
    completions: int | None = None
    succeeded: int = 0
    ready: int = 0
    uncounted_succeeded: int = 0
    """Succeeded pods that the Job controller has not counted yet."""

    @property
    def spec_count(self) -> int:
        """Pods that run at a time."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def pods_ready(self) -> bool:
        """Whether all pods that run at a time are ready or done."""
        return self.succeeded + self.ready + self.uncounted_succeeded >= self.spec_count


def pods_ready_condition(old: Condition | None, *, admitted: bool, ready: bool) -> tuple[bool, str]:
    """Status and reason: whoever was ready once and is no more, waits for recovery."""
    reason = "" if old is None else old.reason
    if not admitted:
        return False, "WaitForStart"
    if ready:
        return True, "Recovered" if reason in {"WaitForRecovery", "Recovered"} else "Started"
    if old is not None and (old.status or reason == "WaitForRecovery"):
        return False, "WaitForRecovery"
    return False, "WaitForStart"


def admission_open(*, block_admission: bool, holding: Iterable[Condition | None]) -> bool:
    """Whether a workload may be admitted: with ``blockAdmission`` only while all that hold quota are ready.

    Args:
        block_admission: the setting.
        holding: the condition ``PodsReady`` of each workload that holds quota, in any ClusterQueue.

    """
    return not block_admission or all(one is not None and one.status for one in holding)
