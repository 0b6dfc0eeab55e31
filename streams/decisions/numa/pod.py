"""Computes the requests of a pod that zones must hold, for the pod or by container.

Reading: scheduler-plugins 903da7df, pkg/util/resource.go and pkg/noderesourcetopology/filter.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal, NamedTuple

from slacktide.schemas import pod_resources
from slacktide.streams.decisions.numa.topology import CPU, Amounts, Scope, whole_cpus

Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
Kind = Literal["pod", "init", "sidecar", "app"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container's requests. A sidecar is an init container that keeps running."""

    name: str
    requests: Amounts
    sidecar: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod to align."""

    qos: Qos
    containers: Sequence[Container]
    inits: Sequence[Container] = ()
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts | None = None
    """Pod-level requests, which the reference ignores."""

    @property
    def guaranteed(self) -> bool:
        """Return whether the pod's QoS class is Guaranteed, so that static managers pin it."""
        return self.qos == "Guaranteed"


class Step(NamedTuple):
    """A request that is aligned separately."""

    kind: Kind
    container: str | None
    request: Amounts


def steps(pod: Pod, scope: Scope, *, corrected: bool = False) -> Iterator[Step]:
    """Yield the requests to align, init containers first."""
    if scope == "pod" or (corrected and pod.pod_level is not None):
        yield Step("pod", None, corrected_request(pod) if corrected else effective_request(pod))
        return
    for init in pod.inits:
        yield Step("sidecar" if init.sidecar else "init", init.name, init.requests)
    for app in pod.containers:
        yield Step("app", app.name, app.requests)


def effective_request(pod: Pod) -> dict[str, int]:
    """Return the maximum of the largest init container and the sum of app containers, plus overhead."""
    request: dict[str, int] = {}
    for app in pod.containers:
        for name, amount in app.requests.items():
            request[name] = request.get(name, 0) + amount
    for init in pod.inits:
        for name, amount in init.requests.items():
            request[name] = max(request.get(name, 0), amount)
    for name, amount in pod.overhead.items():
        request[name] = request.get(name, 0) + amount
    return request


def corrected_request(pod: Pod) -> dict[str, int]:
    """Return the request as Kubernetes computes it, with sidecars and pod-level requests."""
    needs = pod_resources.Needs(
        containers=[_container(one) for one in pod.containers],
        inits=[_container(one) for one in pod.inits],
        overhead=_amounts(pod.overhead),
        pod_level=None if pod.pod_level is None else _container(Container(name="", requests=pod.pod_level)),
    )
    return {name: int(amount) for name, amount in pod_resources.requests_of(needs).items()}


def exclusive_cpu_milli(pod: Pod) -> int:
    """Return the exclusive CPU of a Guaranteed pod under the kubelet's static policy.

    Only containers with whole cores count, without overhead: kubernetes v1.34.4, cpumanager/policy_static.go,
    podGuaranteedCPUs.
    """
    whole = replace(pod, containers=list(map(_whole, pod.containers)), inits=list(map(_whole, pod.inits)), overhead={})
    return corrected_request(whole).get(CPU, 0)


def _whole(one: Container) -> Container:
    cpu_milli = one.requests.get(CPU, 0)
    return replace(one, requests={CPU: cpu_milli} if whole_cpus(cpu_milli) else {})


def _container(one: Container) -> pod_resources.Container:
    return pod_resources.Container(requests=_amounts(one.requests), limits={}, sidecar=one.sidecar)


def _amounts(amounts: Amounts) -> pod_resources.Amounts:
    return {name: Decimal(amount) for name, amount in amounts.items()}
