"""Admission of a pod: from the profiles and the AdmissionReview to the JSON patch. Pure.

Source of ClusterColocationProfiles: koordinator a7a1b76b, apis/config/v1alpha1/cluster_colocation_profile_types.go and
    apis/extension/cluster_colocation_profile.go.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from slacktide.agents.cluster.webhook.review import Operation, Request, difference
from slacktide.schemas.errors import BadMessageError, CaseError, TextError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.text import time_ms_of
from slacktide.streams.decisions.admission.admitted_pod import object_of, pod_of
from slacktide.streams.decisions.admission.label_selector import Expression, InvalidSelector, selector_of
from slacktide.streams.decisions.admission.qos_priority_admit import Claims, qos_priority_admit
from slacktide.streams.decisions.admission.webhook_colocation_profile import Cluster, PriorityClass, Profile, mutated
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cores.placement import RESOURCE_CORES
from slacktide.streams.decisions.cores.schedule import OWNERS, spec_of
from slacktide.streams.decisions.gang.membership import GATE as GANG_GATE
from slacktide.streams.decisions.gang.membership import SCHEDULER, membership
from slacktide.streams.decisions.queue.job import QUEUE_NAME
from slacktide.streams.decisions.queue.kinds.manifest import Part, changed
from slacktide.streams.decisions.queue.kinds.placing import GATE
from slacktide.streams.decisions.queue.kinds.rows import PARENTS, kind_of

Result = Literal["mutated", "unchanged", "borrowed", "refused", "over_quota", "contradictory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The result for a new pod."""

    result: Result
    patch: tuple[Operation, ...] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)
    """The patched pod; empty if refused."""
    refused: str = ""
    because: tuple[Because, ...] = ()
    dry_run: str = ""
    """What profiles in dry run would change, or why they would refuse the pod; "": nothing."""
    warnings: tuple[str, ...] = ()
    """About the namespace's quotas, for who creates the pod."""


def admission(
    request: Request,
    profiles: Iterable[Profile],
    priority_classes: Mapping[str, PriorityClass],
    namespace_labels: Mapping[str, str] | None,
    *,
    free_class_enable: bool = False,
) -> Admission:
    """Apply the profiles to the pod of a request; ``namespace_labels`` None: unknown.

    Those in dry run change nothing: what all of them would make of the pod is compared.

    Raises:
        BadMessageError: the object is not a pod.
    """
    cluster = Cluster(
        namespace_labels=namespace_labels,
        priority_classes=priority_classes,
        draw=lambda name: drawn(request.uid, name),
        free_class_enable=free_class_enable,
    )
    all_of_them = list(profiles)
    live = [profile for profile in all_of_them if not profile.dry_run]
    done = _applied(request, live, cluster)
    if len(live) == len(all_of_them):
        return done
    trial = _applied(request, all_of_them, cluster)
    places = [f"{one['path']} {json.dumps(one.get('value'))}" for one in difference(done.pod, trial.pod)]
    return replace(done, dry_run=trial.refused or (f"would change {', '.join(places)}" if places else ""))


def _applied(request: Request, profiles: Iterable[Profile], cluster: Cluster) -> Admission:
    before = request.object or {}
    mutation = mutated(pod_of(before), request.operation, profiles, cluster)
    if mutation.pod is None:
        return Admission(result="refused", refused=mutation.refused, because=mutation.because)
    pod = object_of(mutation.pod)
    patch = tuple(difference(before, pod))
    return Admission(result="mutated" if patch else "unchanged", patch=patch, pod=pod, because=mutation.because)


def new_pod(item: Mapping[str, Any]) -> Pod:
    """Read a pod that has no name and uid yet. Raises BadMessageError if a field is invalid."""
    labels = (item.get("metadata") or {}).get("labels") or {}
    return read_pod({"metadata": {"name": "new", "uid": "new", "labels": labels}, "spec": item.get("spec") or {}})


def in_accord(admitted: Admission, pod: Pod, *, strict: bool) -> Admission:
    """Refuse a pod whose QoS class, priority class and resources do not go together, in the reference's words.

    What a pod claims cannot change later: a ValidatingAdmissionPolicy sees to that.
    """
    claims = Claims(
        qos_label=pod.qos_label,
        priority_class_label=pod.priority_class_label,
        priority=pod.priority,
        requests=pod.requests,
        limits=pod.limits,
        cpu_wish=spec_of((admitted.pod.get("metadata") or {}).get("annotations") or {}),
    )
    found = qos_priority_admit(claims, None, strict=strict)
    return Admission(result="contradictory", refused=found.message) if found.errors else admitted


