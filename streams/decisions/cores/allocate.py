"""Records which pods hold which CPUs of a node, and allocates the CPUs of one more pod."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slacktide.streams.decisions.cores.take import (
    FULL,
    NO_CPUS,
    NOT_ENOUGH,
    SPREAD,
    Allocated,
    Cpus,
    TakeError,
    Taking,
    Topology,
    Wish,
    read_cpus,
)

ENDED = frozenset({"Succeeded", "Failed"})


class Ledger:
    """The CPUs that pods of one node hold. ``corrected``: a pod's exclusive policy leaves with it."""

    def __init__(self, *, corrected: bool = False) -> None:
        self.held: dict[str, Cpus] = {}
        self.taken: dict[int, Allocated] = {}
        self._bound: set[str] = set()
        self._exclusive: dict[str, str] = {}
        self._corrected = corrected

    def put(self, uid: str, cpus: Cpus, exclusive: str) -> None:
        """Give a pod these CPUs in place of those that it held."""
        self.drop(uid)
        self.held[uid], self._exclusive[uid] = cpus, exclusive
        for cpu in cpus:
            before = self.taken.get(cpu, Allocated(0, frozenset()))
            others = before.exclusive if self._corrected else frozenset[str]()
            self.taken[cpu] = Allocated(before.references + 1, others | {exclusive})

    def drop(self, uid: str) -> None:
        """Take a pod's CPUs back. In the reference its policy stays on CPUs that another pod holds, too."""
        cpus = self.held.pop(uid, NO_CPUS)
        self._exclusive.pop(uid, None)
        self.taken = without(self.taken, cpus)
        for cpu in cpus & self.taken.keys() if self._corrected else ():
            holders = frozenset(self._exclusive[other] for other, its in self.held.items() if cpu in its)
            self.taken[cpu] = self.taken[cpu]._replace(exclusive=holders)

    def pod_seen(self, uid: str, *, bound: bool, phase: str, cpuset: str | None, exclusive: str) -> None:
        """Follow a pod's state; its own annotation names its CPUs."""
        if not bound:
            if uid in self._bound:
                self.drop(uid)
            self._bound.discard(uid)
            return
        self._bound.add(uid)
        if phase in ENDED:
            self.drop(uid)
        elif cpus := read_cpus(cpuset or ""):
            self.put(uid, cpus, exclusive)

    def pod_gone(self, uid: str) -> None:
        """Follow a pod's deletion."""
        if uid in self._bound:
            self.drop(uid)
        self._bound.discard(uid)


def without(taken: Mapping[int, Allocated], cpus: Iterable[int]) -> dict[int, Allocated]:
    """Return what is taken with one reference less on each of these CPUs."""
    left = dict(taken)
    for cpu in cpus:
        if cpu in left:
            references, exclusive = left.pop(cpu)
            if references > 1:
                left[cpu] = Allocated(references - 1, exclusive)
    return left


def available(
    topology: Topology,
    taken: Mapping[int, Allocated],
    reserved: Cpus,
    returned: Iterable[Cpus] = (),
    *,
    max_ref: int = 1,
) -> tuple[Cpus, Mapping[int, Allocated]]:
    """Return the CPUs that a pod may get, and what is taken once ``returned`` is given back."""
    for cpus in returned:
        taken = without(taken, cpus)
    full = {cpu for cpu, one in taken.items() if one.references >= max_ref}
    return topology.cpus - full - reserved, taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """What a node has for one pod."""

    topology: Topology
    taken: Mapping[int, Allocated]
    reserved: Cpus = NO_CPUS
    preferred: Cpus = NO_CPUS
    """Of a reservation that the pod owns."""
    preemptible: Cpus = NO_CPUS
    max_ref: int = 1
    shared_min: int = 0
    """This many CPUs stay for pods without CPUs of their own."""

    def cpus(self, wish: Wish) -> tuple[Cpus, Mapping[int, Allocated]]:
        """Return the CPUs that a required bind policy leaves, and what is taken."""
        free, taken = available(
            self.topology, self.taken, self.reserved, (self.preferred, self.preemptible), max_ref=self.max_ref
        )
        corrected = self.topology.corrected
        if (wish.required and wish.bind == FULL) or (corrected and wish.alone):
            free = frozenset(cpu for its in self.topology.whole_cores(free).values() for cpu in its)
        if wish.required and wish.bind == SPREAD:  # in the reference also of cores that others use
            cores = (self.topology.whole_cores if corrected else self.topology.by_core)(free)
            free = frozenset(its[0] for its in cores.values())
        return free, taken


def allocate(free: Free, wish: Wish, wanted: int, zones: Sequence[tuple[int, int]] | None = None) -> Cpus:
    """Return the CPUs of a pod, ``wanted`` in number. Raises TakeError with the reason why it cannot have them.

    ``zones``: NUMA zones with the millicores that the pod gets there; None: not aligned.
    """
    of = free.topology
    cpus, taken = free.cpus(wish)
    if len(cpus) < wanted:
        raise TakeError(NOT_ENOUGH)

    def take(some: Cpus, count: int) -> Cpus:
        first = NO_CPUS
        if mine := some & free.preferred:
            first = Taking(of, taken, wish, mine, min(count, len(mine))).run()
        rest = Taking(of, taken, wish, some - free.preferred, count - len(first)).run()
        return first | rest

    result = NO_CPUS
    for zone, cpu_milli in zones or ():
        here = cpus & of.of_zone.get(zone, NO_CPUS)
        result |= take(here, min(len(here), cpu_milli // 1_000))
    wanted -= len(result)
    if zones is not None and wanted != 0:
        raise TakeError(NOT_ENOUGH)
    if wanted > 0:
        result |= take(cpus - result, wanted)
    if wish.required and wish.bind == FULL:
        whole = of.with_siblings(result) == result
        if not (whole if of.corrected else of.core_count(result) * of.per_core == len(result)):
            raise TakeError(f"insufficient CPUs to satisfy required cpu bind policy {FULL}")
    if free.shared_min and len(free.cpus(Wish())[0] - held_cpus(of, result, alone=wish.alone)) < free.shared_min:
        raise TakeError(f"{NOT_ENOUGH}: {free.shared_min} stay for pods without CPUs of their own")
    return result


def held_cpus(topology: Topology, cpus: Cpus, *, alone: bool) -> Cpus:
    """Return the CPUs that nobody else gets; ``alone``: all of the pod's cores."""
    return topology.with_siblings(cpus) if alone else cpus
