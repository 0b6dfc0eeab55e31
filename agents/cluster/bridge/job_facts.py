"""What is published of Jobs and their pods. Pure. Only fields that a Job's status depends on are decoded."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import cast, get_args

from slacktide.agents.cluster.queue.job import original_of
from slacktide.agents.cluster.queue.work import MARK, mark_of
from slacktide.agents.kubernetes.objects import Json, Meta, Pod
from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.errors import TextError
from slacktide.schemas.job_pod import (
    CHARS_MAX,
    CONDITIONS_MAX,
    EXITS_MAX,
    Action,
    ContainerExit,
    ControllerStatus,
    FailureRule,
    JobCondition,
    JobEviction,
    JobPodFacts,
    JobSpec,
    Phase,
    SuccessRule,
)
from slacktide.schemas.kubernetes_fields import Amounts, Container, Needs, Reader, requests_of
from slacktide.schemas.kubernetes_pod import INDEX, INDEX_FAILURES, index_failures_of, index_of, read_mark, wishes
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.queue_objects import Part, Quantities
from slacktide.schemas.text import integer_of, shown, time_ms_of
from slacktide.schemas.units import cpu_milli, quantity
from slacktide.streams.decisions.evict.node_evict import ENDS, HOLDS, observed
from slacktide.streams.decisions.queue.job import MIN_PARALLELISM
from slacktide.streams.decisions.queue.kinds.placing import ORIGINAL

TRACKING = "batch.kubernetes.io/job-tracking"
DISRUPTION = "DisruptionTarget"
CPU = "cpu_milli"
"""Batch CPU, if the pod requests it."""
BATCH_CPU = ("kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu")


class Job(Part, frozen=True, kw_only=True):
    """The decoded fields of a Job."""

    metadata: Meta
    spec: Json = {}
    status: Json = {}


def job_uid_of(pod: Pod) -> str:
    """UID of the controlling Job; "": none."""
    owners = pod.metadata.owner_references or ()
    return next((one.uid for one in owners if one.controller and one.kind == "Job"), "")


def is_tracked(pod: Pod) -> bool:
    """Whether the Job controller has not counted the pod yet."""
    return TRACKING in (pod.metadata.finalizers or ())


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
        else [_rule(one) for one in policy.get("rules") or () if one["action"] in get_args(Action)],
        success_rules=None
        if success is None
        else [
            SuccessRule(indexes=one.get("succeededIndexes", ""), count=one.get("succeededCount"))
            for one in success.get("rules") or ()
        ],
        ignored=ignored_of(job),
    )


def ignored_of(job: Job) -> list[str]:
    """Return the labels and annotations of the Job and its pod template that no rule can read."""
    reader = Reader("")
    for key, (read, accepted) in _MARKS.items():
        read_mark(job.metadata.annotations or {}, key, "metadata.annotations", reader, read, accepted)
    template = (job.spec.get("template") or {}).get("metadata") or {}
    wishes(template.get("labels") or {}, template.get("annotations") or {}, "spec.template.metadata", reader)
    return reader.ignored_of("")


def _marked(text: str) -> None:
    if mark_of({MARK: text}) is None:
        raise TextError(MARK, shown(text))


_MARKS: Mapping[str, tuple[Callable[[str], object], str]] = {
    MIN_PARALLELISM: (partial(integer_of, where=MIN_PARALLELISM), "a whole number"),
    MARK: (_marked, "what Slacktide wrote"),
    ORIGINAL: (original_of, "what Slacktide wrote"),
}


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


def eviction_of(outcome: NodeOutcome) -> JobEviction | None:
    """Return the eviction, if the outcome is that of a completed one."""
    evicts = outcome.result == "applied" and outcome.pod is not None and outcome.target.startswith("pod/")
    if not evicts or outcome.bound in HOLDS | ENDS:
        return None
    return JobEviction(
        node=outcome.node,
        rule=outcome.rule,
        bound=outcome.bound,
        threshold=observed(outcome.terms)[:CHARS_MAX],
        acted_ms=outcome.acted_ms,
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
    tracked, (phase, reason) = is_tracked(pod), _phase_of(pod)
    ended_before = before is not None and before.tracked and before.phase in {"Succeeded", "Failed"}
    found = {one.type: one.status for one in status.conditions or () if one.type in conditions}
    return JobPodFacts(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        node=pod.spec.node_name or "",
        index=_mark(annotations, INDEX, index_of),
        phase=phase,
        reason=reason[:CHARS_MAX],
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions or ()),
        deleting=pod.metadata.deletion_timestamp is not None,
        tracked=tracked or ended_before,
        last=pod.ended and not tracked,
        exits=[
            ContainerExit(name=one.name, exit_code=one.state.terminated.exit_code)
            for one in containers
            if one.state.terminated is not None and one.state.terminated.exit_code
        ][:EXITS_MAX],
        pod_conditions=dict(list(found.items())[:CONDITIONS_MAX]),
        restarts=sum(max(0, one.restart_count) for one in containers),
        index_failures=_mark(annotations, INDEX_FAILURES, index_failures_of) or 0,
        cpu_milli=_requested_milli(pod),
        started_ms=_ms(status.start_time),
        ended_ms=max((_ms(one.state.terminated.finished_at) for one in containers if one.state.terminated), default=0),
        eviction=None if before is None else before.eviction,
    )


def _phase_of(pod: Pod) -> tuple[Phase, str]:
    """Return the pod's phase with its reason. A pod of a lost node, ``Unknown``, is what it was before."""
    status = pod.status
    disrupted = (one.reason for one in status.conditions or () if one.type == DISRUPTION and one.status == "True")
    reason = status.reason or next(disrupted, None) or ""
    if status.phase in get_args(Phase):
        return cast("Phase", status.phase), reason
    phase: Phase = "Running" if status.start_time else "Pending"
    return phase, reason or (f"phase {status.phase}" if status.phase else "")


