"""Which CPUs a pod gets on a node, and what is written to it; how its request divides among NUMA zones.

Reading: plugin.go, util.go, resource_manager.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import effective_priority_class, raw_qos
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.cores.allocate import Free, allocate
from slacktide.streams.decisions.cores.take import (
    CORE_LEVEL,
    FULL,
    NO_CPUS,
    NOT_ENOUGH,
    SPREAD,
    ZONE_LEVEL,
    Cpus,
    TakeError,
    Wish,
    marked,
)

CPU, MEMORY = "cpu", "memory"
ALONE = "LSE"
OWNERS = frozenset({ALONE, "LSR"})
"""QoS classes with CPUs of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Of one zone, or of a pod."""

    cpu_milli: int = 0
    mem_bytes: int = 0


def unheld(allocatable: Mapping[int, Amounts], held: Mapping[int, Amounts]) -> dict[int, Amounts]:
    """Return what each zone has beside what pods hold there."""
    return {
        zone: Amounts(
            cpu_milli=max(0, its.cpu_milli - held.get(zone, Amounts()).cpu_milli),
            mem_bytes=max(0, its.mem_bytes - held.get(zone, Amounts()).mem_bytes),
        )
        for zone, its in allocatable.items()
    }


def divide(
    request: Amounts, zones: Mapping[int, Amounts], affinity: Sequence[int], free: Free, wish: Wish | None
) -> tuple[Mapping[int, Amounts], Sequence[str]]:
    """Return what a pod gets of each zone, and why it does not fit.

    ``zones``: what each zone has. ``affinity``: the pod's zones, ascending. ``wish`` None: the pod binds no CPUs.
    """
    cpu = {zone: its.cpu_milli for zone, its in zones.items()}
    unit_milli = 1
    corrected = free.topology.corrected
    if wish is not None:
        unit_milli = 1_000 * (free.topology.per_core if wish.required and wish.bind == FULL else 1)
        if wish.required or corrected:
            kept, _ = free.cpus(wish)
            cpu = {
                zone: min(milli, 1_000 * len(kept & free.topology.of_zone.get(zone, NO_CPUS)))
                for zone, milli in cpu.items()
            }
        if corrected:  # of 2,500m that are free, a pod binds two CPUs
            cpu = {zone: milli // unit_milli * unit_milli for zone, milli in cpu.items()}
    mem = {zone: its.mem_bytes for zone, its in zones.items()}
    cpus, cpu_rest = _walk(request.cpu_milli, cpu, affinity, unit_milli, corrected=corrected)
    mems, mem_rest = _walk(request.mem_bytes, mem, affinity, 1, corrected=corrected)
    reasons = [f"Insufficient NUMA {name}" for name, rest in ((CPU, cpu_rest), (MEMORY, mem_rest)) if rest > 0]
    parts = {
        zone: Amounts(cpu_milli=cpus[zone], mem_bytes=mems[zone])
        for zone in sorted(affinity)
        if cpus[zone] or mems[zone]
    }
    return parts, reasons


def _walk(
    amount: int, free: Mapping[int, int], affinity: Sequence[int], unit: int, *, corrected: bool
) -> tuple[dict[int, int], int]:
    """Take equal shares of the zones in their order; return the parts, and the rest."""
    row = sorted(affinity, key=lambda zone: free.get(zone, 0)) if corrected else list(affinity)
    # Sort the zones as the reference does, which takes their places for their ids.
    for begin in range(1, len(row)) if not corrected else ():
        at = begin
        while at > 0 and free.get(at, 0) < free.get(at - 1, 0):
            row[at], row[at - 1] = row[at - 1], row[at]
            at -= 1
    parts = {}
    for at, zone in enumerate(row):
        left = len(row) - at
        share = amount // left if unit == 1 else -(-amount // 1_000) // (unit // 1_000) // left * unit
        parts[zone] = min(free.get(zone, 0), share)
        amount -= parts[zone]
    return parts, amount


DEFAULT = "Default"
MOST_FREE = "LeastAllocated"
"""The strategy that prefers the zone with the most free CPUs."""
WHOLE_ONLY = "the requested CPUs must be integer"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_MULTIPLE = "node(s) requested cpus not multiple cpus per core"
OF_KUBELET = "the kubelet's static CPU manager binds the node's CPUs"
NO_CLASS = "CPUs are bound for pods of priority class koord-prod"
NO_POLICY = "no CPUs are ever bound by this cpu bind policy"
NO_REQUEST = "the pod requests no CPUs"
CODES = {
    NOT_ENOUGH: "cores_not_enough",
    NO_TOPOLOGY: "cores_no_topology",
    CONFLICT: "cores_conflict",
    NOT_MULTIPLE: "cores_smt",
    OF_KUBELET: "cores_kubelet_static",
}
"""Reasons by the beginning of their text; all others are ``cores_policy``."""
SHARED_MIN = 2
"""CPUs of a node that no pod gets for itself, so that all others have some."""
Stage = Literal["ok", "prefilter", "filter", "reserve"]


RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
_KEYS = {
    "required": "requiredCPUBindPolicy",
    "preferred": "preferredCPUBindPolicy",
    "exclusive": "preferredCPUExclusivePolicy",
}


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename=_KEYS, omit_defaults=True):
    """How a pod's CPUs are to be bound, by its annotation resource-spec; "": absent."""

    required: str = ""
    preferred: str = ""
    exclusive: str = ""


