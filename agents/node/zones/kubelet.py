"""Exclusive CPUs and memory of pods by zone, from the kubelet's state files. Torn text raises ZonesError.

Reading: kubernetes v1.35.4, pkg/kubelet/cm/cpumanager/state and memorymanager/state; for ``podEntries``, KEP-5526. The
files' checksum is specific to Go and not verified; a torn file is invalid JSON or lacks a field.

The kubelet releases resources of ended pods when it admits the next pod. It also releases CPUs every 10 s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, TypeVar

import msgspec

from slacktide.schemas.bounds import AMOUNT_MAX, Amount
from slacktide.schemas.errors import QuantityError, TextError, ZonesError
from slacktide.schemas.text import answer_of, integer_of, shown
from slacktide.schemas.units import cpu_milli, whole
from slacktide.schemas.zones import ZONES_MAX, Policy, Scope, ZoneId
from slacktide.streams.decisions.cpu_list import cpu_list

T = TypeVar("T")
CPU_STATE = "cpu_manager_state"
MEMORY_STATE = "memory_manager_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuState:
    """State of the CPU manager."""

    static: bool
    exclusive: Mapping[str, frozenset[int]]

    def without(self, uids: Collection[str]) -> CpuState:
        """Return the state after these pods' CPUs are released."""
        return replace(self, exclusive={uid: cpus for uid, cpus in self.exclusive.items() if uid not in uids})


class MemoryBlock(msgspec.Struct, frozen=True, rename="camel"):
    """An amount assigned to a container."""

    numa_affinity: list[ZoneId]
    """Zones that provide it. The first one provides as much as it can."""
    type: str
    """``memory`` or ``hugepages-<size>``."""
    size: Amount


Amounts = Mapping[int, Mapping[str, int]]
"""In bytes, by zone, then by ``memory`` or ``hugepages-<size>``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """State of the memory manager."""

    static: bool
    allocatable: Amounts
    reserved: Amounts
    free: Amounts
    blocks: Mapping[str, Sequence[MemoryBlock]]

    def zones_of(self, uid: str) -> frozenset[int]:
        """Zones of a pod's memory."""
        return frozenset(zone for block in self.blocks.get(uid, ()) for zone in block.numa_affinity)

    def without(self, uids: Collection[str]) -> MemoryState:
        """Return the state after these pods' memory is released."""
        ended = [block for uid, blocks in self.blocks.items() if uid in uids for block in blocks]
        reserved = {zone: dict(kinds) for zone, kinds in self.reserved.items()}
        free = {zone: dict(kinds) for zone, kinds in self.free.items()}
        for block in ended:
            amount = block.size
            for zone in block.numa_affinity:  # the first of several zones gets back as much as it can
                back = min(amount, reserved.get(zone, {}).get(block.type, 0))
                if back:
                    reserved[zone][block.type] -= back
                    free[zone][block.type] += back
                    amount -= back
        kept = {uid: blocks for uid, blocks in self.blocks.items() if uid not in uids}
        return replace(self, reserved=reserved, free=free, blocks=kept)


class _PodCpus(msgspec.Struct, rename="camel"):
    """CPUs of a pod as a whole; its containers have parts of them."""

    cpu_set: str = ""


