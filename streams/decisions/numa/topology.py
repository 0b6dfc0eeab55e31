"""Resources, zones, pods and the requests that zones must hold, and the kubelet's topology settings.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/nodeconfig/topologymanager.go, pluginhelpers.go,
numaresources.go and filter.go; pkg/util/resource.go; kubernetes v1.35.4, pkg/apis/core/v1/helper/helpers.go.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, Literal, NamedTuple, get_args

from slacktide.schemas import kubernetes_fields

Amounts = Mapping[str, int]
"""Amounts by Kubernetes resource name: CPU in millicores, memory in bytes, devices by count.

A resource with amount 0 is present.
"""
CPU = "cpu"
MEMORY = "memory"
BATCH = frozenset({"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"})
ALWAYS_ON_NODE = frozenset({CPU, MEMORY, "ephemeral-storage", "pods"})
"""The node provides these even if its allocatable does not list them."""


def is_native(resource: str) -> bool:
    """Return whether Kubernetes defines the resource; all others are devices."""
    return "/" not in resource or "kubernetes.io/" in resource


def is_memory(resource: str) -> bool:
    """Return whether it is memory or hugepages of any size."""
    return resource == MEMORY or resource.startswith("hugepages-")


def is_affine(resource: str) -> bool:
    """Return whether only Guaranteed pods take the amount from one zone."""
    return resource == CPU or is_memory(resource)


def is_host_level(resource: str) -> bool:
    """Return whether the node may provide it without a zone that lists it."""
    return resource in {"ephemeral-storage", "storage"} or not is_native(resource)


def whole_cpus(cpu_milli: int) -> bool:
    """Return whether the kubelet's static CPU manager allocates exclusive CPUs for it."""
    return cpu_milli > 0 and cpu_milli % 1000 == 0


Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]
POLICIES: Final[Mapping[str, Policy]] = {name: name for name in get_args(Policy)}
SCOPES: Final[Mapping[str, Scope]] = {name: name for name in get_args(Scope)}
DEPRECATED: Final[Mapping[str, tuple[Policy, Scope]]] = {
    f"{name}{level}": (policy, scope)
    for name, policy in (
        ("SingleNUMANode", POLICIES["single-numa-node"]),
        ("BestEffort", POLICIES["best-effort"]),
        ("Restricted", POLICIES["restricted"]),
    )
    for level, scope in (("PodLevel", SCOPES["pod"]), ("ContainerLevel", SCOPES["container"]))
}
MAX_ZONES_LIMIT = 1024
ID_MAX = 63
"""The reference ignores zones with a higher id."""
ID_MAX_CORRECTED = 1023
INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"\+?([0-9]+)")
_INT64_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """The kubelet settings that the rules read."""

    policy: Policy = "none"
    scope: Scope = "container"
    max_zones: int = 8
    cpu_static: bool | None = None
    memory_static: bool | None = None
    prefer_closest: bool = False


class Zone(NamedTuple):
    """A NUMA zone."""

    id: int
    available: Amounts
    costs: Mapping[int, int] = {}
    """Distance by zone id, including itself."""
    allocatable: Amounts | None = None
    """None: unknown; available amounts count instead."""

    @property
    def capacity(self) -> Amounts:
        """Return the allocatable amounts, else the available ones."""
        return self.available if self.allocatable is None else self.allocatable


class NamedZone(NamedTuple):
    """A zone of a NodeResourceTopology object."""

    name: str
    type: str
    available: Amounts
    costs: Sequence[tuple[str, int]] = ()
    allocatable: Amounts | None = None


def kubelet_of(deprecated: Sequence[str], attributes: Iterable[tuple[str, str]]) -> Kubelet:
    """Parse the kubelet's settings from ``topologyPolicies`` (the first counts) and attributes (the last counts)."""
    policy, scope = DEPRECATED.get(deprecated[0] if deprecated else "", (Kubelet().policy, Kubelet().scope))
    kubelet = Kubelet(policy=policy, scope=scope)
    for name, value in attributes:
        if name == "topologyManagerPolicy":
            kubelet = replace(kubelet, policy=POLICIES.get(value, kubelet.policy))
        elif name == "topologyManagerScope":
            kubelet = replace(kubelet, scope=SCOPES.get(value, kubelet.scope))
        elif name == "topologyManagerMaxNUMANodes":
            number = _integer(value)
            if number is not None and number > 1:
                kubelet = replace(kubelet, max_zones=min(number, MAX_ZONES_LIMIT))
    return kubelet


def zones_of(named: Iterable[NamedZone], id_max: int = ID_MAX) -> list[Zone]:
    """Return zones of type ``Node`` with an id in the name, in the given order."""
    zones = []
    for zone in named:
        found = zone_id(zone.name)
        if zone.type == "Node" and found is not None and found <= id_max:
            costs = {to: value for name, value in zone.costs if (to := zone_id(name)) is not None}
            zones.append(Zone(found, zone.available, costs, zone.allocatable))
    return zones


def zone_id(name: str) -> int | None:
    """Parse the id of ``node-<id>``; return None for other names."""
    head, dash, number = name.partition("-")
    return _integer(number) if (head, dash) == ("node", "-") else None


def _integer(text: str) -> int | None:
    found = _INTEGER.fullmatch(text)
    # Check the length first: long texts are not converted.
    if found is None or len(found[1].lstrip("0")) > _INT64_DIGITS:
        return None
    number = int(found[1].lstrip("0") or "0")
    return number if number <= INT64_MAX else None


def charged(request: Amounts, zones: Sequence[Zone], places: Iterable[int]) -> list[Zone]:
    """Charge a request to zones by position, in order, as much to each as it has available.

    Skip zones that do not list a resource.
    """
    after, left = list(zones), dict(request)
    for place in places:
        free = dict(after[place].available)
        for name in free.keys() & left.keys():
            taken = min(left[name], free[name])
            free[name] -= taken
            left[name] -= taken
        after[place] = after[place]._replace(available=free)
    return after


def places_of(ids: Iterable[int], zones: Sequence[Zone]) -> list[int]:
    """Return the positions of zone ids, sorted by id; ignore unknown ids."""
    place = {zone.id: at for at, zone in enumerate(zones)}
    return [place[one] for one in sorted(ids) if one in place]


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
    needs = kubernetes_fields.Needs(
        containers=[_container(one) for one in pod.containers],
        inits=[_container(one) for one in pod.inits],
        overhead=_amounts(pod.overhead),
        pod_level=None if pod.pod_level is None else _container(Container(name="", requests=pod.pod_level)),
    )
    return {name: int(amount) for name, amount in kubernetes_fields.requests_of(needs).items()}


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


def _container(one: Container) -> kubernetes_fields.Container:
    return kubernetes_fields.Container(requests=_amounts(one.requests), limits={}, sidecar=one.sidecar)


def _amounts(amounts: Amounts) -> kubernetes_fields.Amounts:
    return {name: Decimal(amount) for name, amount in amounts.items()}
