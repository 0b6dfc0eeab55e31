"""Decides whether a node's zones can hold a pod, and which zones each container gets, as the kubelet would.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/filter.go, also resourcesAvailableInAnyNUMANodes;
kubernetes v1.35.4, pkg/kubelet/cm/topologymanager (policy.go, bitmask). The reference iterates a map in random order.
Here resources are sorted by name, so the reason is deterministic. Hints of cpumanager, memorymanager and devicemanager
are computed from amounts. Not included: CPUs reused from init containers, zones that the memory manager has grouped
already, full-pcpus-only.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Final, Literal, NamedTuple

from slacktide.streams.decisions.numa.topology import (
    ALWAYS_ON_NODE,
    BATCH,
    CPU,
    Amounts,
    Kind,
    Kubelet,
    Pod,
    Step,
    Zone,
    charged,
    exclusive_cpu_milli,
    is_affine,
    is_host_level,
    is_memory,
    is_native,
    places_of,
    steps,
    whole_cpus,
)

DISTANCE_UNKNOWN = 255
ZoneSet = tuple[Zone, ...]


class Admission(NamedTuple):
    """The topology manager's result."""

    admit: bool
    preferred: bool
    zones: tuple[int, ...]
    """Ids, ascending; empty if not preferred."""
    groups: Sequence[Amounts] = ()
    """Amounts by the manager that provides them."""


def policy_admit(
    request: Amounts, zones: Sequence[Zone], kubelet: Kubelet, *, guaranteed: bool, corrected: bool = False
) -> Admission:
    """Predict the answer for one container's request, or for the pod's in pod scope; at most 16 zones.

    An unknown manager policy counts as static. Corrected: include batch resources that zones list, and reject memory
    that no set of zones can hold here, not later at allocation.
    """
    everywhere = tuple(sorted(zone.id for zone in zones))
    groups = _groups(request, zones, kubelet, guaranteed=guaranteed, corrected=corrected)
    if kubelet.policy == "none" or not groups:
        return Admission(admit=True, preferred=True, zones=everywhere, groups=groups)
    alone = kubelet.policy == "single-numa-node"
    wishes = [[one for one in _wishes(group, zones) if len(one) == 1 or not alone] for group in groups]
    common = set.intersection(*({tuple(sorted(zone.id for zone in wish)) for wish in of} for of in wishes))
    if not common:
        return Admission(admit=kubelet.policy == "best-effort", preferred=False, zones=(), groups=groups)
    by_id = {zone.id: zone for zone in zones}
    closest = kubelet.prefer_closest and not alone
    # Highest id first: the order of the sum of 2 ** id.
    best = min(common, key=lambda ids: (closest and distance(by_id[one] for one in ids), ids[::-1]))
    return Admission(admit=True, preferred=True, zones=best, groups=groups)


def covered(request: Amounts, zones: Iterable[Mapping[str, int]]) -> bool:
    """Return whether the sum of these zones covers the request."""
    amounts = list(zones)
    return all(sum(of.get(name, 0) for of in amounts) >= amount for name, amount in request.items())


def distance(zones: Iterable[Zone]) -> int:
    """Return the sum of distances over all ordered pairs, including each zone with itself."""
    chosen = list(zones)
    return sum(one.costs.get(other.id, DISTANCE_UNKNOWN) for one in chosen for other in chosen)


def _groups(
    request: Amounts, zones: Sequence[Zone], kubelet: Kubelet, *, guaranteed: bool, corrected: bool
) -> list[Amounts]:
    """Return the amounts by manager. Fractional cores use the shared pool and are excluded."""
    groups: list[Amounts] = []
    if guaranteed and kubelet.cpu_static is not False and CPU in request and whole_cpus(request[CPU]):
        groups.append({CPU: request[CPU]})
    memory = {name: amount for name, amount in request.items() if is_memory(name) and amount}
    # The memory manager gives no hint if all zones together have too little.
    hinted = corrected or covered(memory, [zone.available for zone in zones])
    if guaranteed and kubelet.memory_static is not False and memory and hinted:
        groups.append(memory)
    listed = {name for zone in zones for name in zone.capacity}
    devices = (name for name in sorted(request) if not is_native(name) or (corrected and name in BATCH))
    groups += [{name: request[name]} for name in devices if request[name] and name in listed]
    return groups


