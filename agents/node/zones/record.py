"""Builds the record of a node's zones, and parses which devices pods hold. Torn text raises ZonesError. Pure.

Reading: kubernetes v1.34.4, pkg/kubelet/cm/devicemanager/checkpoint, and k8s.io/kubelet, podresources/v1. The kubelet's
checkpoint names the devices that pods hold. Only its podresources API has the zones of all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from slacktide.agents.node.zones.kubelet import DEFAULT_MAX_ZONES, CpuState, KubeletConfig, MemoryState, parsed
from slacktide.schemas.errors import ZonesError
from slacktide.schemas.inventory import ENDED_PHASES, Pod, Processor
from slacktide.schemas.sample import Missing
from slacktide.schemas.zones import ZONES_MAX, BoundPod, NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.cores.allocate import held_cpus
from slacktide.streams.decisions.cores.placement import holder_of
from slacktide.streams.decisions.cores.schedule import Spec
from slacktide.streams.decisions.cores.take import Topology

DEVICE_STATE = "device-plugins/kubelet_internal_checkpoint"
"""In the kubelet's root directory. The kubelet writes it on every change of devices or assignments."""
ANSWER = "podresources API"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}

Ids = Mapping[str, frozenset[str]]
"""Device ids by resource name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """Devices and assignments of the device manager."""

    zones: Mapping[int, Ids]
    """Healthy devices by zone. A device may belong to several zones."""
    held: Mapping[str, Ids]

    def without(self, uids: Collection[str]) -> DeviceState:
        """Return the state after these pods' devices are released."""
        return replace(self, held={uid: ids for uid, ids in self.held.items() if uid not in uids})

    def allocatable(self, zone: int) -> dict[str, int]:
        """Return the number of devices of each resource in a zone."""
        return {resource: len(ids) for resource, ids in self.zones.get(zone, {}).items()}

    def available(self, zone: int) -> dict[str, int]:
        """Return the number of unassigned devices of each resource in a zone."""
        return {
            resource: len(ids.difference(*(held.get(resource, ()) for held in self.held.values())))
            for resource, ids in self.zones.get(zone, {}).items()
        }

    def zones_of(self, uid: str) -> frozenset[int]:
        """Zones of a pod's devices."""
        held = self.held.get(uid, {})
        return frozenset(
            zone
            for zone, has in self.zones.items()
            if any(has.get(name, frozenset()) & ids for name, ids in held.items())
        )


class _Entry(msgspec.Struct, rename={"uid": "PodUID", "resource": "ResourceName", "ids": "DeviceIDs"}):
    uid: str
    resource: str
    ids: dict[str, list[str]] | None
    """Ids by zone; -1: no zone."""


class _Data(msgspec.Struct, rename={"entries": "PodDeviceEntries"}):
    entries: list[_Entry] | None


class _Checkpoint(msgspec.Struct, rename={"data": "Data", "checksum": "Checksum"}):
    data: _Data
    checksum: int


