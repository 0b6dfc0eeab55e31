"""What is published of Jobs and their pods. Pure. Only fields that a Job's status depends on are decoded."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, cast, get_args

import msgspec

from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.errors import QuantityError
from slacktide.schemas.job_pod import (
    CHARS_MAX,
    Action,
    ContainerExit,
    ControllerStatus,
    FailureRule,
    JobCondition,
    JobPodFacts,
    JobSpec,
    Phase,
    SuccessRule,
)
from slacktide.schemas.pod_resources import Amounts, Container, Needs, requests_of
from slacktide.schemas.units import cpu_milli, quantity

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
DISRUPTION = "DisruptionTarget"
CPU = "cpu_milli"
"""Batch CPU, if the pod requests it."""
BATCH_CPU = ("kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu")
INT32_MAX = 2**31 - 1
Json = dict[str, Any]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Part of an API object."""


class _Owner(_Shape, frozen=True, kw_only=True):
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(_Shape, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _Condition(_Shape, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class _Terminated(_Shape, frozen=True, kw_only=True):
    exit_code: int = 0
    finished_at: str | None = None


class _ContainerState(_Shape, frozen=True, kw_only=True):
    terminated: _Terminated | None = None


class _ContainerStatus(_Shape, frozen=True, kw_only=True):
    name: str
    state: _ContainerState = _ContainerState()
    restart_count: int = 0


class _PodStatus(_Shape, frozen=True, kw_only=True):
    phase: str = "Pending"
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    start_time: str | None = None


class _Resources(_Shape, frozen=True, kw_only=True):
    requests: dict[str, str] | None = None


class _Container(_Shape, frozen=True, kw_only=True):
    resources: _Resources = _Resources()
    restart_policy: str = ""


class _PodSpec(_Shape, frozen=True, kw_only=True):
    node_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    overhead: dict[str, str] | None = None


class Pod(_Shape, frozen=True, kw_only=True):
    """The decoded fields of a pod."""

    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def job_uid(self) -> str:
        """UID of the controlling Job; "": none."""
        owners = self.metadata.owner_references or ()
        return next((one.uid for one in owners if one.controller and one.kind == "Job"), "")

    @property
    def tracked(self) -> bool:
        """Whether the Job controller has not counted the pod yet."""
        return TRACKING in (self.metadata.finalizers or ())

    @property
    def ended(self) -> bool:
        """Whether the pod has terminated."""
        return self.status.phase in {"Succeeded", "Failed"}


class Job(_Shape, frozen=True, kw_only=True):
    """The decoded fields of a Job."""

    metadata: _Metadata
    spec: Json = {}
    status: Json = {}


def spec_of(job: Job) -> JobSpec:
    """Return the Job's spec, without unknown rules."""
    spec, policy, success = job.spec, job.spec.get("podFailurePolicy"), job.spec.get("successPolicy")
    template = spec.get("template", {}).get("spec", {})
    return JobSpec(
        completions=spec.get("completions"),
        parallelism=spec.get("parallelism", 1),
        indexed=spec.get("completionMode") == "Indexed",
        suspend=spec.get("suspend", False),
        backoff_limit=spec.get("backoffLimit", 6),
        backoff_limit_per_index=spec.get("backoffLimitPerIndex"),
        max_failed_indexes=spec.get("maxFailedIndexes"),
        replaces_failed_only=spec.get("podReplacementPolicy") == "Failed" or policy is not None,
        restarts_on_failure=template.get("restartPolicy") == "OnFailure",
        failure_rules=None
        if policy is None
        else [_rule(one) for one in policy.get("rules", ()) if one["action"] in get_args(Action)],
        success_rules=None
        if success is None
        else [
            SuccessRule(indexes=one.get("succeededIndexes", ""), count=one.get("succeededCount"))
            for one in success.get("rules", ())
        ],
    )


def counted_by(job: Job) -> ControllerStatus:
    """Return the Job's status by its controller."""
    status = job.status
    return ControllerStatus(
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        completed_indexes=status.get("completedIndexes", ""),
        failed_indexes=status.get("failedIndexes", ""),
        conditions=[
            JobCondition(
                type=one["type"],
                status=one["status"],
                reason=one.get("reason", ""),
                message=one.get("message", "")[:CHARS_MAX],
            )
            for one in status.get("conditions", ())
        ],
    )


def named_conditions(spec: JobSpec) -> frozenset[str]:
    """Pod condition types in the Job's rules, and the one that evictions set."""
    return frozenset({DISRUPTION}).union(*(rule.pod_conditions for rule in spec.failure_rules or ()))


def pod_facts(pod: Pod, conditions: frozenset[str], before: JobPodFacts | None) -> JobPodFacts:
    """Return the pod's facts, with these condition types.

    ``before``: the previous. A pod that ended with its finalizer stays ``tracked``, so that events may be skipped.
    """
    status, annotations = pod.status, pod.metadata.annotations or {}
    containers = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    index = annotations.get(INDEX, "")
    ended_before = before is not None and before.tracked and before.phase in {"Succeeded", "Failed"}
    return JobPodFacts(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        index=int(index) if index.isdecimal() and int(index) <= INT32_MAX else None,
        phase=cast("Phase", status.phase) if status.phase in get_args(Phase) else "Unknown",
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions or ()),
        deleting=pod.metadata.deletion_timestamp is not None,
        tracked=pod.tracked or ended_before,
        last=pod.ended and not pod.tracked,
        exits=[
            ContainerExit(name=one.name, exit_code=one.state.terminated.exit_code)
            for one in containers
            if one.state.terminated is not None
        ],
        pod_conditions={one.type: one.status for one in status.conditions or () if one.type in conditions},
        restarts=sum(max(0, one.restart_count) for one in containers),
        index_failures=_whole(annotations.get(INDEX_FAILURES, "")),
        cpu_milli=_requested_milli(pod.spec),
        started_ms=_ms(status.start_time),
        ended_ms=max((_ms(one.state.terminated.finished_at) for one in containers if one.state.terminated), default=0),
        eviction=None if before is None else before.eviction,
    )


def _rule(rule: Json) -> FailureRule:
    codes = rule.get("onExitCodes") or {}
    return FailureRule(
        action=rule["action"],
        operator=codes.get("operator", ""),
        values=codes.get("values", []),
        container=codes.get("containerName"),
        pod_conditions={one["type"]: one.get("status", "True") for one in rule.get("onPodConditions") or ()},
    )


def _requested_milli(spec: _PodSpec) -> int:
    """As the scheduler sums it: with sidecars, pod-level resources and overhead."""
    needs = Needs(
        containers=[_container(one.resources) for one in spec.containers],
        inits=[_container(one.resources, sidecar=one.restart_policy == "Always") for one in spec.init_containers or ()],
        overhead=_amounts(spec.overhead),
        pod_level=None if spec.resources is None else _container(spec.resources),
    )
    return min(AMOUNT_MAX, int(requests_of(needs).get(CPU, 0)))


def _container(resources: _Resources, *, sidecar: bool = False) -> Container:
    return Container(requests=_amounts(resources.requests), limits={}, sidecar=sidecar)


def _amounts(requests: dict[str, str] | None) -> Amounts:
    milli = _cpu_milli(requests or {})
    return {CPU: Decimal(milli)} if milli else {}


def _cpu_milli(requests: dict[str, str]) -> int:
    try:
        for name in BATCH_CPU:
            if name in requests:
                return min(AMOUNT_MAX, max(0, int(quantity(requests[name]))))
        return min(AMOUNT_MAX, max(0, cpu_milli(requests.get("cpu", "0"))))
    except (QuantityError, OverflowError):
        return 0


def _ms(text: str | None) -> int:
    try:
        return 0 if text is None else max(0, round(datetime.fromisoformat(text).timestamp() * 1_000))
    except (ValueError, OverflowError):
        return 0


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else 0
