"""Reads the fields of a new pod that profiles change, and writes them back to its Kubernetes object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from slacktide.schemas.errors import BadMessageError, QuantityError
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.admission.strategic_merge_patch import JsonObject

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
        return _pod_of(kubernetes, msgspec.convert(kubernetes, _Pod))
    except (msgspec.ValidationError, QuantityError) as exc:
        raise BadMessageError("Pod", str(exc)) from None


def _pod_of(kubernetes: JsonObject, read: _Pod) -> AdmittedPod:
    metadata, spec = read.metadata or _Metadata(), read.spec or _Spec()
    raw_spec = kubernetes.get("spec") or {}
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


def _containers(read: Sequence[_Container], raw: Sequence[JsonObject]) -> tuple[Container, ...]:
    found = []
    for one, kept in zip(read, raw, strict=True):
        resources = one.resources or _Resources()
        requests, limits = _amounts(resources.requests), _amounts(resources.limits)
        found.append(Container(name=one.name, requests=requests, limits=limits, kept=kept))
    return tuple(found)


def _amounts(quantities: _Quantities | None) -> Amounts:
    return {name: amount_of(name, quantity) for name, quantity in (quantities or {}).items()}


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