def held_devices(text: bytes) -> dict[str, dict[str, frozenset[str]]]:
    """Parse the checkpoint: assigned devices by pod uid and resource."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for one in parsed(text, _Checkpoint, DEVICE_STATE).data.entries or ():
        of_pod = found.setdefault(one.uid, {})
        of_pod[one.resource] = of_pod.get(one.resource, frozenset()).union(*(one.ids or {}).values())
    return found


def zoned_devices(answer: bytes) -> dict[int, dict[str, frozenset[str]]]:
    """Parse an ``AllocatableResourcesResponse``: healthy devices by zone and resource."""
    found: dict[int, dict[str, frozenset[str]]] = {}
    try:
        for device in _messages(answer, 1):
            [resource] = _messages(device, 1)
            ids = frozenset(one.decode() for one in _messages(device, 2))
            for node in (node for topology in _messages(device, 3) for node in _messages(topology, 1)):
                of_zone = found.setdefault(_zone_of(node), {})
                of_zone[resource.decode()] = of_zone.get(resource.decode(), frozenset()) | ids
    except (ValueError, IndexError) as exc:
        raise ZonesError(ANSWER, f"an incomplete answer: {exc}") from exc
    return found


def _zone_of(node: bytes) -> int:
    """Return a ``NUMANode``: protobuf leaves 0 out."""
    number = next((value for name, value in _fields(node) if name == 1 and isinstance(value, int)), 0)
    if number >= ZONES_MAX:
        raise ValueError(f"zone {number}: accepted: 0 to {ZONES_MAX - 1}")
    return number


def _messages(message: bytes, field: int) -> Iterator[bytes]:
    return (value for name, value in _fields(message) if name == field and isinstance(value, bytes))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a message in protobuf's wire format. Fixed-size numbers are skipped."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 0x7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield key >> 3, message[at : at + size]
            at += size
        else:
            at += _FIXED.get(kind) or len(message) + 1
    if at > len(message):
        raise ValueError("the answer ends within a field")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


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
    processors: Sequence[Processor] = ()
    """Its CPUs whose core and socket are known."""

    @property
    def cores(self) -> dict[int, list[list[int]]]:
        """Return the CPUs of each core, by socket."""
        found: dict[int, dict[int, list[int]]] = {}
        for one in self.processors:
            found.setdefault(one.socket, {}).setdefault(one.core, []).append(one.cpu)
        return {socket: list(cores.values()) for socket, cores in found.items()}


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
    bound: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By uid the CPUs that a scheduler gave to pods, and that nobody else gets."""
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

    def zones_of(self, uid: str) -> list[int]:
        """Zones of a pod's CPUs, memory and devices, ascending."""
        cpu, memory, devices = self.managers
        cpus = cpu.exclusive.get(uid, frozenset()) | self.bound.get(uid, frozenset())
        of_cpus = {zone.id for zone in self.zones if zone.cpus & cpus}
        return sorted(of_cpus | memory.zones_of(uid) | devices.zones_of(uid))

    def with_pods(self, pods: Iterable[Pod]) -> Read:
        """Return the same with the CPUs that these pods have for themselves."""
        topology = Topology([one for zone in self.zones for one in zone.processors], corrected=True)
        holders = {pod.uid: holder_of(pod, Spec()) for pod in pods if pod.phase not in ENDED_PHASES}
        bound = {uid: held_cpus(topology, one.cpus, alone=one.alone) for uid, one in holders.items() if one}
        return replace(self, bound=bound) if bound else self

    def without(self, uids: Collection[str]) -> Read:
        """Return the same after these pods' resources are released."""
        cpu, memory = self.cpu and self.cpu.without(uids), self.memory and self.memory.without(uids)
        devices = self.devices and self.devices.without(uids)
        return replace(self, cpu=cpu, memory=memory, devices=devices) if uids else self


def node_zones(read: Read, uids: Iterable[str], *, node: str, boot_id: str, seq: int, observed_ms: int) -> NodeZones:
    """Build the record. ``uids``: running pods, counted with or without assigned resources."""
    config, reserved = read.config, frozenset[int]()
    if config is not None:
        # ``reservedSystemCPUs``, else as many as are reserved, the lowest first. The kubelet picks the latter by
        # topology: whole cores of the first zone first.
        in_order = [cpu for zone in read.zones for cpu in sorted(zone.cpus)]
        reserved = config.reserved_cpus or frozenset(in_order[: config.reserved_cpu_count if config.cpu_static else 0])
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
        pods=[BoundPod(uid=uid, zones=read.zones_of(uid)) for uid in sorted(set(uids))],
        missing=list(read.missing),
    )


def _static(state: CpuState | MemoryState | None, configured: bool | None) -> bool | None:  # noqa: FBT001 - a value
    """Whether a manager is static. The state file wins over the configuration, which may be newer than the kubelet."""
    return configured if state is None else state.static


def _zone(zone: SysZone, reserved: Collection[int], read: Read) -> Zone:
    cpu, memory, devices = read.managers
    cpus = zone.cpus.difference(reserved)
    free_cpus = cpus.difference(*cpu.exclusive.values(), *read.bound.values())
    allocatable = memory.allocatable.get(zone.id)
    if not allocatable:
        total = {MEMORY: zone.mem_bytes - sum(zone.hugepages_bytes.values())}
        total |= {f"{HUGEPAGES}{size}": amount for size, amount in zone.hugepages_bytes.items()}
        held = {} if read.config is None else read.config.reserved_bytes.get(zone.id, {})
        allocatable = {kind: max(0, amount - held.get(kind, 0)) for kind, amount in total.items()}
    available = {**allocatable, **memory.free.get(zone.id, {})}
    return Zone(
        id=zone.id,
        allocatable=_resources(zone, len(cpus), allocatable, devices.allocatable(zone.id)),
        available=_resources(zone, len(free_cpus), available, devices.available(zone.id)),
        distances=[ZoneDistance(zone=other, distance=far) for other, far in sorted(zone.distances.items())],
        cores=zone.cores,
    )


def _resources(zone: SysZone, cpus: int, amounts: Mapping[str, int], devices: dict[str, int]) -> ZoneResources:
    """Return the resources of a zone. Those that it lacks are not listed."""
    return ZoneResources(
        cpu_milli=cpus * 1000 if zone.cpus else None,
        mem_bytes=amounts.get(MEMORY) if zone.mem_bytes else None,
        hugepages_bytes={size: amounts.get(f"{HUGEPAGES}{size}", 0) for size, of in zone.hugepages_bytes.items() if of},
        devices=devices,
    )
