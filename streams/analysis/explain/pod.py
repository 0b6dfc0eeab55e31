"""Explains why a pod is pending or evicted, and checks its manifest."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slacktide.schemas.gang import GangPlan
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.kubernetes_pod import BORROWED
from slacktide.schemas.metric import PodMetric, Use
from slacktide.schemas.missed_pod import MissedPod, RefusedPod, missed_advice
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.qos import effective_priority_class, effective_qos
from slacktide.streams.analysis.explain.cores import cores_findings
from slacktide.streams.analysis.explain.evictions import (
    Eviction,
    Looks,
    descheduling_findings,
    eviction_findings,
    evictions_of,
    notice_findings,
)
from slacktide.streams.analysis.explain.evidence import Finding, Logged, Place, ignored_findings, worst_first
from slacktide.streams.analysis.explain.gang import gang_findings
from slacktide.streams.analysis.explain.held import held_findings, is_held, waiting_findings
from slacktide.streams.analysis.explain.manifest import Manifest, lint
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.analysis.explain.offered import amount, pod_forecast_findings, resource_name
from slacktide.streams.analysis.explain.placement import (
    NodeRoom,
    node_rooms,
    placement_findings,
    refused_by_all,
    unserved,
)
from slacktide.streams.analysis.explain.reclaimed import pod_reclaimed_findings
from slacktide.streams.decisions.admission.namespace_quota import annotation_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A pod on its node."""

    node: str
    uid: str
    use: Use
    """Average over the window."""
    window_ms: int
    covered_ms: int
    age_ms: int
    place: Place
    """The position of the NodeMetric with the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplanation:
    """The explanation of a pod by Kafka and its manifest."""

    namespace: str
    name: str
    asked_ms: int
    running: Running | None
    """None: no node's figures have it."""
    node: str
    """The node by figures or manifest; "": none."""
    qos: str
    """Effective QoS class; "": unknown."""
    priority_class: str
    requests: Resources | None
    limits: Resources | None
    pod_place: Place | None
    """The position of the sample with the pod; None: it is known only from its manifest, or not at all."""
    rooms: list[NodeRoom]
    """Each node's free resources, for a pending pod."""
    placement: Logged[PodPlacement] | None
    """The scheduler's last attempt; None: none was read."""
    evictions: list[Eviction]
    findings: list[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLog:
    """The records read."""

    nodes: Sequence[NodeLog]
    """The nodes with figures."""
    on: NodeLog | None
    """The node whose figures or pod list have the pod, with its newest samples; None: none."""
    outcomes: Sequence[Logged[NodeOutcome]]
    """The outcomes of evictions and notices."""
    span_ms: int
    """The time span of the outcomes."""
    placement: Logged[PodPlacement] | None = None
    """The pod's last placement in that span."""
    looks: Looks | None = None
    """Descheduling passes in that span."""
    missed: MissedPod | None = None
    """Set if the pod was created without the webhook."""
    refused: RefusedPod | None = None
    """The last refusal by its namespace's quota."""
    gang: Logged[GangPlan] | None = None
    """The last decision for its gang that names it."""


def last_placement(
    placements: Iterable[Logged[PodPlacement]], namespace: str, name: str
) -> Logged[PodPlacement] | None:
    """Return the last placement of a pod of this name; recreated pods count."""
    mine = [one for one in placements if (one.body.namespace, one.body.name) == (namespace, name)]
    return max(mine, key=lambda one: (one.body.decided_ms, one.place.offset), default=None)


def where_is(nodes: Sequence[NodeLog], namespace: str, name: str) -> tuple[NodeLog, PodMetric] | None:
    """Return the node whose figures have the pod; of several, the latest by Kafka's clock."""
    found = [
        (log.metric.place.logged_ms - log.metric.body.stale_ms, log, one)
        for log in nodes
        if log.metric is not None
        for one in log.metric.body.pods
        if (one.namespace, one.name) == (namespace, name)
    ]
    if not found:
        return None
    _, log, one = max(found, key=lambda each: (each[0], each[1].node))
    return log, one


def explain_pod(
    log: PodLog, namespace: str, name: str, manifest: Manifest | None, asked_ms: int
) -> PodExplanation | None:
    """Explain a pod at ``asked_ms``, by the clock of record timestamps; None: neither Kafka nor a manifest has it."""
    on, running = log.on, _running(log.nodes, namespace, name, asked_ms)
    listed = next((one for one in on.pods if (one.namespace, one.name) == (namespace, name)), None) if on else None
    place = on.keyframe.place if on and on.keyframe and listed else None
    pod = manifest.pod if listed is None and manifest is not None else listed
    evictions = evictions_of(log.outcomes, namespace, name)
    chosen = log.looks is not None and log.looks.chose is not None
    evicted = any(one.name == name for one in evictions)
    known = chosen or evicted or any(one is not None for one in (log.refused, log.placement, log.gang))
    if pod is None and running is None and not known:
        return None
    node = running.node if running else on.node if on and listed else manifest.node if manifest else ""
    rooms = [] if pod is None or node else node_rooms(log.nodes, pod.requests, manifest, asked_ms)
    findings = list(_found_apart(on, running, listed))
    refused = [] if log.placement is None or node else list(refused_by_all(log.placement.body))
    if pod is not None and not node:
        findings += placement_findings(pod.requests, manifest, rooms, refused=bool(refused))
    findings += refused
    if not node:
        findings += gang_findings(log.gang, name, asked_ms)
    if not node and manifest is not None and manifest.unserved and log.placement is None:
        findings.append(unserved(manifest))
    findings += eviction_findings(evictions, name, log.span_ms)
    findings += notice_findings(log.outcomes, namespace, name, asked_ms)
    findings += pod_reclaimed_findings(log.outcomes, namespace, name, log.span_ms)
    wanted = any(one.policy is not None and one.policy.body.descheduling.wanted for one in log.nodes)
    findings += descheduling_findings(log.looks, node, asked_ms, log.span_ms, wanted=wanted)
    findings += _missed(log.missed)
    if running is None and pod is None:
        findings += _over_quota(log.refused, asked_ms)
    if pod is not None:
        findings += cores_findings(on, pod, log.placement, log.outcomes)
        findings += held_findings(on, pod)
        findings += waiting_findings(on, pod, asked_ms)
        findings += _borrowed(pod)
        findings += ignored_findings("pod", pod.ignored)
        policy = next((one.policy for one in log.nodes if one.policy is not None), None)
        whole = replace(on, policy=policy) if on is not None and on.node == node else None
        findings += pod_forecast_findings(whole, pod)
        findings += lint(pod, running.use if running else None, manifest, held=is_held(on, pod))
    return PodExplanation(
        namespace=namespace,
        name=name,
        asked_ms=asked_ms,
        running=running,
        node=node,
        qos="" if pod is None else effective_qos(pod.qos_label, pod.kube_qos),
        priority_class="" if pod is None else effective_priority_class(pod),
        requests=None if pod is None else pod.requests,
        limits=None if pod is None else pod.limits,
        pod_place=place,
        rooms=rooms,
        placement=log.placement,
        evictions=evictions,
        findings=worst_first(findings),
    )


def last_refused(refused: Iterable[Logged[RefusedPod]], name: str) -> RefusedPod | None:
    """Return the last refusal of this pod or of its controller's pods."""

    def meant(of: str) -> bool:
        return of == name or (of.endswith("-") and (name.startswith(of) or of == f"{name}-"))

    mine = [one.body for one in refused if meant(one.body.name)]
    return max(mine, key=lambda one: one.refused_ms, default=None)


def _over_quota(refused: RefusedPod | None, asked_ms: int) -> Iterator[Finding]:
    """Report which requests exceeded the namespace's quota."""
    if refused is None:
        return
    name = resource_name(refused.resource)
    asked, used, bound = (amount(one, refused.resource) for one in (refused.asked, refused.used, refused.bound))
    yield Finding(
        "pod.quota",
        f"rejected {(asked_ms - refused.refused_ms) / 1000:.0f} s ago by the quota of namespace "
        f"{refused.namespace}: it requests {name} {asked}, pods there request {used}, the limit is {bound}",
        advice=f"wait until pods of the namespace end, or raise its annotation {annotation_of(refused.resource)}",
    )


def _borrowed(pod: Pod) -> Iterator[Finding]:
    """Report that the pod runs beyond its namespace's quota."""
    if pod.borrowed:
        yield Finding(
            "pod.borrowed",
            f"created beyond the batch quota of namespace {pod.namespace}, it borrows idle resources (annotation "
            f"{BORROWED}): it is the first victim of its node, whatever its class and priority",
            advice="it stays borrowed until it ends. When pods of the namespace have ended, or its quota was raised, a "
            "new pod is within the quota",
        )


def _missed(missed: MissedPod | None) -> Iterator[Finding]:
    """Report which fields of its profiles a pod lacks."""
    if missed is None:
        return
    lacks = "; ".join(
        f"{one.field} is {one.found or 'absent'}, profile {one.profile} sets {one.wanted}" for one in missed.lacks
    )
    yield Finding(
        "pod.missed",
        f"created while the webhook was unavailable, so no ClusterColocationProfile was applied: {lacks}",
        advice=f"{missed_advice(missed.owner_kind)}. Labels, priority and resources are set only at creation",
    )


def _found_apart(on: NodeLog | None, running: Running | None, pod: Pod | None) -> Iterator[Finding]:
    """Report that only one of pod list and figures has the pod."""
    if on is None or on.keyframe is None or (running is None) == (pod is None):
        return
    if pod is not None:
        why = "it has no cgroup there, or no worker publishes"
        yield Finding(
            "pod.unmeasured",
            f"{on.node} lists the pod as {pod.phase}, but has no figures of it: {why}",
            advice=f"see `kubectl describe pod` and `slacktide explain node {on.node}`",
        )
    else:
        yield Finding(
            "pod.unlisted",
            f"its cgroup is on {on.node}, but the node's pod list does not contain it: it was deleted, or the list "
            "is old",
        )


def _running(nodes: Sequence[NodeLog], namespace: str, name: str, asked_ms: int) -> Running | None:
    found = where_is(nodes, namespace, name)
    if found is None or (metric := found[0].metric) is None:
        return None
    log, one = found
    return Running(
        node=log.node,
        uid=one.uid,
        use=one.use,
        window_ms=metric.body.window_ms,
        covered_ms=metric.body.covered_ms,
        age_ms=metric.age_ms(asked_ms),
        place=metric.place,
    )
