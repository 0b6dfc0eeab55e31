"""Takes CPUs by bind policy, exclusive policy and strategy. Reading: cpu_accumulator.go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slacktide.streams.decisions.cores.ledger import Allocated
from slacktide.streams.decisions.cores.topology import NO_CPUS, Core, Cpus, Topology

FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
CORE_LEVEL, ZONE_LEVEL = "PCPULevel", "NUMANodeLevel"
MOST = "MostAllocated"
NOT_ENOUGH = "not enough cpus available to satisfy request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How a pod wants its CPUs."""

    bind: str = ""
    required: bool = False
    exclusive: str = ""
    strategy: str = ""


class TakeError(Exception):
    """The wanted CPUs cannot be taken."""


class Taking:
    """Takes CPUs out of some available ones."""

    def __init__(
        self,
        topology: Topology,
        taken: Mapping[int, Allocated],
        wish: Wish,
        cpus: Cpus,
        wanted: int,
        *,
        max_ref: int = 1,
    ) -> None:
        self._topology, self._wish, self._wanted = topology, wish, wanted
        self._left = set(cpus)
        self._result: list[int] = []
        self._references = {cpu: one.references for cpu, one in taken.items()} if max_ref > 1 else {}
        self._cores = {topology.core(cpu) for cpu, one in taken.items() if one.exclusive == CORE_LEVEL}
        self._zones = {topology.zone(cpu) for cpu, one in taken.items() if one.exclusive == ZONE_LEVEL}

    def run(self) -> Cpus:
        """Take the CPUs. Raises TakeError if there are not enough."""
        if self._wanted < 1:
            return NO_CPUS
        if self._wanted > len(self._left):
            raise TakeError(NOT_ENOUGH)
        full = self._wish.bind == FULL or self._topology.per_core == 1
        done = full and self._full()
        done = done or (self._wish.bind != FULL and self._spread())
        if not done:
            self._rest()
        if self._wanted > 0:
            raise TakeError(NOT_ENOUGH)
        return frozenset(self._result)

    def _take(self, cpus: Sequence[int]) -> bool:
        """Take these; return whether all are taken that were wanted."""
        self._result += cpus
        self._left.difference_update(cpus)
        self._wanted -= len(cpus)
        if self._wish.exclusive == CORE_LEVEL:
            self._cores.update(map(self._topology.core, cpus))
        if self._wish.exclusive == ZONE_LEVEL:
            self._zones.update(map(self._topology.zone, cpus))
        return self._wanted < 1

    def _size(self, count: int) -> int:
        return count if self._wish.strategy == MOST else -count

    def _refs(self, cpu: int) -> int:
        return self._references.get(cpu, 0)

    def _unblocked(self, *, cores: bool, zones: bool) -> set[int]:
        """Return what is left without cores or zones that pods of the same policy have."""
        blocked_cores = self._cores if cores and self._wish.exclusive == CORE_LEVEL else ()
        blocked_zones = self._zones if zones and self._wish.exclusive == ZONE_LEVEL else ()
        of = self._topology
        return {cpu for cpu in self._left if of.core(cpu) not in blocked_cores and of.zone(cpu) not in blocked_zones}

    def _full(self) -> bool:
        """Take whole cores of one zone, then of one socket, then of several sockets."""
        return self._full_of_zone() or self._full_of_sockets()

    def _full_of_zone(self) -> bool:
        of = self._topology
        for filtered in (True, False) if self._wanted <= of.per_node else ():
            ok = self._unblocked(cores=False, zones=filtered)
            lists = self._whole_cores(ok, of.zone)
            on_socket = Counter(of.sockets[cpu] for cpu in ok)
            order = {
                zone: (self._size(len(its)), self._size(on_socket[of.sockets[its[0]]]), zone)
                for zone, its in lists.items()
            }
            if self._first_with_room(lists, order):
                return True
        return False

    def _full_of_sockets(self) -> bool:
        lists = self._whole_cores(self._left, self._topology.sockets.__getitem__)
        order = {socket: (self._size(len(its)), socket) for socket, its in lists.items()}
        if self._wanted <= self._topology.per_socket and self._first_with_room(lists, order):
            return True
        ordered = [lists[socket] for socket in sorted(lists, key=order.__getitem__)]
        aside = []
        for its in sorted(ordered, key=len, reverse=True):
            if self._wanted < len(its):
                aside.append(its)
            elif self._take(its):
                return True
        return self._core_by_core(sorted(aside, key=len))

    def _first_with_room(self, lists: Mapping[int, list[int]], order: Mapping[int, tuple[int, ...]]) -> bool:
        """Take all of the first list that is long enough."""
        for place in sorted(lists, key=order.__getitem__):
            if len(lists[place]) >= self._wanted:
                return self._take(lists[place][: self._wanted])
        return False

    def _core_by_core(self, lists: Iterable[Sequence[int]]) -> bool:
        """Take cores of each list, and one more in the next list for a part of a core: more CPUs than wanted."""
        size = self._topology.per_core
        if self._wanted < size:
            return False
        for its in lists:
            for at in range(0, len(its), size):
                if self._take(its[at : at + size]):
                    return True
                if self._wanted < size:
                    break
        return False

    def _whole_cores(self, ok: Iterable[int], place: Callable[[int], int]) -> dict[int, list[int]]:
        """Return the CPUs of whole cores by place, those with the fewest references first."""
        ok = set(ok)
        references: Counter[Core] = Counter()
        for cpu in self._left:
            references[self._topology.core(cpu)] += self._refs(cpu)
        cores = {core: its for core, its in self._topology.by_core(ok).items() if len(its) == self._topology.per_core}
        found: defaultdict[int, list[int]] = defaultdict(list)
        for core in sorted(cores, key=lambda one: (references[one], one)):
            found[place(cores[core][0])] += cores[core]
        return found

    def _spread(self) -> bool:
        """Take CPUs of one zone, then of one socket; of each core one first."""
        return self._spread_in_zone() or self._spread_on_socket()

    def _spread_in_zone(self) -> bool:
        of = self._topology
        for filtered in (True, False) if self._wanted <= of.per_node else ():
            ok = self._unblocked(cores=filtered, zones=filtered)
            lists = self._threads(ok, of.zone, thin=filtered)
            in_zone, on_socket = Counter(map(of.zone, ok)), Counter(of.sockets[cpu] for cpu in ok)
            order = {
                zone: (self._size(in_zone[zone]), self._size(on_socket[of.sockets[its[0]]]), zone)
                for zone, its in lists.items()
            }
            if self._first_with_room({zone: of.spread(its) for zone, its in lists.items()}, order):
                return True
        return False

    def _spread_on_socket(self) -> bool:
        of = self._topology
        for filtered in (True, False) if self._wanted <= of.per_socket else ():
            ok = self._unblocked(cores=filtered, zones=False)
            lists = self._threads(ok, of.sockets.__getitem__, thin=filtered)
            order = {socket: (self._size(len(its)), socket) for socket, its in lists.items()}
            if self._first_with_room({socket: of.spread(its) for socket, its in lists.items()}, order):
                return True
        return False

    def _threads(self, ok: Iterable[int], place: Callable[[int], int], *, thin: bool) -> dict[int, list[int]]:
        """Return CPUs by place, those with the fewest references first; ``thin``: of each core only the first."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        seen: set[Core] = set()
        for cpu in sorted(ok, key=lambda one: (self._refs(one), one)):
            core = self._topology.core(cpu)
            if not (thin and core in seen):
                found[place(cpu)].append(cpu)
            seen.add(core)
        return found

    def _rest(self) -> None:
        """Take single CPUs, on sockets of the result and of small cores first."""
        of = self._topology
        for filtered in (True, False):
            ok = self._unblocked(cores=filtered, zones=filtered)
            mine = Counter(of.sockets.get(cpu, 0) for cpu in self._result)
            on_socket, in_zone = Counter(of.sockets[cpu] for cpu in ok), Counter(map(of.zone, ok))
            references: Counter[Core] = Counter()
            for cpu in self._left:
                references[of.core(cpu)] += self._refs(cpu)
            cores = of.by_core(ok)
            order = {
                core: (
                    -mine[core[0]], self._size(on_socket[core[0]]), self._size(in_zone[of.zone(its[0])]), len(its),
                    core[0], references[core], core,
                )
                for core, its in cores.items()
            }  # fmt: skip
            row = [
                cpu
                for core in sorted(cores, key=order.__getitem__)
                for cpu in sorted(cores[core], key=lambda one: (self._refs(one), one))
            ]
            if self._take(of.spread(row)[: self._wanted]):
                return
