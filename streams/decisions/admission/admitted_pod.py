"""Reads the fields of a new pod that profiles change, translates its resources, and writes it back to its object.

CPU and memory are translated to the priority class's resources: batch, mid and, if enabled, free. The kubelet does not
expose batch resources on the node, so they are recorded in an annotation. Reading: koordinator a7a1b76b,
pkg/webhook/pod/mutating/cluster_colocation_profile.go, mutatePodResourceSpec; extended_resource_spec.go,
mutateByExtendedResources; apis/extension/resource.go (GetExtendedResourceSpec).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from slacktide.schemas.errors import BadMessageError, QuantityError, TextError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import LABEL_PRIORITY_CLASS, LABEL_QOS, effective_priority_class
from slacktide.schemas.text import json_of
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.admission.strategic_merge_patch import JsonObject
from slacktide.streams.decisions.because import Because

CONTAINERS_MAX = 200
"""Of a pod that is read: nobody has the time for more."""
CPU = "cpu"
Amounts = Mapping[str, int]
"""By resource name: native CPU in millicores, others in whole units (bytes, batch millicores)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container's requests and limits."""

    name: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    kept: JsonObject = field(default_factory=dict)
    """The source object, which preserves all other fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedPod:
    """The pod fields that profiles set. A missing field is empty; a missing priority is None."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    overhead: Amounts = field(default_factory=dict)
    kept: JsonObject = field(default_factory=dict)


_Quantities = dict[str, str | int | float]


