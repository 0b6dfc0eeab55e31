"""The CPUs of a node by core, socket and NUMA zone, and how they are taken: by bind policy, exclusive policy, strategy.

CPU lists are read as the reference reads them. Reading: cpu_accumulator.go.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, TypeAlias

from slacktide.schemas.inventory import Pod, Processor
from slacktide.streams.decisions.cpu_list import cpu_ranges

CPU_LIST_MAX = 4096
"""The end of a range above this makes a list unreadable."""
ID_CHARS_MAX = 9
Cpus: TypeAlias = frozenset[int]
Core: TypeAlias = tuple[int, int]
"""Socket and core: a core's id may occur in another socket, too."""
NO_CORE: Core = (0, 0)
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


def own_cpus(pod: Pod) -> Cpus:
    """Return the CPUs that a pod has for itself by its annotation.

    Who may change a pod may write any list. A list of more CPUs than the pod requests counts as absent, because the
    pod would take them from others.
    """
    cpus = readable(pod.cpuset)
    return cpus if 1_000 * len(cpus) <= (pod.requests.cpu_milli or 0) else NO_CPUS


written = cpu_ranges


class Topology:
    """A node's CPUs. A CPU that the node lacks counts as core (0, 0) and zone 0.

    ``corrected``: the rules decide as Slacktide, and not as the reference: docs/cores.md lists the differences.
    """

    def __init__(self, processors: Sequence[Processor], *, corrected: bool = False) -> None:
        self.corrected = corrected
        self.cores: dict[int, Core] = {one.cpu: (one.socket, one.core) for one in processors}
        self.sockets: dict[int, int] = {one.cpu: one.socket for one in processors}
        self.zones: dict[int, int] = {one.cpu: one.numa_node for one in processors}
        self.cpus: Cpus = frozenset(self.cores)
        self._sizes = Counter(self.cores.values())
        self.per_core = len(self.cpus) // max(1, len(self._sizes))
        if corrected:  # a sibling that is offline does not make the other cores smaller
            self.per_core = max(self._sizes.values(), default=0)
        self.per_socket = len(self.cpus) // max(1, len(set(self.sockets.values())))
        self.places = {(one.socket, one.numa_node) for one in processors}
        self.per_node = len(self.cpus) // max(1, len(self.places))

    def core(self, cpu: int) -> Core:
        """Return a CPU's core."""
        return self.cores.get(cpu, NO_CORE)

    def zone(self, cpu: int) -> int:
        """Return a CPU's NUMA zone."""
        return self.zones.get(cpu, 0)

    def whole_cores(self, cpus: Iterable[int]) -> Mapping[Core, list[int]]:
        """Return those of the cores that are there as a whole."""
        whole = self._sizes.__getitem__ if self.corrected else lambda _: self.per_core
        return {core: its for core, its in self.by_core(cpus).items() if len(its) == whole(core)}

    @property
    def even(self) -> bool:
        """Return whether all cores have equally many CPUs."""
        return len(set(self._sizes.values())) == 1

    def with_siblings(self, cpus: Cpus) -> Cpus:
        """Return all CPUs of the cores of these; those that the node lacks are left out."""
        cores = {self.cores[cpu] for cpu in cpus & self.cpus}
        return frozenset(cpu for cpu, core in self.cores.items() if core in cores)

    def by_core(self, cpus: Iterable[int]) -> Mapping[Core, list[int]]:
        """Return CPUs by core, each ascending."""
        found: defaultdict[Core, list[int]] = defaultdict(list)
        core_of = self.cores.get
        for cpu in sorted(cpus):
            found[core_of(cpu, NO_CORE)].append(cpu)
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
    alone: bool = False
    """Corrected, for LSE: of whole cores, so that nobody gets the other CPUs of a core, either."""


class Allocated(NamedTuple):
    """How many pods hold a CPU, and their exclusive policies: the reference knows that of the last one only."""

    references: int
    exclusive: frozenset[str]


class TakeError(Exception):
    """The wanted CPUs cannot be taken."""


def marked(topology: Topology, taken: Mapping[int, Allocated]) -> tuple[set[Core], set[int]]:
    """Return the cores and the zones that pods want to have without pods of the same policy."""
    known = {cpu: one for cpu, one in taken.items() if cpu in topology.cpus or not topology.corrected}
    cores = {topology.core(cpu) for cpu, one in known.items() if CORE_LEVEL in one.exclusive}
    return cores, {topology.zone(cpu) for cpu, one in known.items() if ZONE_LEVEL in one.exclusive}