def _wishes(group: Amounts, zones: Sequence[Zone]) -> list[ZoneSet]:
    """Return the sets that fit now, of the minimum size on an empty node."""
    for size in range(1, len(zones) + 1):
        able = [one for one in combinations(zones, size) if covered(group, [zone.capacity for zone in one])]
        if able:
            return [one for one in able if covered(group, [zone.available for zone in one])]
    return []


Why = Literal["not_on_node", "no_zone", "not_aligned"]


class Lack(NamedTuple):
    """A resource for which a request is rejected."""

    resource: str
    why: Why
    asked: int
    best_zone: int | None = None
    """The zone with the most available, the lowest id of ties; None: no zone lists it."""
    free: int = 0


class Found(NamedTuple):
    """The zone for a request."""

    zone: int = 0
    """The lowest id; 0 if no resource restricts the choice, even without a zone 0."""
    lacks: tuple[Lack, ...] = ()
    """Not empty: no zone fits. By name; the first is the reference's reason."""


def one_zone(
    request: Amounts,
    zones: Sequence[Zone],
    on_node: Collection[str],
    *,
    guaranteed: bool,
    anywhere: Collection[str] = (),
) -> Found:
    """Find a zone for a request; amounts of 0 do not count.

    ``on_node``: resources in the node's allocatable. Unless ``guaranteed``, a zone must only list CPU, memory and
    hugepages, in any amount. ``anywhere``: further resources that may be unzoned, beside devices and storage.
    """
    left: set[int] | None = None
    lacks = list(not_on_node(request, on_node))
    missing = {lack.resource for lack in lacks}
    for name in sorted(request):
        listing = [zone for zone in zones if name in zone.available]
        if not request[name] or name in missing or (not listing and (is_host_level(name) or name in anywhere)):
            continue
        any_amount = is_affine(name) and not guaranteed
        good = {zone.id for zone in listing if any_amount or zone.available[name] >= request[name]}
        narrowed = good if left is None else left & good
        if not narrowed and (not good or left):
            lacks.append(lack_of(name, request[name], zones, "no_zone"))
        left = narrowed
    return Found(min(left or {0}), tuple(sorted(lacks)))


def not_on_node(request: Amounts, on_node: Collection[str]) -> Iterator[Lack]:
    """Yield requested resources that the node does not have."""
    for name, amount in request.items():
        if amount and name not in on_node and name not in ALWAYS_ON_NODE:
            yield Lack(name, "not_on_node", amount)


def lack_of(name: str, asked: int, zones: Sequence[Zone], why: Why) -> Lack:
    """Return the lack with the zone that has the most available."""
    free = {zone.id: zone.available[name] for zone in zones if name in zone.available}
    best = min(free, key=lambda zone: (-free[zone], zone), default=None)
    return Lack(name, why, asked, best, 0 if best is None else free[best])


