"""``slacktide calc queue_pods_ready``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given, Seconds
from slacktide.deploy.cli.calc.queue.queue_case import GivenCondition
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.pods_ready import PodsReadyAction, PodsReadyConfig, Waiting, pods_ready_action

Duration = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class GivenConfig(Given, frozen=True, kw_only=True):
    """The settings. Absent ones have their defaults; without ``recovery_timeout_seconds`` that timeout is off."""

    timeout_seconds: Duration = PodsReadyConfig().timeout_s
    recovery_timeout_seconds: Duration | None = None
    backoff_base_seconds: Duration = PodsReadyConfig().backoff_base_s
    backoff_max_seconds: Duration = PodsReadyConfig().backoff_max_s
    backoff_limit_count: Count | None = None
    corrected: bool = False
    """The maximum also bounds the first backoff."""

    def config(self) -> PodsReadyConfig:
        """Convert to the rule's type."""
        return PodsReadyConfig(
            timeout_s=self.timeout_seconds,
            recovery_timeout_s=self.recovery_timeout_seconds or 0,
            backoff_base_s=self.backoff_base_seconds,
            backoff_max_s=self.backoff_max_seconds,
            backoff_limit_count=self.backoff_limit_count,
            corrected=self.corrected,
        )


class GivenWaiting(Given, frozen=True, kw_only=True):
    """A workload."""

    active: bool = True
    admitted_at_seconds: Seconds | None = None
    evicted: bool = False
    pods_ready: GivenCondition | None = None
    requeue_count: Count | None = None
    requeue_at_seconds: Seconds | None = None

    def waiting(self) -> Waiting:
        """Convert to the rule's type."""
        return Waiting(
            admitted_at_s=self.admitted_at_seconds,
            active=self.active,
            evicted=self.evicted,
            pods_ready=None if self.pods_ready is None else self.pods_ready.condition(),
            requeue_count=self.requeue_count or 0,
            requeue_at_s=self.requeue_at_seconds,
        )


class Input(Given, frozen=True, kw_only=True):
    """A workload at a time; without settings, no workload waits for pods."""

    now_seconds: Seconds
    config: GivenConfig | None = None
    workload: GivenWaiting


def calculate(given: Input) -> Calculated:
    """Decide the action on an admitted workload without ready pods."""
    config = None if given.config is None else given.config.config()
    done = pods_ready_action(given.workload.waiting(), config, given.now_seconds)
    terms: Terms = {"left_s": done.after_s, "requeue_count": done.requeue_count} if done.cause else {}
    return Calculated(output=_shown(done), because=[Because(of="action", bound=done.cause or "none", terms=terms)])


def _shown(done: PodsReadyAction) -> dict[str, object]:
    output: dict[str, object] = {"action": done.action}
    if done.cause:
        output["cause"] = done.cause
    if done.action == "recheck":
        output["after_seconds"] = done.after_s
    if done.action == "evict":
        output |= {
            "backoff_seconds": done.backoff_s,
            "requeue_count": done.requeue_count,
            "requeue_at_seconds": done.requeue_at_s,
        }
    return output