def spec_of(annotations: Mapping[str, str]) -> Spec:
    """Read the annotation; one that cannot be read counts as absent."""
    try:
        spec: Spec = json_of(annotations.get(RESOURCE_SPEC) or "{}", Spec, where=RESOURCE_SPEC)
    except TextError:
        return Spec()
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePolicy:
    """How a node binds pods."""

    label: str = ""
    """node.koordinator.sh/cpu-bind-policy"""
    full_only: bool = False
    """The kubelet's CPU manager is static, and takes whole cores only."""
    default: str = FULL
    strategy: str = ""
    of_kubelet: bool = False
    """Corrected: the kubelet's CPU manager is static, and so binds the node's CPUs itself."""

    @property
    def bind(self) -> str:
        """Return the bind policy that the node demands; "": none."""
        if self.full_only or self.label == "FullPCPUsOnly":
            return FULL
        return SPREAD if self.label == SPREAD else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """The result for one pod and node."""

    stage: Stage
    reason: str = ""
    binds: bool = False
    """Whether the pod binds CPUs; also where an error comes after the filter."""
    cpus: Cpus | None = None
    spec: Spec = field(default_factory=Spec)
    """As it is written to the pod."""
    wish_kept: bool = True
    """Whether the CPUs keep off those of pods with the same exclusive policy, which is only a wish."""

    @property
    def code(self) -> str:
        """Return the reason of a refusal."""
        return next((code for text, code in CODES.items() if self.reason.startswith(text)), "cores_policy")


class _StageError(Exception):
    def __init__(self, stage: Stage, reason: str) -> None:
        self.stage: Stage = stage
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a pod asks for by itself."""

    binds: bool = False
    required: str = ""
    policy: str = ""
    exclusive: str = ""
    alone: bool = False


def schedule(pod: Pod, request_milli: int, spec: Spec, free: Free, node: NodePolicy) -> Scheduled:
    """Decide whether a pod binds CPUs, and which. ``request_milli``: its CPU request; ``spec``: its annotation.

    In the reference an LSE or LSR pod may pass without CPUs of its own. Corrected, it gets them or is refused.
    """
    corrected, asked = free.topology.corrected, _Asked()
    try:
        asked = _asked(pod, request_milli, spec, node.default, corrected=corrected)
        if not asked.binds and request_milli > 0 and node.bind:
            asked = _Asked(binds=True)
            _check_whole("filter", request_milli)
        if not asked.binds:
            return Scheduled(stage="ok", spec=spec)
        _filter(asked, request_milli // 1_000, free, node)
        wish = _wish(asked, node)
        try:
            cpus = allocate(free, wish, request_milli // 1_000)
        except TakeError as exc:
            raise _StageError("filter" if corrected else "reserve", str(exc)) from exc
    except _StageError as exc:
        return Scheduled(stage=exc.stage, reason=exc.reason, binds=exc.stage == "reserve", spec=spec)
    required, preferred = spec.required, spec.preferred
    if wish.required and required in {"", DEFAULT}:
        required = wish.bind
    if preferred == DEFAULT or not (required or preferred):
        preferred = wish.bind
    recorded = Spec(required=required, preferred=preferred, exclusive=spec.exclusive)
    cores, zones = marked(free.topology, free.taken)
    kept = not (
        (wish.exclusive == CORE_LEVEL and cores & {free.topology.core(cpu) for cpu in cpus})
        or (wish.exclusive == ZONE_LEVEL and zones & {free.topology.zone(cpu) for cpu in cpus})
    )
    return Scheduled(stage="ok", binds=True, cpus=cpus, spec=recorded, wish_kept=kept)


def _asked(pod: Pod, request_milli: int, spec: Spec, default: str, *, corrected: bool) -> _Asked:
    qos = raw_qos(pod.qos_label)
    if qos not in OWNERS:
        return _Asked()
    if effective_priority_class(pod) != "koord-prod":
        return _unbound(NO_CLASS, corrected=corrected)
    preferred = default if spec.preferred in {"", DEFAULT} else spec.preferred
    required = default if spec.required == DEFAULT else spec.required
    policy = required or preferred
    if policy not in {FULL, SPREAD}:
        return _unbound(f"{NO_POLICY}: {policy}", corrected=corrected)
    _check_whole("prefilter", request_milli)
    if request_milli <= 0:
        return _unbound(NO_REQUEST, corrected=corrected)
    alone = corrected and qos == ALONE
    return _Asked(binds=True, required=required, policy=policy, exclusive=spec.exclusive, alone=alone)


def _unbound(why: str, *, corrected: bool) -> _Asked:
    if corrected:
        raise _StageError("prefilter", why)
    return _Asked()


def _check_whole(stage: Stage, request_milli: int) -> None:
    if request_milli % 1_000:
        raise _StageError(stage, WHOLE_ONLY)


def _filter(asked: _Asked, wanted: int, free: Free, node: NodePolicy) -> None:
    if not free.topology.cpus:
        raise _StageError("filter", NO_TOPOLOGY)
    if node.of_kubelet:
        raise _StageError("filter", OF_KUBELET)
    if asked.required and node.bind and asked.required != node.bind:
        raise _StageError("filter", CONFLICT)
    enforced = node.bind or asked.required
    if enforced == FULL and wanted % free.topology.per_core and (free.topology.even or not free.topology.corrected):
        raise _StageError("filter", NOT_MULTIPLE)
    if enforced:
        try:
            allocate(free, _wish(asked, node), wanted)
        except TakeError as exc:
            raise _StageError("filter", str(exc)) from exc


def _wish(asked: _Asked, node: NodePolicy) -> Wish:
    enforced = asked.required or node.bind
    return Wish(
        bind=enforced or asked.policy,
        required=bool(enforced),
        exclusive=asked.exclusive,
        strategy=node.strategy,
        alone=asked.alone,
    )
