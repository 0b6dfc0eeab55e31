"""Which pods hold which CPUs of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.cores.topology import NO_CPUS, Cpus, Topology, read_cpus

ENDED = frozenset({"Succeeded", "Failed"})


class Allocated(NamedTuple):
    """How many pods hold a CPU, and the exclusive policy of the last pod that was added on it."""

    references: int
    exclusive: str


class Ledger:
    """The CPUs that pods of one node hold."""

    def __init__(self) -> None:
        self.held: dict[str, Cpus] = {}
        self.taken: dict[int, Allocated] = {}
        self._bound: set[str] = set()

    def put(self, uid: str, cpus: Cpus, exclusive: str) -> None:
        """Give a pod these CPUs in place of those that it held."""
        self.drop(uid)
        self.held[uid] = cpus
        for cpu in cpus:
            before = self.taken.get(cpu)
            self.taken[cpu] = Allocated(1 if before is None else before.references + 1, exclusive)

    def drop(self, uid: str) -> None:
        """Take a pod's CPUs back. The policy of a CPU stays, even if its pod is the one that left."""
        self.taken = without(self.taken, self.held.pop(uid, NO_CPUS))

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