def _rule(rule: Json) -> FailureRule:
    codes = rule.get("onExitCodes") or {}
    return FailureRule(
        action=rule["action"],
        operator=codes.get("operator", ""),
        values=codes.get("values", []),
        container=codes.get("containerName"),
        pod_conditions={one["type"]: one.get("status", "True") for one in rule.get("onPodConditions") or ()},
    )


def _requested_milli(pod: Pod) -> int:
    """As the scheduler sums it: with sidecars, pod-level resources and overhead."""
    asked = pod.requests()
    needs = Needs(
        containers=[Container(requests=_amounts(requests), limits={}) for _, requests in asked.containers],
        inits=[
            Container(requests=_amounts(requests), limits={}, sidecar=one.restart_policy == "Always")
            for one, requests in asked.inits
        ],
        overhead=_amounts(asked.overhead),
        pod_level=None if asked.whole is None else Container(requests=_amounts(asked.whole), limits={}),
    )
    return min(AMOUNT_MAX, int(requests_of(needs).get(CPU, 0)))


def _amounts(asked: Quantities) -> Amounts:
    """Batch CPU, else CPU; none where it cannot be read."""
    batch = next((name for name in BATCH_CPU if name in asked), None)
    try:
        milli = cpu_milli(asked.get("cpu", "0")) if batch is None else int(quantity(asked[batch]))
    except TextError:
        milli = 0
    return {CPU: Decimal(min(AMOUNT_MAX, milli))} if milli > 0 else {}


def _ms(text: str | None) -> int:
    try:
        return 0 if text is None else max(0, time_ms_of(text, where="a time of the pod's status"))
    except TextError:
        return 0


def _mark(annotations: Mapping[str, str], key: str, read: Callable[[str], int]) -> int | None:
    """Return a number; None: it is absent, or cannot be read, which ``Pod.ignored`` names."""
    try:
        return read(annotations[key]) if annotations.get(key) else None
    except TextError:
        return None
