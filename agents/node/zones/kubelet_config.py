"""Kubelet settings about NUMA zones, from ``config.yaml`` or ``/configz``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import msgspec

from slacktide.schemas.bounds import AMOUNT_MAX
from slacktide.schemas.errors import QuantityError, ZonesError
from slacktide.schemas.units import cpu_milli, whole
from slacktide.schemas.zones import ZONES_MAX, Policy, Scope, ZoneId
from slacktide.streams.decisions.cpu_list import cpu_list

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
    except msgspec.ValidationError as exc:
        raise ZonesError("configuration of the kubelet", str(exc)) from exc
    options = file.topology_manager_policy_options or {}
    return KubeletConfig(
        policy=file.topology_manager_policy,
        scope=file.topology_manager_scope,
        max_zones=_max_zones(options.get(MAX_ZONES)),
        prefer_closest=options.get(PREFER_CLOSEST, "").lower() == "true",
        cpu_static=file.cpu_manager_policy == "static",
        memory_static=file.memory_manager_policy == "Static",
        reserved_cpus=_reserved_cpus(file.reserved_system_cpus),
        reserved_cpu_count=_reserved_cpu_count(file),
        reserved_bytes=_reserved_bytes(file),
    )


def _max_zones(text: str | None) -> int:
    if text is None:
        return DEFAULT_MAX_ZONES
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if not DEFAULT_MAX_ZONES <= number <= ZONES_MAX:
        accepted = f"accepted: {DEFAULT_MAX_ZONES} to {ZONES_MAX}"
        raise ZonesError(f"topologyManagerPolicyOptions.{MAX_ZONES}", f"{text[:40]!r}: {accepted}")
    return number


def _reserved_cpus(text: str) -> frozenset[int]:
    found = cpu_list(text)
    if found is None:
        raise ZonesError("reservedSystemCPUs", f"{text[:40]!r}: accepted: a list of CPUs such as 0-3,6")
    return frozenset(found)


def _reserved_cpu_count(file: _File) -> int:
    parts = [(part or {}).get("cpu", 0) for part in (file.system_reserved, file.kube_reserved)]
    try:
        return ceil(sum(cpu_milli(part) for part in parts) / 1000)
    except QuantityError as exc:
        raise ZonesError("systemReserved.cpu, kubeReserved.cpu", str(exc)) from exc


def _reserved_bytes(file: _File) -> dict[int, dict[str, int]]:
    return {
        one.numa_node: {
            kind: _bytes(amount, f"reservedMemory: zone {one.numa_node}") for kind, amount in one.limits.items()
        }
        for one in file.reserved_memory or ()
    }


def _bytes(amount: str | int, field: str) -> int:
    try:
        found = whole(amount)
    except QuantityError as exc:
        raise ZonesError(field, str(exc)) from exc
    if not 0 <= found <= AMOUNT_MAX:
        raise ZonesError(field, f"{amount}: accepted: 0 to {AMOUNT_MAX} bytes")
    return found