class _Metadata(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Resources(msgspec.Struct, frozen=True):
    requests: _Quantities | None = None
    limits: _Quantities | None = None


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    resources: _Resources | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    init_containers: list[_Container] | None = None
    containers: list[_Container] | None = None
    overhead: _Quantities | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


def pod_of(kubernetes: JsonObject) -> AdmittedPod:
    """Parse a Kubernetes pod. Raise BadMessageError if a field has a wrong type or an amount is invalid."""
    try:
        read = msgspec.convert(kubernetes, _Pod)
        metadata, spec, raw_spec = read.metadata or _Metadata(), read.spec or _Spec(), kubernetes.get("spec") or {}
        return AdmittedPod(
            labels=metadata.labels or {},
            annotations=metadata.annotations or {},
            scheduler_name=spec.scheduler_name or "",
            priority_class_name=spec.priority_class_name or "",
            priority=spec.priority,
            preemption_policy=spec.preemption_policy or "",
            init_containers=_containers(spec.init_containers or (), raw_spec.get("initContainers") or ()),
            containers=_containers(spec.containers or (), raw_spec.get("containers") or ()),
            overhead=_amounts(spec.overhead),
            kept=kubernetes,
        )
    except (msgspec.ValidationError, QuantityError) as exc:
        raise BadMessageError("Pod", str(exc)) from None


def _containers(read: Sequence[_Container], raw: Sequence[JsonObject]) -> tuple[Container, ...]:
    found = []
    for one, kept in zip(read, raw, strict=True):
        resources = one.resources or _Resources()
        requests, limits = _amounts(resources.requests), _amounts(resources.limits)
        found.append(Container(name=one.name, requests=requests, limits=limits, kept=kept))
    return tuple(found)


def _amounts(quantities: Mapping[str, str | float | None] | None) -> Amounts:
    """Convert quantities to numbers; null is 0, as in Kubernetes."""
    return {name: amount_of(name, 0 if one is None else one) for name, one in (quantities or {}).items()}


@lru_cache(maxsize=4096)
def amount_of(resource: str, quantity: str | float) -> int:
    """Convert a quantity to a number, rounded up. Raise QuantityError if it is invalid."""
    return cpu_milli(quantity) if resource == CPU else whole(quantity)


def quantity_of(resource: str, amount: int) -> str:
    """Format an amount in Kubernetes' canonical form: ``1500m``, ``12k``, ``4Gi``."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else quantity_of("", amount // 1000)
    # Below 1024 the binary form falls back to the decimal one.
    binary = resource.endswith("memory") and abs(amount) >= 1024
    base, units = (1024, "KMGTPE") if binary else (1000, "kMGTPE")
    power = 0
    while amount and amount % base == 0 and power < len(units):
        amount, power = amount // base, power + 1
    unit = units[power - 1] if power else ""
    return f"{amount}{unit}{'i' if binary and power else ''}"


def object_of(pod: AdmittedPod) -> dict[str, Any]:
    """Convert the pod to a Kubernetes object. Unchanged fields and quantities keep their original text."""
    metadata = dict(pod.kept.get("metadata") or {})
    _write(metadata, "labels", dict(pod.labels))
    _write(metadata, "annotations", dict(pod.annotations))
    spec = dict(pod.kept.get("spec") or {})
    _write(spec, "schedulerName", pod.scheduler_name)
    _write(spec, "priorityClassName", pod.priority_class_name)
    _write(spec, "priority", pod.priority)
    _write(spec, "preemptionPolicy", pod.preemption_policy)
    _write(spec, "initContainers", [_container_object(container) for container in pod.init_containers])
    _write(spec, "containers", [_container_object(container) for container in pod.containers])
    _write(spec, "overhead", _quantities(pod.overhead, spec.get("overhead")))
    kubernetes = dict(pod.kept)
    _write(kubernetes, "metadata", metadata)
    _write(kubernetes, "spec", spec)
    return kubernetes


def _container_object(container: Container) -> dict[str, Any]:
    resources = dict(container.kept.get("resources") or {})
    _write(resources, "requests", _quantities(container.requests, resources.get("requests")))
    _write(resources, "limits", _quantities(container.limits, resources.get("limits")))
    kubernetes = dict(container.kept)
    _write(kubernetes, "name", container.name)
    _write(kubernetes, "resources", resources)
    return kubernetes


def _quantities(amounts: Amounts, before: Mapping[str, str | float] | None) -> dict[str, str | float]:
    read = before or {}
    same = {name for name in amounts if name in read and amount_of(name, read[name]) == amounts[name]}
    return {name: read[name] if name in same else quantity_of(name, amount) for name, amount in amounts.items()}


def _write(kubernetes: dict[str, Any], name: str, value: Any) -> None:
    """Set a field. An empty value deletes the field, unless the field was already empty."""
    if value or value == 0:
        kubernetes[name] = value
    elif kubernetes.get(name):
        del kubernetes[name]


NATIVE = {"cpu": "cpu_milli", "memory": "memory_bytes"}
"""Native resource -> its name in terms."""
_TIERS = {"koord-batch": "batch", "koord-mid": "mid"}
_FREE = {"koord-free": "free"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """The translated pod. ``because`` contains first the class, then each translated amount."""

    pod: AdmittedPod
    because: tuple[Because, ...]


def translated(pod: AdmittedPod, *, free_class_enable: bool = False) -> Translated:
    """Move native CPU and memory of containers, init containers and overhead to the class's resources.

    CPU becomes millicores. An existing amount of the class's resource is overwritten. A limit without a request becomes
    the request. Production pods do not change, nor do free pods without ``free_class_enable``. Unlike the reference:
    RuntimeClass overhead stays, because the API server rejects any other overhead. A pod with pod-level CPU or memory
    does not change: pod-level resources cannot be batch resources, so the pod would request both.
    """
    tiers = _TIERS | _FREE if free_class_enable else _TIERS
    tier = tiers.get(priority_class_of(pod), "")
    if not tier or _of_whole_pod(pod):
        bound = "pod_level" if tier else "native"
        return Translated(pod=pod, because=(Because(of="resources", bound=bound, terms={}),))
    because = [Because(of="resources", bound=tier, terms={})]
    of_runtime_class = bool((pod.kept.get("spec") or {}).get("runtimeClassName"))
    changed = replace(
        pod,
        init_containers=tuple(
            _translated(container, tier, f"init_containers/{container.name}", because)
            for container in pod.init_containers
        ),
        containers=tuple(
            _translated(container, tier, f"containers/{container.name}", because) for container in pod.containers
        ),
        overhead=pod.overhead if of_runtime_class else _moved(pod.overhead, tier, "overhead", because),
    )
    return Translated(pod=changed, because=tuple(because))


def priority_class_of(pod: AdmittedPod) -> str:
    """Return the pod's priority class. Without label, priority and QoS label, its requests decide."""
    parts = [part for one in (*pod.containers, *pod.init_containers) for part in (one.requests, one.limits)]
    # A Guaranteed pod has the same priority class as a Burstable one.
    asks = _of_whole_pod(pod) or any(part.get(name, 0) > 0 for part in parts for name in NATIVE)
    return effective_priority_class(
        Pod(
            uid="",
            namespace="",
            name="",
            qos_label=pod.labels.get(LABEL_QOS),
            priority_class_label=pod.labels.get(LABEL_PRIORITY_CLASS),
            priority=pod.priority,
            kube_qos="Burstable" if asks else "BestEffort",
        )
    )


def _of_whole_pod(pod: AdmittedPod) -> bool:
    whole = _mapping(pod.kept.get("spec"), "resources")  # a profile's patch may have put anything there
    return any(name in _mapping(whole, kind) for kind in ("requests", "limits") for name in NATIVE)


def _mapping(of: Any, name: str) -> Mapping[str, Any]:
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _translated(container: Container, tier: str, path: str, because: list[Because]) -> Container:
    requests = _moved(container.requests, tier, f"{path}/requests", because)
    limits = _moved(container.limits, tier, f"{path}/limits", because)
    for native, term in NATIVE.items():  # request the limit of each class resource that has no request
        name = _name(tier, native)
        if name in limits and name not in requests:
            requests[name] = limits[name]
            terms: Terms = {f"limit_{tier}_{term}": limits[name], f"{tier}_{term}": limits[name]}
            because.append(Because(of=f"{path}/requests/{tier}_{term}", bound="from_limit", terms=terms))
    return replace(container, requests=requests, limits=limits)


def _moved(amounts: Amounts, tier: str, path: str, because: list[Because]) -> dict[str, int]:
    moved = dict(amounts)
    for native, term in NATIVE.items():
        if native not in moved:
            continue
        amount = moved.pop(native)
        before = moved.get(_name(tier, native))
        moved[_name(tier, native)] = amount
        terms: Terms = {} if before is None else {f"before_{tier}_{term}": before}
        terms |= {term: amount, f"{tier}_{term}": amount}
        bound = "moved" if before is None else "overwritten"
        because.append(Because(of=f"{path}/{tier}_{term}", bound=bound, terms=terms))
    return moved


def _name(tier: str, native: str) -> str:
    return f"kubernetes.io/{tier}-{native}"


ANNOTATION = "node.koordinator.sh/extended-resource-spec"
CHARS_MAX = 65_536
"""Of hundreds of containers. Every amount in it is read at admission."""
RECORDED = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One container's requests and limits, by resource name."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The pod with the updated annotation."""

    pod: AdmittedPod
    because: Because


class _RecordedContainer(msgspec.Struct, frozen=True):
    limits: dict[str, str | int | float | None] | None = None
    requests: dict[str, str | int | float | None] | None = None


class _RecordedSpec(msgspec.Struct, frozen=True):
    containers: Annotated[dict[str, _RecordedContainer | None], msgspec.Meta(max_length=CONTAINERS_MAX)] | None = None


def recorded(pod: AdmittedPod) -> Recorded:
    """Write the annotation; without batch resources, only empty it. Raise BadMessageError if it is unreadable."""
    before = pod.annotations.get(ANNOTATION)
    if before is not None:
        read(before)
    asked = {}
    for container in pod.containers:
        kinds = {"limits": container.limits, "requests": container.requests}
        found = {
            kind: {name: quantity_of(name, amounts[name]) for name in RECORDED if name in amounts}
            for kind, amounts in kinds.items()
        }
        if quantities := {kind: of_kind for kind, of_kind in found.items() if of_kind}:
            asked[container.name] = quantities
    because = Because(
        of="extended_resource_spec",
        bound="recorded" if asked else "absent" if before is None else "emptied",
        terms={"containers_count": len(asked)},
    )
    if not asked and before is None:
        return Recorded(pod=pod, because=because)
    text = msgspec.json.encode({"containers": asked} if asked else {}, order="sorted").decode()
    return Recorded(pod=replace(pod, annotations={**pod.annotations, ANNOTATION: text}), because=because)


def read(text: str) -> Mapping[str, Asked]:
    """Parse the annotation. Raise BadMessageError for invalid JSON, a wrong shape or an invalid quantity."""
    if len(text) > CHARS_MAX:
        raise BadMessageError(f"readable annotation {ANNOTATION}", f"{len(text)} characters; accepted: {CHARS_MAX}")
    try:
        spec: _RecordedSpec | None = json_of(text, _RecordedSpec | None, where="")
        return {
            name: Asked(requests=_amounts(asked.requests), limits=_amounts(asked.limits))
            for name, asked in ((spec or _RecordedSpec()).containers or {}).items()
            if asked is not None
        }
    except TextError as exc:
        raise BadMessageError(f"readable annotation {ANNOTATION}", str(exc)) from None
