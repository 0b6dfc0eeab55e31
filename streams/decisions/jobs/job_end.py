"""Computes the condition by which a Job ends.

Reading: Kubernetes v1.34.4, pkg/controller/job/job_controller.go (syncJob) and success_policy.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.schemas.job_pod import JobCondition, JobSpec

FAILURE, SUCCESS = "FailureTarget", "SuccessCriteriaMet"


class RuleProgress(NamedTuple):
    """Progress of one successPolicy rule."""

    indexes: int | None
    succeeded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Pod counts of a Job."""

    active: int
    succeeded: int
    failed: int
    restarts: int
    """Container restarts in pending and running pods."""
    failed_indexes: int = 0
    success_rules: Sequence[RuleProgress] = ()
    fail_job: str = ""
    """Message of a rule that fails the Job; "": no rule matched."""


def job_end(spec: JobSpec, counts: Counts) -> JobCondition | None:
    """Return the condition by which the Job ends, failures first as in the controller; None if it continues."""
    return _failure(spec, counts) or _success(spec, counts)


def _failure(spec: JobSpec, counts: Counts) -> JobCondition | None:
    if counts.fail_job:
        return _condition(FAILURE, "PodFailurePolicy", counts.fail_job)
    if counts.failed > spec.backoff_limit or _restarted_too_often(spec, counts.restarts):
        return _condition(FAILURE, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if spec.indexed and spec.backoff_limit_per_index is not None:
        failed = counts.failed_indexes
        if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _condition(FAILURE, "MaxFailedIndexesExceeded", message)
        if failed and failed + counts.succeeded >= (spec.completions or 0):
            return _condition(FAILURE, "FailedIndexes", "Job has failed indexes")
    return None


def _restarted_too_often(spec: JobSpec, restarts: int) -> bool:
    return spec.restarts_on_failure and restarts >= max(1, spec.backoff_limit)


def _success(spec: JobSpec, counts: Counts) -> JobCondition | None:
    if spec.indexed and counts.succeeded:
        for number, (rule, there) in enumerate(zip(spec.success_rules or (), counts.success_rules, strict=True)):
            enough = rule.count is not None and there.succeeded >= rule.count
            if there.indexes != 0 and (enough or there.succeeded == there.indexes):
                return _condition(SUCCESS, "SuccessPolicy", f"Matched rules at index {number}")
    wanted_count = 1 if spec.completions is None else spec.completions
    if counts.succeeded >= wanted_count and not counts.active:
        return _condition(SUCCESS, "CompletionsReached", "Reached expected number of succeeded pods")
    return None


def _condition(type_: str, reason: str, message: str) -> JobCondition:
    return JobCondition(type=type_, reason=reason, message=message)
