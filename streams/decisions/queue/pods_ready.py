"""How long an admitted workload may wait for its pods, and how long it then waits to be tried again.

Reading: kueue v0.19.2, pkg/controller/core/workload_controller.go; pkg/util/wait. The reference adds up to 0.01% to a
backoff at random; here there is none.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.queue_order import Condition

BACKOFF_S_MAX = 4_611_686_018
"""Half of what nanoseconds can hold: the maximum where none is set."""
Action = Literal["none", "recheck", "evict", "deactivate"]


class PodsReadyConfig(NamedTuple):
    """Kueue's ``waitForPodsReady``."""

    timeout_s: int = 1_800
    recovery_timeout_s: int = 0
    """0: a workload whose pods were ready once is not evicted."""
    backoff_base_s: int = 60
    backoff_max_s: int = 3_600
    """0: without a maximum."""
    corrected: bool = False
    """The first backoff is held to the maximum, too."""
    backoff_limit_count: int | None = None
    """So many evictions; the next one deactivates. None: without a limit."""


class Waiting(NamedTuple):
    """A workload that may wait for its pods."""

    admitted_at_s: int | None
    """None: it is not admitted."""
    active: bool = True
    evicted: bool = False
    pods_ready: Condition | None = None
    requeue_count: int = 0
    requeue_at_s: int | None = None


class PodsReadyAction(NamedTuple):
    """What is to be done with a workload, and for which cause."""

    action: Action
    cause: str = ""
    """``WaitForStart`` or ``WaitForRecovery``; "": it is not waiting."""
    after_s: int = 0
    """When to look again; negative: since so long its time is over."""
    backoff_s: int = 0
    requeue_count: int = 0
    requeue_at_s: int = 0


def pods_ready_action(one: Waiting, config: PodsReadyConfig | None, now_s: int) -> PodsReadyAction:
    """Look again later, evict, or deactivate what was evicted too often."""
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
    """The base, doubled with each eviction after the first. The reference does not hold the first to the maximum."""
    most = config.backoff_max_s or BACKOFF_S_MAX
    waits = min(config.backoff_base_s, most) if config.corrected else config.backoff_base_s
    for _ in range(count - 1 if waits else 0):
        waits *= 2
        if waits > most:
            return most
    return waits


def _left(one: Waiting, config: PodsReadyConfig, now_s: int) -> tuple[str, int]:
    """For what it waits, and how much of the time is left."""
    condition = one.pods_ready
    if one.admitted_at_s is None or not one.active or one.evicted or (condition is not None and condition.status):
        return "", 0
    if condition is None or condition.reason in {"WaitForStart", "PodsReady"}:
        return "WaitForStart", config.timeout_s - (now_s - one.admitted_at_s)
    if condition.reason == "WaitForRecovery" and config.recovery_timeout_s > 0:
        return "WaitForRecovery", config.recovery_timeout_s - (now_s - condition.at_s)
    return "", 0
