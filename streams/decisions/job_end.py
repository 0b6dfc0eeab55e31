"""Rules of the Job controller: the condition by which a Job ends, failed pods, and completion indexes.

Reading: Kubernetes v1.34.4, pkg/controller/job: job_controller.go (syncJob, isPodFailed), success_policy.go,
pod_failure_policy.go, indexed_job_utils.go.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.schemas.job_pod import INDEXES_MAX, Action, FailureRule, JobCondition, JobPodFacts, JobSpec

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
    if counts.fail_job:
        return _condition(FAILURE, "PodFailurePolicy", counts.fail_job)
    restarted_too_often = spec.restarts_on_failure and counts.restarts >= max(1, spec.backoff_limit)
    if counts.failed > spec.backoff_limit or restarted_too_often:
        return _condition(FAILURE, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if spec.indexed and spec.backoff_limit_per_index is not None:
        failed = counts.failed_indexes
        if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _condition(FAILURE, "MaxFailedIndexesExceeded", message)
        if failed and failed + counts.succeeded >= (spec.completions or 0):
            return _condition(FAILURE, "FailedIndexes", "Job has failed indexes")
    return _success(spec, counts)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The podFailurePolicy's result for a failed pod."""

    rule: int | None
    action: Action | None
    counted: bool
    """Whether it counts towards ``failed`` and the limits."""
    message: str
    """Message of the condition if the rule fails the Job."""


def has_failed(pod: JobPodFacts, spec: JobSpec, *, job_fails: bool) -> bool:
    """Return whether the pod failed. Deleted pods often count before they end; immediately if ``job_fails``."""
    if pod.phase == "Failed":
        return True
    return pod.deleting and pod.phase != "Succeeded" and (job_fails or not spec.replaces_failed_only)


def match(rules: Sequence[FailureRule] | None, pod: JobPodFacts, namespace: str, *, per_index: bool) -> Matched:
    """Return the first rule that matches. Skip ``FailIndex`` rules if the Job has no limit per index."""
    for number, rule in enumerate(rules or ()):
        if rule.action == "FailIndex" and not per_index:
            continue
        name = f"{namespace}/{pod.name}"
        if rule.operator:
            exits = [one for one in pod.exits if one.exit_code and rule.container in {None, one.name}]
            met = [
                f"Container {one.name} for pod {name} failed with exit code {one.exit_code}"
                for one in exits
                if (one.exit_code in rule.values) == (rule.operator == "In")
            ]
        else:
            conditions = pod.pod_conditions.items()
            met = [
                f"Pod {name} has condition {type_}"
                for type_, is_ in conditions
                if rule.pod_conditions.get(type_) == is_
            ]
        if what := next(iter(met), ""):
            message = f"{what} matching {rule.action} rule at index {number}" if rule.action == "FailJob" else ""
            return Matched(rule=number, action=rule.action, counted=rule.action != "Ignore", message=message)
    return Matched(rule=None, action=None, counted=True, message="")


def index_text(indexes: Iterable[int]) -> str:
    """Format indexes. Two consecutive indexes are joined by a comma, three or more by a dash."""
    parts: list[str] = []
    first = last = -2
    for index in (*sorted(indexes), -2):
        if index == last + 1:
            last = index
            continue
        if first >= 0:
            parts.append(str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}")
        first = last = index
    return ",".join(parts)


def indexes_of(text: str, completions: int | None) -> set[int]:
    """Parse the indexes below ``completions``, at most 100,000. Ignore invalid ranges."""
    below = INDEXES_MAX if completions is None else completions
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not _is_index(first) or (dash and not _is_index(last)):
            continue
        begin, end = int(first), min(int(last) if dash else int(first), below - 1)
        found.update(range(begin, min(end, begin + INDEXES_MAX - len(found) - 1) + 1))
    return found


def _is_index(text: str) -> bool:
    return len(text) <= 10 and text.isascii() and text.isdecimal()
