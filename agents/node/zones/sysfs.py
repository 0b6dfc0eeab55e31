"""Zones from /sys/devices/system/node: CPUs, memory, hugepages, distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slacktide.agents.node.cgroup import parse
from slacktide.schemas.errors import ZonesError
from slacktide.schemas.zones import ZONES_MAX

KIB = 1024
_SIZES = ((KIB**2, "Gi"), (KIB, "Mi"), (1, "Ki"))


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


def sys_zones(folder: Path) -> list[SysZone]:
    """Return the online zones, by id. Ids may have gaps.

    Raises:
        ZonesError: a file is missing, torn or malformed.
    """
    online = sorted(_cpus(folder / "online"))
    if online and online[-1] >= ZONES_MAX:
        raise ZonesError(f"{folder / 'online'}", f"zone {online[-1]}: accepted: 0 to {ZONES_MAX - 1}")
    return [_zone(folder / f"node{number}", number, online) for number in online]


def _zone(place: Path, number: int, online: list[int]) -> SysZone:
    return SysZone(
        id=number,
        cpus=_cpus(place / "cpulist"),
        mem_bytes=_mem_bytes(place / "meminfo"),
        hugepages_bytes=_hugepages(place / "hugepages"),
        distances=_distances(place / "distance", online),
    )


def _distances(file: Path, online: list[int]) -> dict[int, int]:
    """Return one distance for each online zone, ascending by id without gaps."""
    row = [_number(word, file) for word in _read(file).split()]
    if len(row) != len(online):
        raise ZonesError(f"{file}", f"{len(row)} distances: accepted: {len(online)}, one for each online zone")
    return dict(zip(online, row, strict=True))


def _mem_bytes(file: Path) -> int:
    for line in _read(file).splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == b"MemTotal:" and words[4] == b"kB":
            return _number(words[3], file) * KIB
    raise ZonesError(f"{file}", "no line MemTotal in kB")


def _hugepages(folder: Path) -> dict[str, int]:
    """Return the hugepages by size. Without the folder the kernel has none."""
    found = {}
    for place in sorted(folder.glob("hugepages-*kB")):
        size = _number(place.name.removeprefix("hugepages-").removesuffix("kB").encode(), place)
        found[_size_name(size)] = _number(_read(place / "nr_hugepages").strip(), place / "nr_hugepages") * size * KIB
    return found


def _size_name(size_kib: int) -> str:
    unit, name = next((unit, name) for unit, name in _SIZES if size_kib % unit == 0)
    return f"{size_kib // unit}{name}"


def _cpus(file: Path) -> frozenset[int]:
    try:
        return parse.cpus(_read(file))
    except ValueError as exc:
        raise ZonesError(f"{file}", str(exc)) from exc


def _number(word: bytes, file: Path) -> int:
    if not word.isdigit() or len(word) > 15:
        raise ZonesError(f"{file}", f"{word[:40]!r}: accepted: a number")
    return int(word)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise ZonesError(f"{file}", exc.strerror or str(exc)) from exc
