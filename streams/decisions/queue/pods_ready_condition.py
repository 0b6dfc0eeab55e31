"""Computes whether the pods of a workload are ready, and its condition ``PodsReady``.

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
        """Return the number of parallel pods."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def pods_ready(self) -> bool:
        """Return whether all parallel pods are ready or finished."""
        return self.succeeded + self.ready + self.uncounted_succeeded >= self.spec_count


def pods_ready_condition(old: Condition | None, *, admitted: bool, ready: bool) -> tuple[bool, str]:
    """Return status and reason. A workload whose pods were ready before waits for recovery."""
    reason = "" if old is None else old.reason
    if not admitted:
        return False, "WaitForStart"
    if ready:
        return True, "Recovered" if reason in {"WaitForRecovery", "Recovered"} else "Started"
    if old is not None and (old.status or reason == "WaitForRecovery"):
        return False, "WaitForRecovery"
    return False, "WaitForStart"


def admission_open(*, block_admission: bool, holding: Iterable[Condition | None]) -> bool:
    """Return whether workloads may be admitted. With ``block_admission``, all that hold quota must have ready pods."""
    return not block_admission or all(one is not None and one.status for one in holding)
