"""Whether a node's zones can hold a pod, and which zone each container would get.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/filter.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from slacktide.streams.decisions.numa.charged import charged, places_of
from slacktide.streams.decisions.numa.one_zone import Lack, lack_of, not_on_node, one_zone
from slacktide.streams.decisions.numa.pod import Kind, Pod, Step, exclusive_cpu_milli, steps
from slacktide.streams.decisions.numa.policy_admit import policy_admit
from slacktide.streams.decisions.numa.resource import BATCH, CPU, Amounts, is_affine, is_native
from slacktide.streams.decisions.numa.topology import Kubelet, Zone

NOT_FRESH = "invalid node topology data"
MESSAGES: Final[Mapping[Kind, str]] = {
    "pod": "cannot align pod",
    "init": "cannot align init container",
    "sidecar": "cannot align sidecar container",
    "app": "cannot align container",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the filter reads it."""

    allocatable: Amounts
    kubelet: Kubelet = field(default_factory=Kubelet)
    zones: Sequence[Zone] | None = None
    """None: the node has no topology."""
    fresh: bool = True
    """False: what is known of its topology cannot be trusted."""


class Placed(NamedTuple):
    """The zones that a container would get."""

    container: str | None
    """None: the whole pod."""
    zones: tuple[int, ...]
    """Ids, ascending; a corrected answer may name several, and all of the node's where no manager takes part."""


class Failure(NamedTuple):
    """Why a pod is not aligned."""

    message: str
    kind: Kind | None = None
    """Of what is not aligned; None: the topology cannot be trusted."""
    container: str | None = None
    lacks: tuple[Lack, ...] = ()
    """By name; not empty where something is not aligned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """The filter's answer."""

    fits: bool
    failure: Failure | None = None
    """With ``fits``: the kubelet admits the pod under best-effort, but does not align it."""
    placed: Sequence[Placed] = ()
    """What was placed before the failure, too."""
    moved: Sequence[str] = ()
    """Containers on other zones than an init container: the kubelet refuses these where it reuses its CPUs."""
    not_charged: Amounts = field(default_factory=dict)
    """Overhead, which belongs to no container."""

    @property
    def marks_node(self) -> bool:
        """Whether the reservations of the node may be what was in the way."""
        return not self.fits and self.failure is not None and self.failure.kind is not None


FITS = Filtered(fits=True)


class _Answer(NamedTuple):
    """To one request."""

    zones: tuple[int, ...]
    held: Amounts
    """What it takes from them."""
    lacks: tuple[Lack, ...]


def numa_filter(pod: Pod, node: Node, *, corrected: bool = False) -> Filtered:
    """Ask whether a pod may go to a node.

    Args:
        pod: what it requests.
        node: what it has.
        corrected: under ``restricted``, and where the kubelet's managers are known, decide as the kubelet will; see
            docs/numa-rules.md for the rest.

    """
    zones = node.zones or ()
    listed = {name for zone in zones for name in zone.available} if corrected else set()
    if pod.qos == "BestEffort" and not _needs_zones(pod, BATCH & listed):
        return FITS
    if not node.fresh:
        return Filtered(fits=False, failure=Failure(NOT_FRESH))
    policy = node.kubelet.policy
    if node.zones is None or policy == "none" or (not corrected and policy != "single-numa-node"):
        return FITS
    return _corrected(pod, node) if corrected else _as_reference(pod, node)


def _needs_zones(pod: Pod, batch: frozenset[str]) -> bool:
    """Whether a container names a device, or a batch resource that zones list; even with amount 0."""
    requests = chain((one.requests for one in chain(pod.inits, pod.containers)), [pod.pod_level or {}])
    return any(not is_native(name) or name in batch for request in requests for name in request)


def _as_reference(pod: Pod, node: Node) -> Filtered:
    """Greedy and without backtracking: an init container, also a sidecar, takes nothing from its zone."""
    zones = node.zones or ()
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
    """A sidecar holds its zones; what is not aligned is refused only where the kubelet refuses it."""
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
    """By the kubelet's own rule, unless its managers are unknown and one zone has to hold all."""
    kubelet, request = node.kubelet, step.request
    known = kubelet.cpu_static is not None and kubelet.memory_static is not None
    if kubelet.policy == "single-numa-node" and not known:
        return _in_one_zone(request, zones, pod, node, anywhere=BATCH)
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
    """Only a Guaranteed pod holds CPU and memory of its zone."""
    found = one_zone(request, zones, node.allocatable, guaranteed=pod.guaranteed, anywhere=anywhere)
    held = {name: amount for name, amount in request.items() if pod.guaranteed or not is_affine(name)}
    return _Answer((found.zone,), held, found.lacks)


def _after(answer: _Answer, zones: Sequence[Zone]) -> list[Zone]:
    return charged(answer.held, zones, places_of(answer.zones, zones))


def _failure(step: Step, lacks: tuple[Lack, ...]) -> Failure:
    return Failure(MESSAGES[step.kind], step.kind, step.container, lacks)
