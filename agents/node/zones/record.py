"""Builds the record of a node's zones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slacktide.agents.node.zones.devices import DeviceState
from slacktide.agents.node.zones.kubelet import DEFAULT_MAX_ZONES, CpuState, KubeletConfig, MemoryState
from slacktide.schemas.sample import Missing
from slacktide.schemas.zones import BoundPod, NodeZones, Zone, ZoneDistance, ZoneResources

MEMORY = "memory"
HUGEPAGES = "hugepages-"
NO_CPUS = CpuState(static=False, exclusive={})
NO_MEMORY = MemoryState(static=False, allocatable={}, reserved={}, free={}, blocks={})
NO_DEVICES = DeviceState(zones={}, held={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SysZone:
    """A zone of the kernel."""

    id: int
    cpus: frozenset[int]
    """Online CPUs; empty: the zone has only memory."""
    mem_bytes: int
    """Hugepages included."""
    hugepages_bytes: Mapping[str, int]
    """All hugepages, used or not, by Kubernetes page size such as ``2Mi``."""
    distances: Mapping[int, int]
    """To each online zone by id, itself included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Zones and kubelet state as read."""

    zones: Sequence[SysZone]
    """Empty: zones or assignments are unknown."""
    config: KubeletConfig | None
    """None: unread, so that the policies are unknown."""
    cpu: CpuState | None = None
    """None: the kubelet has no such file and has assigned no CPUs."""
    memory: MemoryState | None = None
    devices: DeviceState | None = None
    """None: no device plugin has registered, or devices are unreadable."""
    missing: Sequence[Missing] = ()

    @property
    def holders(self) -> set[str]:
        """Uids of pods with assigned CPUs, memory or devices."""
        cpu, memory, devices = self.managers
        return {*cpu.exclusive, *memory.blocks, *devices.held}

    @property
    def managers(self) -> tuple[CpuState, MemoryState, DeviceState]:
        """State of each manager; empty for one without a file."""
        return self.cpu or NO_CPUS, self.memory or NO_MEMORY, self.devices or NO_DEVICES

    def without(self, uids: Collection[str]) -> Read:
        """Return the same after these pods' resources are released."""
        cpu, memory = self.cpu and self.cpu.without(uids), self.memory and self.memory.without(uids)
        devices = self.devices and self.devices.without(uids)
        return replace(self, cpu=cpu, memory=memory, devices=devices) if uids else self


def node_zones(read: Read, uids: Iterable[str], *, node: str, boot_id: str, seq: int, observed_ms: int) -> NodeZones:
    """Build the record. ``uids``: running pods, counted with or without assigned resources."""
    config = read.config
    reserved = _reserved_cpus(read.zones, config)
    return NodeZones(
        node=node,
        boot_id=boot_id,
        seq=seq,
        observed_ms=observed_ms,
        zones=[_zone(zone, reserved, read) for zone in read.zones],
        policy=None if config is None else config.policy,
        scope=None if config is None else config.scope,
        max_zones=DEFAULT_MAX_ZONES if config is None else config.max_zones,
        prefer_closest=config is not None and config.prefer_closest,
        cpu_static=_static(read.cpu, None if config is None else config.cpu_static),
        memory_static=_static(read.memory, None if config is None else config.memory_static),
        pods=[BoundPod(uid=uid, zones=_zones_of(uid, read)) for uid in sorted(set(uids))],
        missing=list(read.missing),
    )


def _static(state: CpuState | MemoryState | None, configured: bool | None) -> bool | None:  # noqa: FBT001 - a value
    """Whether a manager is static. The state file wins over the configuration, which may be newer than the kubelet."""
    return configured if state is None else state.static


def _reserved_cpus(zones: Sequence[SysZone], config: KubeletConfig | None) -> frozenset[int]:
    """Return the CPUs for the system: ``reservedSystemCPUs``, else as many as are reserved, the lowest first.

    The kubelet picks the latter by topology: whole cores of the first zone first.
    """
    if config is None:
        return frozenset()
    in_order = [cpu for zone in zones for cpu in sorted(zone.cpus)]
    return config.reserved_cpus or frozenset(in_order[: config.reserved_cpu_count if config.cpu_static else 0])


def _zone(zone: SysZone, reserved: Collection[int], read: Read) -> Zone:
    cpu, memory, devices = read.managers
    cpus = zone.cpus.difference(reserved)
    free_cpus = cpus.difference(*cpu.exclusive.values())
    allocatable = memory.allocatable.get(zone.id) or _allocatable_bytes(zone, read.config)
    available = {**allocatable, **memory.free.get(zone.id, {})}
    return Zone(
        id=zone.id,
        allocatable=_resources(zone, len(cpus), allocatable, devices.allocatable(zone.id)),
        available=_resources(zone, len(free_cpus), available, devices.available(zone.id)),
        distances=[ZoneDistance(zone=other, distance=far) for other, far in sorted(zone.distances.items())],
    )


def _allocatable_bytes(zone: SysZone, config: KubeletConfig | None) -> dict[str, int]:
    reserved = {} if config is None else config.reserved_bytes.get(zone.id, {})
    total = {MEMORY: zone.mem_bytes - sum(zone.hugepages_bytes.values())}
    total |= {f"{HUGEPAGES}{size}": amount for size, amount in zone.hugepages_bytes.items()}
    return {kind: max(0, amount - reserved.get(kind, 0)) for kind, amount in total.items()}


def _resources(zone: SysZone, cpus: int, amounts: Mapping[str, int], devices: dict[str, int]) -> ZoneResources:
    """Return the resources of a zone. Those that it lacks are not listed."""
    return ZoneResources(
        cpu_milli=cpus * 1000 if zone.cpus else None,
        mem_bytes=amounts.get(MEMORY) if zone.mem_bytes else None,
        hugepages_bytes={size: amounts.get(f"{HUGEPAGES}{size}", 0) for size, of in zone.hugepages_bytes.items() if of},
        devices=devices,
    )


def _zones_of(uid: str, read: Read) -> list[int]:
    cpu, memory, devices = read.managers
    cpus = cpu.exclusive.get(uid, frozenset())
    return sorted({zone.id for zone in read.zones if zone.cpus & cpus} | memory.zones_of(uid) | devices.zones_of(uid))
