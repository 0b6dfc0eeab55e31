"""A pod's requests, limits and QoS class from those of its containers, as Kubernetes figures them.

Reading: kubernetes v1.34, component-helpers/resource/helpers.go (PodRequests, PodLimits) and
pkg/apis/core/v1/helper/qos/qos.go (ComputePodQOS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Amounts = Mapping[str, Decimal]
"""Amounts by the field of ``Resources`` that holds them; CPU in cores, batch and mid CPU in millicores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What one container, or a pod as a whole, asks for."""

    name: str = ""
    requests: Amounts
    limits: Amounts
    sidecar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a pod's spec asks for."""

    containers: list[Container]
    inits: list[Container]
    overhead: Amounts
    pod_level: Container | None
    """Resources of the pod as a whole: they stand above its containers' for CPU and memory."""


def _plus(one: Amounts, other: Amounts) -> Amounts:
    return {field: one.get(field, Decimal(0)) + other.get(field, Decimal(0)) for field in {**one, **other}}


def larger(one: Amounts, other: Amounts) -> Amounts:
    """Take the larger amount of each resource."""
    return {field: max(one.get(field, Decimal(0)), other.get(field, Decimal(0))) for field in {**one, **other}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a pod's total is made of."""

    containers: Amounts
    sidecars: Amounts
    peak: Amounts
    """The most that an init container needs, the sidecars before it included."""
    pod_level: Amounts
    overhead: Amounts

    @property
    def total(self) -> Amounts:
        """The larger of what runs together in the end and of the peak, with no overhead yet."""
        return {**larger(_plus(self.containers, self.sidecars), self.peak), **self.pod_level}


def parts_of(needs: Needs, kind: Literal["requests", "limits"]) -> Parts:
    """Take a pod's requests or limits apart."""

    def of(container: Container) -> Amounts:
        return container.requests if kind == "requests" else container.limits

    containers: Amounts = {}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for init in needs.inits:
        peak = larger(peak, _plus(sidecars, of(init)))
        if init.sidecar:
            sidecars = _plus(sidecars, of(init))
    for container in needs.containers:
        containers = _plus(containers, of(container))
    return Parts(
        containers=containers,
        sidecars=sidecars,
        peak=peak,
        pod_level={} if needs.pod_level is None else of(needs.pod_level),
        overhead=needs.overhead,
    )


def requests_of(needs: Needs) -> Amounts:
    """What the pod requests, its overhead included."""
    return _plus(parts_of(needs, "requests").total, needs.overhead)


def limits_of(needs: Needs) -> Amounts:
    """Overhead raises a limit that there is, and makes none."""
    limits = parts_of(needs, "limits").total
    return _plus(limits, {field: amount for field, amount in needs.overhead.items() if limits.get(field)})


def kube_qos(needs: Needs) -> str:
    """Guaranteed: every container limits CPU and memory to what it requests. BestEffort: none asks for either."""
    parts = [*needs.containers, *needs.inits] if needs.pod_level is None else [needs.pod_level]
    both = ("cpu_milli", "mem_bytes")
    asked = [{field: part.requests[field] for field in both if part.requests.get(field)} for part in parts]
    limited = [{field: part.limits[field] for field in both if part.limits.get(field)} for part in parts]
    if not any(asked) and not any(limited):
        return "BestEffort"
    return "Guaranteed" if asked == limited and all(len(one) == len(both) for one in limited) else "Burstable"