class _CpuFile(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str
    checksum: int
    entries: dict[str, dict[str, str]] = {}
    pod_entries: dict[str, _PodCpus] = {}


class _Table(msgspec.Struct):
    allocatable: Amount
    reserved: Amount
    free: Amount


class _ZoneState(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _Table] | None = None
    """None: a zone without memory, or a policy that manages none."""


class _PodMemory(msgspec.Struct, rename="camel"):
    """Memory of a pod as a whole; the blocks of its containers are parts of it."""

    memory_blocks: list[MemoryBlock] | None = None


class _MemoryFile(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,4}$")], _ZoneState] | None
    checksum: int
    entries: dict[str, dict[str, list[MemoryBlock]]] = {}
    pod_entries: dict[str, _PodMemory] = {}


def parsed(text: bytes, kind: type[T], where: str) -> T:
    """Decode JSON of the kubelet's file ``where``."""
    try:
        found: T = answer_of(text, kind, where="")
    except TextError as exc:
        raise ZonesError(where, str(exc)) from exc
    return found


def cpu_state(text: bytes) -> CpuState:
    """Read ``cpu_manager_state``."""
    state = parsed(text, _CpuFile, CPU_STATE)
    lists = {uid: list(containers.values()) for uid, containers in state.entries.items()}
    for uid, pod in state.pod_entries.items():
        lists.setdefault(uid, []).append(pod.cpu_set)
    of_pods = {
        uid: frozenset().union(*(cpu_set(cpus, f"{CPU_STATE}: entries.{uid}") for cpus in texts))
        for uid, texts in lists.items()
    }
    return CpuState(static=state.policy_name == "static", exclusive=of_pods)


def memory_state(text: bytes) -> MemoryState:
    """Read ``memory_manager_state``."""
    state = parsed(text, _MemoryFile, MEMORY_STATE)
    try:
        zones = {integer_of(zone, where=""): one.memory_map or {} for zone, one in (state.machine_state or {}).items()}
    except TextError as exc:  # with a newline, which the pattern accepts
        raise ZonesError(MEMORY_STATE, f"a zone's number: {exc}") from exc
    return MemoryState(
        static=state.policy_name == "Static",
        allocatable={zone: {kind: one.allocatable for kind, one in kinds.items()} for zone, kinds in zones.items()},
        reserved={zone: {kind: one.reserved for kind, one in kinds.items()} for zone, kinds in zones.items()},
        free={zone: {kind: one.free for kind, one in kinds.items()} for zone, kinds in zones.items()},
        blocks={
            **{
                uid: [block for blocks in containers.values() for block in blocks]
                for uid, containers in state.entries.items()
            },
            # Only these were taken from the zones.
            **{uid: pod.memory_blocks for uid, pod in state.pod_entries.items() if pod.memory_blocks},
        },
    )


def cpu_set(text: str, where: str) -> frozenset[int]:
    """Parse a CPU list such as ``0-3,6`` of a field ``where``."""
    found = cpu_list(text)
    if found is None:
        raise ZonesError(where, f"{text[:40]!r}: accepted: a list of CPUs such as 0-3,6")
    return frozenset(found)


PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ZONES = "max-allowable-numa-nodes"
DEFAULT_MAX_ZONES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """The settings. Absent ones have the kubelet's default."""

    policy: Policy
    scope: Scope
    max_zones: int
    prefer_closest: bool
    cpu_static: bool
    memory_static: bool
    reserved_cpus: frozenset[int]
    """``reservedSystemCPUs``: never exclusive to a pod."""
    reserved_cpu_count: int
    """Whole CPUs of ``systemReserved`` and ``kubeReserved``; used without ``reservedSystemCPUs``."""
    reserved_bytes: Mapping[int, Mapping[str, int]]
    """By zone, then by ``memory`` or ``hugepages-<size>``."""


class _ReservedMemory(msgspec.Struct, rename="camel"):
    numa_node: ZoneId
    limits: dict[str, str | int] = {}


class _File(msgspec.Struct, rename="camel"):
    topology_manager_policy: Policy = "none"
    topology_manager_scope: Scope = "container"
    topology_manager_policy_options: dict[str, str] | None = None
    cpu_manager_policy: str = "none"
    memory_manager_policy: str = "None"
    reserved_system_cpus: Annotated[str, msgspec.Meta(max_length=10_000)] = msgspec.field(
        default="", name="reservedSystemCPUs"
    )
    system_reserved: dict[str, str | int | float] | None = None
    kube_reserved: dict[str, str | int | float] | None = None
    reserved_memory: list[_ReservedMemory] | None = None


def kubelet_config(content: object) -> KubeletConfig:
    """Parse a KubeletConfiguration, or ``/configz``, which holds one as ``kubeletconfig``.

    Raises:
        ZonesError: the kubelet does not accept a setting.
    """
    if isinstance(content, dict) and "kubeletconfig" in content:
        content = content["kubeletconfig"]
    try:
        file = msgspec.convert(content, _File)
    except ValueError as exc:  # of another type, or text that is no UTF-8
        raise ZonesError("configuration of the kubelet", str(exc)) from exc
    options = file.topology_manager_policy_options or {}
    return KubeletConfig(
        policy=file.topology_manager_policy,
        scope=file.topology_manager_scope,
        max_zones=_max_zones(options.get(MAX_ZONES)),
        prefer_closest=options.get(PREFER_CLOSEST, "").lower() == "true",
        cpu_static=file.cpu_manager_policy == "static",
        memory_static=file.memory_manager_policy == "Static",
        reserved_cpus=cpu_set(file.reserved_system_cpus, "reservedSystemCPUs"),
        reserved_cpu_count=_reserved_cpu_count(file),
        reserved_bytes=_reserved_bytes(file),
    )


def _max_zones(text: str | None) -> int:
    if text is None:
        return DEFAULT_MAX_ZONES
    field = f"topologyManagerPolicyOptions.{MAX_ZONES}"
    try:
        return integer_of(text, where="", least=DEFAULT_MAX_ZONES, most=ZONES_MAX)
    except TextError as exc:
        raise ZonesError(field, f"{shown(text)}: accepted: {DEFAULT_MAX_ZONES} to {ZONES_MAX}") from exc


def _reserved_cpu_count(file: _File) -> int:
    parts = [(part or {}).get("cpu", 0) for part in (file.system_reserved, file.kube_reserved)]
    try:
        return ceil(sum(cpu_milli(part) for part in parts) / 1000)
    except QuantityError as exc:
        raise ZonesError("systemReserved.cpu, kubeReserved.cpu", str(exc)) from exc


def _reserved_bytes(file: _File) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for one in file.reserved_memory or ():
        of_zone = found[one.numa_node] = {}
        for kind, amount in one.limits.items():
            field = f"reservedMemory: zone {one.numa_node}"
            try:
                size_bytes = whole(amount)
            except QuantityError as exc:
                raise ZonesError(field, str(exc)) from exc
            if not 0 <= size_bytes <= AMOUNT_MAX:
                raise ZonesError(field, f"{amount}: accepted: 0 to {AMOUNT_MAX} bytes")
            of_zone[kind] = size_bytes
    return found
