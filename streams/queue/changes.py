"""Converts results of rules to fields of records: timeouts for ready pods, pod sets, evictions."""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.schemas.bounds import AMOUNT_MAX, INT64_MAX
from slacktide.schemas.queue import (
    REQUEUING_LIMIT,
    PodsReadySettings,
    QueueEviction,
    QueueParty,
    QueuePodSet,
    QueueState,
    Result,
)
from slacktide.streams.decisions.queue.assign import Assignment
from slacktide.streams.decisions.queue.cycle import Eviction, Party
from slacktide.streams.decisions.queue.job import (
    PodsReadyAction,
    PodsReadyConfig,
    Waiting,
    pods_ready_action,
    pods_ready_condition,
)
from slacktide.streams.decisions.queue.queue_order import Condition

TIMEOUT = "PodsReadyTimeout"
NOTHING_DUE = PodsReadyAction("none")


def ready_reason(state: QueueState, result: Result) -> str:
    """Return the reason of the condition PodsReady after an outcome; "": its pods were never ready."""
    old = _condition(state)
    _, reason = pods_ready_condition(old, admitted=True, ready=result == "ready")
    return "" if reason == "WaitForStart" else reason


def action(state: QueueState, settings: PodsReadySettings | None, now_ms: int) -> PodsReadyAction:
    """Return the action for an admitted workload."""
    if settings is None or state.booking is None or state.phase != "reserved" or state.pods_ready:
        return NOTHING_DUE
    waiting = Waiting(
        state.booking.reserved_ms // 1_000, pods_ready=_condition(state), requeue_count=state.requeue_count
    )
    return pods_ready_action(waiting, _config(settings), now_ms // 1_000)


def evicted(done: PodsReadyAction, now_ms: int) -> tuple[str, Mapping[str, object]]:
    """Return the reason of an eviction, and the fields that it changes."""
    if done.action == "deactivate":
        return REQUEUING_LIMIT, {"evicted_ms": now_ms, "evicted_reason": "Deactivated"}
    return TIMEOUT, {
        "evicted_ms": now_ms,
        "evicted_reason": TIMEOUT,
        "requeue_count": done.requeue_count,
        "retry_ms": done.requeue_at_s * 1_000,
    }


def _condition(state: QueueState) -> Condition | None:
    if not state.ready_reason:
        return None
    return Condition(state.ready_reason, state.ready_ms // 1_000, state.pods_ready)


def _config(given: PodsReadySettings) -> PodsReadyConfig:
    return PodsReadyConfig(
        given.timeout_s,
        given.recovery_timeout_s,
        given.backoff_base_s,
        given.backoff_max_s,
        corrected=True,
        backoff_limit_count=given.backoff_limit,
    )


def pod_sets_of(done: Assignment) -> list[QueuePodSet]:
    """Return the pod sets of an assignment."""
    return [
        QueuePodSet(
            name=one.name,
            count=one.pods,
            flavors={resource: one.flavors[resource].flavor for resource in sorted(one.flavors)},
            usage={resource: min(one.requests[resource], INT64_MAX) for resource in sorted(one.flavors)},
        )
        for one in done.pod_sets
    ]


def eviction_record(one: Eviction) -> QueueEviction:
    """Return the record of an eviction."""
    return QueueEviction(cycle=one.cycle, preemptor=_party(one.preemptor), victim=_party(one.victim), reason=one.reason)


def _party(one: Party) -> QueueParty:
    return QueueParty(
        uid=one.uid,
        cluster_queue=one.queue,
        priority=one.priority,
        share_before=min(one.share_before, float(AMOUNT_MAX)),
        share_after=min(one.share_after, float(AMOUNT_MAX)),
    )
