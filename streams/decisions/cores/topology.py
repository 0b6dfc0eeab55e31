"""The CPUs of a node by core, socket and NUMA zone, and CPU lists as the reference reads them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.cpu_list import cpu_ranges

CPU_LIST_MAX = 4096
"""The end of a range above this makes a list unreadable."""
ID_CHARS_MAX = 9
Cpus: TypeAlias = frozenset[int]
Core: TypeAlias = tuple[int, int]
"""Socket and core: a core's id may occur in another socket, too."""
NO_CPUS: Cpus = frozenset()


def read_cpus(text: str) -> Cpus | None:
    """Return the CPUs of a list such as ``0-3,6``; None: it is unreadable. A range that falls has none."""
    ranges = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not (_is_id(first) and (_is_id(last) or not dash)) or (dash and int(last) > CPU_LIST_MAX):
            return None
        ranges.add((int(first), int(last or first)))
    found: set[int] = set()
    for first_cpu, last_cpu in ranges:
        found.update(range(first_cpu, last_cpu + 1))
    return frozenset(found)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= ID_CHARS_MAX


def readable(text: str | None) -> Cpus:
    """Return the CPUs of a list; none if it is absent or unreadable."""
    return read_cpus(text or "") or NO_CPUS


written = cpu_ranges


class Topology:
    """A node's CPUs. A CPU that the node lacks counts as core (0, 0) and zone 0."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self.cores: dict[int, Core] = {one.cpu: (one.socket, one.core) for one in processors}
        self.sockets: dict[int, int] = {one.cpu: one.socket for one in processors}
        self.zones: dict[int, int] = {one.cpu: one.numa_node for one in processors}
        self.cpus: Cpus = frozenset(self.cores)
        self.per_core = len(self.cpus) // max(1, len(set(self.cores.values())))
        self.per_socket = len(self.cpus) // max(1, len(set(self.sockets.values())))
        self.places = {(one.socket, one.numa_node) for one in processors}
        self.per_node = len(self.cpus) // max(1, len(self.places))

    def core(self, cpu: int) -> Core:
        """Return a CPU's core."""
        return self.cores.get(cpu, (0, 0))

    def zone(self, cpu: int) -> int:
        """Return a CPU's NUMA zone."""
        return self.zones.get(cpu, 0)

    def by_core(self, cpus: Iterable[int]) -> Mapping[Core, list[int]]:
        """Return CPUs by core, each ascending."""
        found: defaultdict[Core, list[int]] = defaultdict(list)
        for cpu in sorted(cpus):
            found[self.core(cpu)].append(cpu)
        return found

    def core_count(self, cpus: Iterable[int]) -> int:
        """Return the number of cores of some CPUs."""
        return len({self.core(cpu) for cpu in cpus})

    def spread(self, cpus: Sequence[int]) -> list[int]:
        """Order CPUs in rounds: the first one of each core, then the second one of each."""
        if len(cpus) <= self.per_core:
            return list(cpus)
        seen: Counter[Core] = Counter()
        rounds: list[tuple[int, int]] = []
        for cpu in cpus:
            rounds.append((seen[self.core(cpu)], cpu))
            seen[self.core(cpu)] += 1
        return [cpu for _, cpu in sorted(rounds, key=lambda one: one[0])]

    @cached_property
    def of_zone(self) -> Mapping[int, Cpus]:
        """Return the CPUs of each zone."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        for cpu, zone in self.zones.items():
            found[zone].add(cpu)
        return {zone: frozenset(cpus) for zone, cpus in found.items()}
