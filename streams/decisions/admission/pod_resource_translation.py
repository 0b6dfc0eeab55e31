"""Translates a pod's CPU and memory to its priority class's resources, and records batch resources in an annotation.

The classes are batch, mid and, if enabled, free. The kubelet does not expose batch resources on the node, hence the
annotation. Reading: koordinator a7a1b76b, pkg/webhook/pod/mutating/cluster_colocation_profile.go,
mutatePodResourceSpec; extended_resource_spec.go, mutateByExtendedResources; apis/extension/resource.go
(GetExtendedResourceSpec).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import LABEL_PRIORITY_CLASS, LABEL_QOS, effective_priority_class
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod, Amounts, Container, amount_of, quantity_of
from slacktide.streams.decisions.because import Because

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
            _container(container, tier, f"init_containers/{container.name}", because)
            for container in pod.init_containers
        ),
        containers=tuple(
            _container(container, tier, f"containers/{container.name}", because) for container in pod.containers
        ),
        overhead=pod.overhead if of_runtime_class else _moved(pod.overhead, tier, "overhead", because),
    )
    return Translated(pod=changed, because=tuple(because))


def priority_class_of(pod: AdmittedPod) -> str:
    """Return the pod's priority class. Without label, priority and QoS label, its requests decide."""
    return effective_priority_class(
        Pod(
            uid="",
            namespace="",
            name="",
            qos_label=pod.labels.get(LABEL_QOS),
            priority_class_label=pod.labels.get(LABEL_PRIORITY_CLASS),
            priority=pod.priority,
            kube_qos=_kube_qos(pod),
        )
    )


def _kube_qos(pod: AdmittedPod) -> str:
    """Return BestEffort or Burstable. A Guaranteed pod has the same priority class as a Burstable one."""
    parts = [part for one in (*pod.containers, *pod.init_containers) for part in (one.requests, one.limits)]
    asks = _of_whole_pod(pod) or any(part.get(name, 0) > 0 for part in parts for name in NATIVE)
    return "Burstable" if asks else "BestEffort"


def _of_whole_pod(pod: AdmittedPod) -> bool:
    whole = (pod.kept.get("spec") or {}).get("resources") or {}
    return any(name in (whole.get(kind) or {}) for kind in ("requests", "limits") for name in NATIVE)


def _container(container: Container, tier: str, path: str, because: list[Because]) -> Container:
    requests = _moved(container.requests, tier, f"{path}/requests", because)
    limits = _moved(container.limits, tier, f"{path}/limits", because)
    return replace(container, requests=_filled(requests, limits, tier, f"{path}/requests", because), limits=limits)


def _moved(amounts: Amounts, tier: str, path: str, because: list[Because]) -> Amounts:
    moved = dict(amounts)
    for native, term in NATIVE.items():
        if native not in moved:
            continue
        amount = moved.pop(native)
        before = moved.get(_name(tier, native))
        moved[_name(tier, native)] = amount
        overwritten = {} if before is None else {f"before_{tier}_{term}": before}
        because.append(
            Because(
                of=f"{path}/{tier}_{term}",
                bound="moved" if before is None else "overwritten",
                terms={**overwritten, term: amount, f"{tier}_{term}": amount},
            )
        )
    return moved


def _filled(requests: Amounts, limits: Amounts, tier: str, path: str, because: list[Because]) -> Amounts:
    """Request the limit of each class resource that has no request."""
    filled = dict(requests)
    for native, term in NATIVE.items():
        name = _name(tier, native)
        if name in filled or name not in limits:
            continue
        filled[name] = limits[name]
        terms = {f"limit_{tier}_{term}": limits[name], f"{tier}_{term}": filled[name]}
        because.append(Because(of=f"{path}/{tier}_{term}", bound="from_limit", terms=dict(terms)))
    return filled


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


class _Asked(msgspec.Struct, frozen=True):
    limits: dict[str, str | int | float | None] | None = None
    requests: dict[str, str | int | float | None] | None = None


class _Spec(msgspec.Struct, frozen=True):
    containers: dict[str, _Asked | None] | None = None


def recorded(pod: AdmittedPod) -> Recorded:
    """Write the annotation; without batch resources, only empty it. Raise BadMessageError if it is unreadable."""
    before = pod.annotations.get(ANNOTATION)
    if before is not None:
        read(before)
    asked = {container.name: of for container in pod.containers if (of := _batch(container.requests, container.limits))}
    because = Because(
        of="extended_resource_spec",
        bound="recorded" if asked else "absent" if before is None else "emptied",
        terms={"containers_count": len(asked)},
    )
    if not asked and before is None:
        return Recorded(pod=pod, because=because)
    text = msgspec.json.encode({"containers": asked} if asked else {}, order="sorted").decode()
    return Recorded(pod=replace(pod, annotations={**pod.annotations, ANNOTATION: text}), because=because)


def _batch(requests: Amounts, limits: Amounts) -> dict[str, dict[str, str]]:
    kinds = {"limits": limits, "requests": requests}
    found = {
        kind: {name: quantity_of(name, amounts[name]) for name in RECORDED if name in amounts}
        for kind, amounts in kinds.items()
    }
    return {kind: quantities for kind, quantities in found.items() if quantities}


def read(text: str) -> Mapping[str, Asked]:
    """Parse the annotation. Raise BadMessageError for invalid JSON, a wrong shape or an invalid quantity."""
    if len(text) > CHARS_MAX:
        raise BadMessageError(f"readable annotation {ANNOTATION}", f"{len(text)} characters; accepted: {CHARS_MAX}")
    try:
        spec: _Spec | None = json_of(text, _Spec | None, where="")
        return {
            name: Asked(requests=_amounts(asked.requests), limits=_amounts(asked.limits))
            for name, asked in ((spec or _Spec()).containers or {}).items()
            if asked is not None
        }
    except TextError as exc:
        raise BadMessageError(f"readable annotation {ANNOTATION}", str(exc)) from None


def _amounts(quantities: Mapping[str, str | float | None] | None) -> Amounts:
    """Convert quantities to numbers; null is 0, as in Kubernetes."""
    return {name: amount_of(name, 0 if one is None else one) for name, one in (quantities or {}).items()}
