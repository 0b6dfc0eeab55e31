"""Computes the condition ``PodsReady``, timeouts for ready pods, and the backoff after an eviction.

Reading: kueue v0.19.2, pkg/controller/core/workload_controller.go; pkg/util/wait; pkg/controller/jobframework/
reconciler.go, generatePodsReadyCondition; pkg/controller/jobs/job/job_controller.go, PodsReady. The reference adds up
to 0.01% of random jitter to a backoff; this does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.queue_order import Condition

BACKOFF_S_MAX = 4_611_686_018
"""Half of the maximum in nanoseconds: the default."""
Action = Literal["none", "recheck", "evict", "deactivate"]


class PodsReadyConfig(NamedTuple):
    """Kueue's ``waitForPodsReady``."""

    timeout_s: int = 1_800
    recovery_timeout_s: int = 0
    """0: a workload whose pods were ready once is not evicted."""
    backoff_base_s: int = 60
    backoff_max_s: int = 3_600
    """0: no maximum."""
    corrected: bool = False
    """Apply the maximum to the first backoff, too."""
    backoff_limit_count: int | None = None
    """Maximum number of evictions; the next one deactivates. None: no limit."""


class Waiting(NamedTuple):
    """A workload that may wait for ready pods."""

    admitted_at_s: int | None
    active: bool = True
    evicted: bool = False
    pods_ready: Condition | None = None
    requeue_count: int = 0
    requeue_at_s: int | None = None


class PodsReadyAction(NamedTuple):
    """The action for a workload, and its cause."""

    action: Action
    cause: str = ""
    """``WaitForStart`` or ``WaitForRecovery``; "": it does not wait."""
    after_s: int = 0
    """Time until the next check; negative: time since the timeout."""
    backoff_s: int = 0
    requeue_count: int = 0
    requeue_at_s: int = 0


def pods_ready_action(one: Waiting, config: PodsReadyConfig | None, now_s: int) -> PodsReadyAction:
    """Return the action: check later, evict, or deactivate after too many evictions."""
    cause, left_s = _left(one, config, now_s) if config is not None else ("", 0)
    if config is None or not cause:
        return PodsReadyAction("none")
    if left_s > 0:
        return PodsReadyAction("recheck", cause, left_s)
    count = one.requeue_count + 1
    if config.backoff_limit_count is not None and count > config.backoff_limit_count:
        return PodsReadyAction("deactivate", cause, left_s, requeue_count=one.requeue_count)
    backoff = backoff_s(count, config)
    at_s = now_s + backoff if one.requeue_at_s is None else max(now_s + backoff, one.requeue_at_s)
    return PodsReadyAction("evict", cause, left_s, backoff, count, at_s)


def backoff_s(count: int, config: PodsReadyConfig) -> int:
    """Return the base, doubled with each eviction after the first. The reference does not limit the first."""
    most = config.backoff_max_s or BACKOFF_S_MAX
    waits = min(config.backoff_base_s, most) if config.corrected else config.backoff_base_s
    for _ in range(count - 1 if waits else 0):
        waits *= 2
        if waits > most:
            return most
    return waits


def _left(one: Waiting, config: PodsReadyConfig, now_s: int) -> tuple[str, int]:
    condition = one.pods_ready
    if one.admitted_at_s is None or not one.active or one.evicted or (condition is not None and condition.status):
        return "", 0
    if condition is None or condition.reason in {"WaitForStart", "PodsReady"}:
        return "WaitForStart", config.timeout_s - (now_s - one.admitted_at_s)
    if condition.reason == "WaitForRecovery" and config.recovery_timeout_s > 0:
        return "WaitForRecovery", config.recovery_timeout_s - (now_s - condition.at_s)
    return "", 0


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