class Taking:
    """Takes CPUs out of some available ones."""

    def __init__(
        self,
        topology: Topology,
        taken: Mapping[int, Allocated],
        wish: Wish,
        cpus: Cpus,
        wanted: int,
    ) -> None:
        self._topology, self._wish, self._wanted = topology, wish, wanted
        self._left = set(cpus)
        self._result: list[int] = []
        self._references = {cpu: taken[cpu].references for cpu in taken.keys() & cpus}
        self._cores, self._zones = marked(topology, taken)

    def run(self) -> Cpus:
        """Take the CPUs. Raises TakeError if there are not enough."""
        if self._wanted < 1:
            return NO_CPUS
        if self._wanted > len(self._left):
            raise TakeError(NOT_ENOUGH)
        full = self._wish.bind == FULL or self._topology.per_core == 1
        # Of one zone, else of one socket. Whole cores also of several sockets; else of each core one CPU first.
        done = full and (self._full_of_zone() or self._full_of_sockets())
        done = done or (self._wish.bind != FULL and (self._spread_in_zone() or self._spread_on_socket()))
        if not done:
            self._rest()
        return frozenset(self._result)

    def _take(self, cpus: Sequence[int]) -> bool:
        """Take these; return whether all are taken that were wanted."""
        self._result += cpus
        self._left.difference_update(cpus)
        self._wanted -= len(cpus)
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

    def _full_of_zone(self) -> bool:
        of = self._topology
        for filtered in (True, False) if of.corrected or self._wanted <= of.per_node else ():
            ok = self._unblocked(cores=filtered and of.corrected, zones=filtered)
            lists = self._whole_cores(ok, of.zone)
            on_socket = Counter(of.sockets[cpu] for cpu in ok)
            order = {
                zone: (self._size(len(its)), self._size(on_socket[of.sockets[its[0]]]), zone)
                for zone, its in lists.items()
            }
            if self._first_with_room(self._whole_first(lists), order):
                return True
        return False

    def _full_of_sockets(self) -> bool:
        of = self._topology
        ordered: list[list[int]] = []
        for filtered in (True, False) if of.corrected else (False,):
            lists = self._whole_cores(self._unblocked(cores=filtered, zones=filtered), of.sockets.__getitem__)
            order = {socket: (self._size(len(its)), socket) for socket, its in lists.items()}
            fits = of.corrected or self._wanted <= of.per_socket
            if fits and self._first_with_room(self._whole_first(lists), order):
                return True
            if sum(map(len, ordered)) < self._wanted:
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
        """Take cores of each list. The reference takes one more in the next list for a part of a core."""
        size = self._topology.per_core
        if self._topology.corrected:
            return any(self._take(self._fitting(its)) for its in lists)
        if self._wanted < size:
            return False
        for its in lists:
            for _, core in groupby(its, key=self._topology.core):
                if self._take(list(core)):
                    return True
                if self._wanted < size:
                    break
        return False

    def _whole_first(self, lists: Mapping[int, list[int]]) -> Mapping[int, list[int]]:
        """Order lists of whole cores so that as few as possible are split, where cores differ in size."""
        if self._topology.even:
            return lists
        whole = {place: self._fitting(its) for place, its in lists.items()}
        return {place: whole[place] + [cpu for cpu in its if cpu not in whole[place]] for place, its in lists.items()}

    def _fitting(self, cpus: Sequence[int]) -> list[int]:
        """Return the whole cores that fit into what is wanted, large ones first."""
        found: list[int] = []
        cores = [list(core) for _, core in groupby(cpus, key=self._topology.core)]
        for core in sorted(cores, key=len, reverse=True):
            if len(found) + len(core) <= self._wanted:
                found += core
        return found

    def _whole_cores(self, ok: Iterable[int], place: Callable[[int], int]) -> dict[int, list[int]]:
        """Return the CPUs of whole cores by place, those with the fewest references first."""
        references: Counter[Core] = Counter()
        for cpu in self._left if self._references else ():
            references[self._topology.core(cpu)] += self._refs(cpu)
        cores = self._topology.whole_cores(ok)
        found: defaultdict[int, list[int]] = defaultdict(list)
        for core in sorted(cores, key=lambda one: (references[one], one)):
            found[place(cores[core][0])] += cores[core]
        return found

    def _spread_in_zone(self) -> bool:
        of = self._topology
        for filtered in (True, False) if of.corrected or self._wanted <= of.per_node else ():
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
        for filtered in (True, False) if of.corrected or self._wanted <= of.per_socket else ():
            ok = self._unblocked(cores=filtered, zones=filtered and of.corrected)
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
            mine = Counter(of.sockets[cpu] for cpu in self._result)
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
