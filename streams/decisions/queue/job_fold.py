"""Folds the pod events of a Job into the status that the Job controller would report, with reasons.

Each event is the current state of a pod, or its deletion. Events may be repeated or missing; a pod counts once.

Reading: kubernetes v1.34, pkg/controller/job: job_controller.go (syncJob, trackJobStatusAndRemoveFinalizers),
pod_failure_policy.go, indexed_job_utils.go, backoff_utils.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from slacktide.schemas.bounds import INT32_MAX

Action = Literal["Ignore", "FailIndex", "FailJob", "Count"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
DISRUPTED = "DisruptionTarget"
BACKOFF_LIMIT = 6


class FailureRule(NamedTuple):
    """A ``podFailurePolicy`` rule, by exit codes or pod conditions."""

    action: Action
    exit_codes: frozenset[int] = frozenset()
    exit_codes_in: bool = True
    """False: the operator NotIn."""
    container: str | None = None
    """None: any."""
    conditions: tuple[tuple[str, str], ...] = ()


class JobSpec(NamedTuple):
    """The fields of a Job that its status depends on."""

    parallelism: int = 1
    completions: int | None = None
    indexed: bool = False
    backoff_limit: int | None = None
    """None: 6, or no limit if there is one per index."""
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    failure_rules: tuple[FailureRule, ...] | None = None
    """None: no policy; a pod that is deleted while it runs counts as failed immediately."""
    replaces_failed_only: bool = False
    """``podReplacementPolicy`` Failed: a deleted pod counts once it has ended."""
    restarts_in_place: bool = False
    """``restartPolicy`` OnFailure: container restarts count against the limit."""

    @property
    def failures_max(self) -> int:
        """Return the maximum number of failures."""
        if self.backoff_limit is not None:
            return self.backoff_limit
        return BACKOFF_LIMIT if self.backoff_limit_per_index is None else INT32_MAX


class JobPod(NamedTuple):
    """A pod of a Job."""

    uid: str
    phase: Phase = "Pending"
    completion_index: int | None = None
    index_failures: int = 0
    deleting: bool = False
    ready: bool = False
    exit_codes: tuple[tuple[str, int], ...] = ()
    """Of ended containers, including init containers."""
    conditions: Mapping[str, str] = {}
    """Status by type."""
    restarts: int = 0
    cpu_milli: int = 0
    started_s: int | None = None
    ended_s: int | None = None
    """When its last container ended, or it was deleted."""

    @property
    def active(self) -> bool:
        """Return whether it has not ended and is not being deleted."""
        return self.phase not in {"Succeeded", "Failed"} and not self.deleting

    @property
    def terminating(self) -> bool:
        """Return whether it is being deleted and has not ended."""
        return self.phase not in {"Succeeded", "Failed"} and self.deleting


class JobStatus(NamedTuple):
    """The state of a Job; the first fields are named as in the Job's status."""

    active: int
    ready: int
    terminating: int
    succeeded: int
    failed: int
    completed_indexes: str
    failed_indexes: str
    finished: Literal["", "Complete", "Failed"]
    reason: str
    ignored: int
    failures_by_rule: Mapping[str, int]
    """By index and action of the rule, such as ``1 Ignore``; "none": no rule matched."""
    evicted: int
    """Failures with the condition DisruptionTarget."""
    lost_core_s: float
    """Requested CPU time of failed pods."""