NOT_FRESH = "invalid node topology data"
MESSAGES: Final[Mapping[Kind, str]] = {
    "pod": "cannot align pod",
    "init": "cannot align init container",
    "sidecar": "cannot align sidecar container",
    "app": "cannot align container",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with its zones."""

    allocatable: Amounts
    kubelet: Kubelet = field(default_factory=Kubelet)
    zones: Sequence[Zone] | None = None
    """None: the node has no topology."""
    fresh: bool = True
    """False: the topology may be stale."""


class Placed(NamedTuple):
    """The zones that a container gets."""

    container: str | None
    """None: the whole pod."""
    zones: tuple[int, ...]
    """Ids, ascending; several only if ``corrected``, and all of the node's if no manager takes part."""


class Failure(NamedTuple):
    """Why a pod is not aligned."""

    message: str
    kind: Kind | None = None
    """What is not aligned; None: the topology may be stale."""
    container: str | None = None
    lacks: tuple[Lack, ...] = ()
    """By name; not empty if a container or pod is not aligned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """The filter's result."""

    fits: bool
    failure: Failure | None = None
    """With ``fits``: under best-effort, the kubelet admits the pod but does not align it."""
    placed: Sequence[Placed] = ()
    """Including containers placed before the failure."""
    moved: Sequence[str] = ()
    """Containers on other zones than an init container. The kubelet rejects them if it reuses the CPUs."""
    not_charged: Amounts = field(default_factory=dict)

    @property
    def marks_node(self) -> bool:
        """Return whether reservations on the node may have caused the failure."""
        return not self.fits and self.failure is not None and self.failure.kind is not None


FITS = Filtered(fits=True)


class _Answer(NamedTuple):
    zones: tuple[int, ...]
    held: Amounts
    lacks: tuple[Lack, ...]


def numa_filter(pod: Pod, node: Node, *, corrected: bool = False) -> Filtered:
    """Decide whether a pod fits a node.

    ``corrected``: decide as the kubelet does under ``restricted`` and where its managers are known; see
    docs/numa-rules.md for other differences.
    """
    zones = node.zones or ()
    listed = {name for zone in zones for name in zone.available} if corrected else set()
    if pod.qos == "BestEffort":
        # It needs zones if it names a device or a zoned batch resource, even with amount 0.
        requests = chain((one.requests for one in chain(pod.inits, pod.containers)), [pod.pod_level or {}])
        if all(is_native(name) and name not in BATCH & listed for request in requests for name in request):
            return FITS
    if not node.fresh:
        return Filtered(fits=False, failure=Failure(NOT_FRESH))
    policy = node.kubelet.policy
    if node.zones is None or policy == "none" or (not corrected and policy != "single-numa-node"):
        return FITS
    if corrected:
        return _corrected(pod, node)
    # Greedily, without backtracking. Init containers and sidecars take nothing from their zones.
    placed: list[Placed] = []
    for step in steps(pod, node.kubelet.scope):
        answer = _in_one_zone(step.request, zones, pod, node)
        if answer.lacks:
            return Filtered(fits=False, failure=_failure(step, answer.lacks), placed=placed)
        if step.kind in {"pod", "app"}:
            placed.append(Placed(step.container, answer.zones))
            zones = _after(answer, zones)
    return Filtered(fits=True, placed=placed)


def _corrected(pod: Pod, node: Node) -> Filtered:
    """Charge sidecars to their zones. Reject a pod only if the kubelet rejects it."""
    zones = node.zones or ()
    placed: list[Placed] = []
    of_inits: set[tuple[int, ...]] = set()
    moved: list[str] = []
    wanted = list(steps(pod, node.kubelet.scope, corrected=True))
    for step in wanted:
        answer = _corrected_answer(step, zones, pod, node)
        if answer.lacks:
            fits = node.kubelet.policy == "best-effort"
            return Filtered(fits=fits, failure=_failure(step, answer.lacks), placed=placed)
        if step.kind == "init":
            of_inits.add(answer.zones)
            continue
        placed.append(Placed(step.container, answer.zones))
        if step.container is not None and of_inits - {answer.zones}:
            moved.append(step.container)
        zones = _after(answer, zones)
    whole_pod = any(step.kind == "pod" for step in wanted)
    return Filtered(fits=True, placed=placed, moved=moved, not_charged={} if whole_pod else pod.overhead)


def _corrected_answer(step: Step, zones: Sequence[Zone], pod: Pod, node: Node) -> _Answer:
    """Apply the kubelet's rule, or require one zone if its managers are unknown."""
    kubelet, request = node.kubelet, step.request
    known = kubelet.cpu_static is not None and kubelet.memory_static is not None
    if kubelet.policy == "single-numa-node" and not known:
        unmanaged = filter(is_memory, request) if kubelet.memory_static is False else ()
        return _in_one_zone(request, zones, pod, node, anywhere=BATCH.union(unmanaged))
    missing = tuple(sorted(not_on_node(request, node.allocatable)))
    if missing:
        return _Answer((), {}, missing)
    if step.kind == "pod":
        request = {**request, CPU: exclusive_cpu_milli(pod)}
    admission = policy_admit(request, zones, kubelet, guaranteed=pod.guaranteed, corrected=True)
    held = {name: amount for group in admission.groups for name, amount in group.items()}
    refused = () if admission.preferred else sorted(held)
    lacks = tuple(lack_of(name, held[name], zones, "not_aligned") for name in refused)
    return _Answer(admission.zones, held, lacks)


def _in_one_zone(
    request: Amounts, zones: Sequence[Zone], pod: Pod, node: Node, anywhere: Collection[str] = ()
) -> _Answer:
    """Charge CPU and memory of the zone only for Guaranteed pods."""
    found = one_zone(request, zones, node.allocatable, guaranteed=pod.guaranteed, anywhere=anywhere)
    held = {name: amount for name, amount in request.items() if pod.guaranteed or not is_affine(name)}
    return _Answer((found.zone,), held, found.lacks)


def _after(answer: _Answer, zones: Sequence[Zone]) -> list[Zone]:
    return charged(answer.held, zones, places_of(answer.zones, zones))


def _failure(step: Step, lacks: tuple[Lack, ...]) -> Failure:
    return Failure(MESSAGES[step.kind], step.kind, step.container, lacks)
