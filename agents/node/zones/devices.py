"""Devices of a node by zone, and those assigned to pods. Torn or malformed text raises ZonesError. Pure.

Reading: kubernetes v1.34.4, pkg/kubelet/cm/devicemanager/checkpoint, and k8s.io/kubelet, podresources/v1. The kubelet's
checkpoint names the devices that pods hold. Only its podresources API has the zones of all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from slacktide.schemas.errors import TextError, ZonesError
from slacktide.schemas.text import answer_of
from slacktide.schemas.zones import ZONES_MAX

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
    try:
        checkpoint: _Checkpoint = answer_of(text, _Checkpoint, where="")
    except TextError as exc:
        raise ZonesError(DEVICE_STATE, str(exc)) from exc
    found: dict[str, dict[str, frozenset[str]]] = {}
    for one in checkpoint.data.entries or ():
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
                of_zone = found.setdefault(_zone(node), {})
                of_zone[resource.decode()] = of_zone.get(resource.decode(), frozenset()) | ids
    except (ValueError, IndexError) as exc:
        raise ZonesError(ANSWER, f"an incomplete answer: {exc}") from exc
    return found


def _zone(node: bytes) -> int:
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