class JobFold:
    """Folds the pod events of one Job."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._pods: dict[str, JobPod] = {}
        self._counted: set[str] = set()
        self._active, self._succeeded, self._failed, self._ignored, self._evicted = 0, 0, 0, 0, 0
        self._done: set[int] = set()
        self._failed_indexes: set[int] = set()
        self._by_rule: Counter[str] = Counter()
        self._lost_core_s = 0.0
        self._finished: tuple[Literal["", "Complete", "Failed"], str] = ("", "")

    def changed(self, spec: JobSpec) -> None:
        """Apply a scaled spec. Indexes beyond its completions are forgotten, and run again after it grows."""
        self.spec = spec
        if spec.completions is not None:
            self._done = {index for index in self._done if index < spec.completions}
            self._failed_indexes = {index for index in self._failed_indexes if index < spec.completions}
        self._finish(None)

    def seen(self, pod: JobPod) -> None:
        """Take the current state of a pod."""
        before = self._pods.get(pod.uid)
        self._active += pod.active - (before is not None and before.active)
        self._pods[pod.uid] = pod
        action = None
        if pod.uid not in self._counted:
            if pod.phase == "Succeeded":
                self._counted.add(pod.uid)
                self._count_success(pod)
            elif self._has_failed(pod):
                self._counted.add(pod.uid)
                action = self._count_failure(pod)
        self._finish(action)

    def gone(self, uid: str) -> None:
        """Take the deletion of a pod. A pod that had not ended counts as failed."""
        pod = self._pods.pop(uid, None)
        self._active -= pod is not None and pod.active
        action = None
        if pod is not None and uid not in self._counted:
            action = self._count_failure(pod._replace(phase="Failed"))
        self._counted.discard(uid)
        self._finish(action)

    def status(self) -> JobStatus:
        """Return the state of the Job."""
        pods = self._pods.values()
        finished, reason = self._finished
        return JobStatus(
            active=self._active,
            ready=sum(one.active and one.ready for one in pods),
            terminating=sum(one.terminating for one in pods),
            succeeded=len(self._done) if self.spec.indexed else self._succeeded,
            failed=self._failed,
            completed_indexes=indexes_text(self._done),
            failed_indexes=indexes_text(self._failed_indexes),
            finished=finished,
            reason=reason,
            ignored=self._ignored,
            failures_by_rule=dict(sorted(self._by_rule.items())),
            evicted=self._evicted,
            lost_core_s=self._lost_core_s,
        )

    def _has_failed(self, pod: JobPod) -> bool:
        """Return whether the pod failed. A pod being deleted must end first under a policy or Failed replacement."""
        waits = self.spec.failure_rules is not None or self.spec.replaces_failed_only
        return pod.phase == "Failed" or (pod.deleting and not waits)

    def _count_success(self, pod: JobPod) -> None:
        if not self.spec.indexed:
            self._succeeded += 1
        elif pod.completion_index is not None and self._is_wanted(pod.completion_index):
            self._done.add(pod.completion_index)

    def _count_failure(self, pod: JobPod) -> Action | None:
        """Count a failure by its rule and return the action; skip indexes that are no longer needed."""
        if self.spec.indexed and not self._is_wanted(pod.completion_index):
            return None
        at, action = self._matched(pod)
        self._by_rule["none" if at is None else f"{at} {action}"] += 1
        self._evicted += pod.conditions.get(DISRUPTED) == "True"
        if pod.started_s is not None and pod.ended_s is not None:
            self._lost_core_s += pod.cpu_milli / 1000 * max(0, pod.ended_s - pod.started_s)
        if action == "Ignore":
            self._ignored += 1
            return action
        self._failed += 1
        limit = self.spec.backoff_limit_per_index
        ends = limit is not None and (action == "FailIndex" or pod.index_failures >= limit)
        if ends and pod.completion_index is not None:
            self._failed_indexes.add(pod.completion_index)
        return action

    def _matched(self, pod: JobPod) -> tuple[int | None, Action | None]:
        for at, rule in enumerate(self.spec.failure_rules or ()):
            if rule_holds(rule, pod):
                return at, rule.action
        return None, None

    def _is_wanted(self, index: int | None) -> bool:
        return index is not None and 0 <= index < (self.spec.completions or 0)

    def _finish(self, action: Action | None) -> None:
        if self._finished[0]:
            return
        if (reason := self._failure(action)) is not None:
            self._finished = ("Failed", reason)
        elif self._is_complete():
            self._finished = ("Complete", "CompletionsReached")

    def _failure(self, action: Action | None) -> str | None:
        spec, failed = self.spec, len(self._failed_indexes)
        if action == "FailJob":
            return "PodFailurePolicy"
        if self._failed > spec.failures_max or self._restarted_too_often():
            return "BackoffLimitExceeded"
        if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
            return "MaxFailedIndexesExceeded"
        if failed and spec.completions is not None and failed + len(self._done) >= spec.completions:
            return "FailedIndexes"
        return None

    def _restarted_too_often(self) -> bool:
        if not self.spec.restarts_in_place:
            return False
        restarts = sum(one.restarts for one in self._pods.values() if one.phase in {"Pending", "Running"})
        return restarts >= max(1, self.spec.failures_max)

    def _is_complete(self) -> bool:
        """Return whether the Job is complete. Without completions, one success suffices once all pods ended."""
        if self.spec.completions is None:
            return self._succeeded > 0 and not self._active
        succeeded = len(self._done) if self.spec.indexed else self._succeeded
        return succeeded >= self.spec.completions


def rule_holds(rule: FailureRule, pod: JobPod) -> bool:
    """Return whether a rule matches a failed pod; containers with exit code 0 do not count."""
    if any(pod.conditions.get(kind) == status for kind, status in rule.conditions):
        return True
    codes = [code for name, code in pod.exit_codes if code and rule.container in {None, name}]
    return bool(rule.exit_codes) and any((code in rule.exit_codes) == rule.exit_codes_in for code in codes)


def indexes_text(indexes: Iterable[int]) -> str:
    """Format indexes as in a Job's status, such as ``0-3,5,7,8``: only three or more form a range."""
    parts: list[str] = []
    first = last = None
    for index in [*sorted(indexes), None]:
        if index is not None and last is not None and index == last + 1:
            last = index
            continue
        if first is not None and last is not None:
            parts += [str(first)] if first == last else [f"{first},{last}" if last == first + 1 else f"{first}-{last}"]
        first = last = index
    return ",".join(parts)
