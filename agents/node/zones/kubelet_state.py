"""Which CPUs and how much memory of which zones pods hold, from the files that the kubelet keeps over a restart.

Reading: kubernetes v1.35.4, pkg/kubelet/cm/cpumanager/state and memorymanager/state. The files carry a checksum of Go's
own making; a torn one is no JSON, or lacks a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from slacktide.schemas.bounds import Amount
from slacktide.schemas.errors import ZonesError
from slacktide.schemas.zones import ZoneId
from slacktide.streams.decisions.cpu_list import cpu_list

CPU_STATE = "cpu_manager_state"
MEMORY_STATE = "memory_manager_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuState:
    """What the CPU manager holds."""

    static: bool
    exclusive: Mapping[str, frozenset[int]]
    """CPUs that no other pod may use, by the pod's uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """What the memory manager holds, in bytes by ``memory`` or ``hugepages-<size>``."""

    static: bool
    allocatable: Mapping[int, Mapping[str, int]]
    """By zone."""
    free: Mapping[int, Mapping[str, int]]
    zones_of: Mapping[str, frozenset[int]]
    """By the pod's uid."""


class _CpuFile(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str
    checksum: int
    entries: dict[str, dict[str, str]] = {}


class _Table(msgspec.Struct):
    allocatable: Amount
    free: Amount


class _ZoneState(msgspec.Struct, rename="camel"):
    memory_map: dict[str, _Table]


class _Block(msgspec.Struct, rename="camel"):
    numa_affinity: list[ZoneId]


class _MemoryFile(msgspec.Struct, rename="camel"):
    policy_name: str
    machine_state: dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,4}$")], _ZoneState] | None
    checksum: int
    entries: dict[str, dict[str, list[_Block]]] = {}


def cpu_state(text: bytes) -> CpuState:
    """Read ``cpu_manager_state``.

    Raises:
        ZonesError: it is torn or malformed.

    """
    try:
        state = msgspec.json.decode(text, type=_CpuFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ZonesError(CPU_STATE, str(exc)) from exc
    of_pods = {
        uid: frozenset().union(*(_cpus(cpus, uid) for cpus in containers.values()))
        for uid, containers in state.entries.items()
    }
    return CpuState(static=state.policy_name == "static", exclusive=of_pods)


def memory_state(text: bytes) -> MemoryState:
    """Read ``memory_manager_state``.

    Raises:
        ZonesError: it is torn or malformed.

    """
    try:
        state = msgspec.json.decode(text, type=_MemoryFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ZonesError(MEMORY_STATE, str(exc)) from exc
    zones = {int(zone): one.memory_map for zone, one in (state.machine_state or {}).items()}
    return MemoryState(
        static=state.policy_name == "Static",
        allocatable={zone: {kind: one.allocatable for kind, one in kinds.items()} for zone, kinds in zones.items()},
        free={zone: {kind: one.free for kind, one in kinds.items()} for zone, kinds in zones.items()},
        zones_of={
            uid: frozenset(zone for blocks in containers.values() for block in blocks for zone in block.numa_affinity)
            for uid, containers in state.entries.items()
        },
    )


def _cpus(text: str, uid: str) -> frozenset[int]:
    found = cpu_list(text)
    if found is None:
        raise ZonesError(f"{CPU_STATE}: entries.{uid}", f"{text[:40]!r}: accepted: a list of CPUs such as 0-3,6")
    return frozenset(found)