def with_cores(admitted: Admission, pod: Pod, request: Request) -> Admission:
    """Let an LSE or LSR pod request as many of ``RESOURCE_CORES`` as it requests CPUs, in its first container."""
    spec = admitted.pod.get("spec") or {}
    if raw_qos(pod.qos_label) not in OWNERS or not spec.get("containers"):
        return admitted
    cores = {RESOURCE_CORES: str(max(1, -(-(pod.requests.cpu_milli or 0) // 1_000)))}
    first, *others = spec["containers"]
    resources = first.get("resources") or {}
    both = {kind: {**(resources.get(kind) or {}), **cores} for kind in ("requests", "limits")}
    containers = [{**first, "resources": {**resources, **both}}, *others]
    return _changed(admitted, request, {**admitted.pod, "spec": {**spec, "containers": containers}})


def marked(admitted: Admission, request: Request, marks: Mapping[str, str | None]) -> Admission:
    """Set annotations of the pod; None removes one that was given."""
    metadata = admitted.pod.get("metadata") or {}
    before = metadata.get("annotations") or {}
    after = {key: text for key, text in {**before, **marks}.items() if text is not None}
    if after == before:
        return admitted
    return _changed(admitted, request, {**admitted.pod, "metadata": {**metadata, "annotations": after}})


def _changed(admitted: Admission, request: Request, pod: Mapping[str, Any]) -> Admission:
    return replace(admitted, result="mutated", patch=tuple(difference(request.object or {}, pod)), pod=pod)


def gated(admitted: Admission, request: Request) -> Admission:
    """Gate a pod that names a queue, unless the object that controls it waits in the queue itself, or Kueue has it.

    Raises:
        BadMessageError: the object is not a pod.
    """
    pod = dict(admitted.pod)
    try:
        part = Part(pod)
        metadata, spec = part["metadata"], part["spec"]
        labels, gates = metadata["labels"].texts(), [one["name"].text() for one in spec["schedulingGates"].parts()]
        controllers = [one for one in metadata["ownerReferences"].parts() if one["controller"].flag()]
        owned = any(kind_of(one["apiVersion"].text(), one["kind"].text()) in PARENTS for one in controllers)
        if QUEUE_NAME not in labels or KUEUE in labels or GATE in gates or spec["nodeName"].text() or owned:
            return admitted
        return _changed(admitted, request, _with_gate(pod, GATE))
    except CaseError as exc:
        raise BadMessageError("pod", str(exc)) from exc


def _with_gate(pod: dict[str, Any], gate: str) -> dict[str, Any]:
    given = [one.value for one in Part(pod)["spec.schedulingGates"].parts()]
    return changed(pod, {("spec", "schedulingGates"): [*given, {"name": gate}]})


def gated_by_gang(admitted: Admission, request: Request) -> Admission:
    """Gate a pod of a gang that Slacktide's scheduler places, not one whose gang is Kubernetes' own.

    Raises:
        BadMessageError: the object is not a pod.
    """
    pod = dict(admitted.pod)
    try:
        part = Part(pod)
        metadata, spec = part["metadata"], part["spec"]
        if spec["schedulerName"].text() != SCHEDULER or spec["nodeName"].text():
            return admitted
        native = spec["schedulingGroup.podGroupName"].text() or spec["workloadRef.name"].text()
        of = membership(request.namespace, metadata["labels"].texts(), metadata["annotations"].texts(), native)
        gates = [one["name"].text() for one in spec["schedulingGates"].parts()]
        if of is None or of.kind == "native" or GANG_GATE in gates:
            return admitted
        return _changed(admitted, request, _with_gate(pod, GANG_GATE))
    except CaseError as exc:
        raise BadMessageError("pod", str(exc)) from exc


KUEUE = "kueue.x-k8s.io/managed"
"""Label that Kueue's webhook sets on pods that it gates."""


def drawn(uid: str, profile: str) -> int:
    """Return a number from 0 to 99 from the request's uid, so that a retried request gets the same result."""
    return int.from_bytes(hashlib.sha256(f"{uid}/{profile}".encode()).digest()[:8]) % 100


ANNOTATION_SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources"
"""On a profile, with any value: pods keep native CPU and memory."""
ANNOTATION_DRY_RUN = "slacktide.io/dry-run"
"""On a profile, as ``true``: the webhook does not change pods, and reports what it would change."""

_Texts = dict[str, str]


class _Expression(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: _Texts | None = None
    match_expressions: list[_Expression] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    namespace_selector: _Selector | None = None
    selector: _Selector | None = None
    probability: int | str | None = None
    labels: _Texts | None = None
    annotations: _Texts | None = None
    label_keys_mapping: _Texts | None = None
    annotation_keys_mapping: _Texts | None = None
    label_suffixes: _Texts | None = None
    scheduler_name: str = ""
    qos_class: str = msgspec.field(name="qosClass", default="")
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    patch: Any = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    annotations: _Texts | None = None


class _Profile(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    value: int
    preemption_policy: str = ""


def profile_of(item: Mapping[str, Any]) -> Profile:
    """Parse a ClusterColocationProfile. Raises BadMessageError if a type is wrong; the path is in the text."""
    try:
        read = msgspec.convert(item, _Profile)
    except msgspec.ValidationError as exc:
        raise BadMessageError("ClusterColocationProfile", str(exc)) from None
    spec = read.spec
    return Profile(
        name=read.metadata.name,
        namespace_selector=_selector(spec.namespace_selector),
        selector=_selector(spec.selector),
        probability=100 if spec.probability is None else spec.probability,
        skip_update_resources=ANNOTATION_SKIP_UPDATE_RESOURCES in (read.metadata.annotations or {}),
        labels=spec.labels or {},
        annotations=spec.annotations or {},
        label_keys_mapping=spec.label_keys_mapping or {},
        annotation_keys_mapping=spec.annotation_keys_mapping or {},
        label_suffixes=spec.label_suffixes or {},
        scheduler_name=spec.scheduler_name,
        qos_class=spec.qos_class,
        priority_class_name=spec.priority_class_name,
        koordinator_priority=spec.koordinator_priority,
        patch=spec.patch,
        dry_run=(read.metadata.annotations or {}).get(ANNOTATION_DRY_RUN) == "true",
    )


def priority_class_of(item: Mapping[str, Any]) -> PriorityClass:
    """Parse a PriorityClass. Raises BadMessageError if a field has the wrong type; its path is in the text."""
    try:
        read = msgspec.convert(item, _PriorityClass)
    except msgspec.ValidationError as exc:
        raise BadMessageError("PriorityClass", str(exc)) from None
    return PriorityClass(value=read.value, preemption_policy=read.preemption_policy)


def _selector(read: _Selector | None) -> Selector | InvalidSelector:
    if read is None:
        return Selector()
    expressions = [
        Expression(key=one.key, operator=one.operator, values=one.values or ()) for one in read.match_expressions or ()
    ]
    return selector_of(read.match_labels or {}, expressions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """The namespace's labels, for selectors."""

    labels: Mapping[str, str]
    changed_ms: int
    """Pods created before this are not checked."""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedProfile:
    """A profile with its last change."""

    profile: Profile
    changed_ms: int


def dated(item: Mapping[str, Any]) -> DatedProfile:
    """Parse a ClusterColocationProfile. Raises BadMessageError if a type is wrong; the path is in the text."""
    return DatedProfile(profile=profile_of(item), changed_ms=changed_ms(item))


def namespace_of(item: Mapping[str, Any]) -> Namespace:
    """Parse a Namespace."""
    metadata = item.get("metadata") or {}
    return Namespace(
        labels=metadata.get("labels") or {}, changed_ms=changed_ms(item), annotations=metadata.get("annotations") or {}
    )


def changed_ms(item: Mapping[str, Any]) -> int:
    """Return the last write outside of the status, in UTC epoch milliseconds, to the second."""
    metadata = item.get("metadata") or {}
    written = [one.get("time") for one in metadata.get("managedFields") or () if not one.get("subresource")]
    return max((ms_of(text) for text in (metadata.get("creationTimestamp"), *written) if text), default=0)


def ms_of(text: str) -> int:
    """UTC epoch milliseconds; 0 for a year that no object has: whoever changes an object may write it."""
    try:
        return time_ms_of(text, where="a time of the object")
    except TextError:
        return 0
