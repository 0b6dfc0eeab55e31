"""Decides whether a pod has failed, and which podFailurePolicy rule it matches.

Reading: Kubernetes v1.34.4, pkg/controller/job/pod_failure_policy.go and job_controller.go (isPodFailed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.job_pod import Action, FailureRule, JobPodFacts, JobSpec


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
        if what := _by_exit(rule, pod, namespace) if rule.operator else _by_condition(rule, pod, namespace):
            message = f"{what} matching {rule.action} rule at index {number}" if rule.action == "FailJob" else ""
            return Matched(rule=number, action=rule.action, counted=rule.action != "Ignore", message=message)
    return Matched(rule=None, action=None, counted=True, message="")


def _by_exit(rule: FailureRule, pod: JobPodFacts, namespace: str) -> str:
    for one in pod.exits:
        met = one.exit_code and rule.container in {None, one.name}
        if met and (one.exit_code in rule.values) == (rule.operator == "In"):
            return f"Container {one.name} for pod {namespace}/{pod.name} failed with exit code {one.exit_code}"
    return ""


def _by_condition(rule: FailureRule, pod: JobPodFacts, namespace: str) -> str:
    for type_, status in pod.pod_conditions.items():
        if rule.pod_conditions.get(type_) == status:
            return f"Pod {namespace}/{pod.name} has condition {type_}"
    return ""
