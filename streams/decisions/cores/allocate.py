"""Allocates the CPUs of one pod on one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slacktide.streams.decisions.cores.ledger import Allocated, available
from slacktide.streams.decisions.cores.take import FULL, NOT_ENOUGH, SPREAD, TakeError, Taking, Wish
from slacktide.streams.decisions.cores.topology import NO_CPUS, Cpus, Topology


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

    def cpus(self, wish: Wish) -> tuple[Cpus, Mapping[int, Allocated]]:
        """Return the CPUs that a required bind policy leaves, and what is taken."""
        free, taken = available(
            self.topology, self.taken, self.reserved, (self.preferred, self.preemptible), max_ref=self.max_ref
        )
        if not wish.required:
            return free, taken
        cores = self.topology.by_core(free)
        if wish.bind == FULL:
            free = frozenset(cpu for its in cores.values() if len(its) == self.topology.per_core for cpu in its)
        elif wish.bind == SPREAD:
            free = frozenset(its[0] for its in cores.values())
        return free, taken


def allocate(free: Free, wish: Wish, wanted: int, zones: Sequence[tuple[int, int]] | None = None) -> Cpus:
    """Return the CPUs of a pod.

    Args:
        free: what the node has.
        wish: how the pod wants them.
        wanted: number of CPUs.
        zones: NUMA zones with the millicores that the pod gets there; None: not aligned.

    Raises:
        TakeError: the reason why it cannot have them.
    """
    of = free.topology
    cpus, taken = free.cpus(wish)
    if len(cpus) < wanted:
        raise TakeError(NOT_ENOUGH)

    def take(some: Cpus, count: int) -> Cpus:
        first = NO_CPUS
        if mine := some & free.preferred:
            first = Taking(of, taken, wish, mine, min(count, len(mine)), max_ref=free.max_ref).run()
        rest = Taking(of, taken, wish, some - free.preferred, count - len(first), max_ref=free.max_ref).run()
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
    _check(of, wish, result)
    return result


def _check(of: Topology, wish: Wish, result: Cpus) -> None:
    if not wish.required:
        return
    cores = of.core_count(result)
    if (wish.bind == FULL and cores * of.per_core != len(result)) or (wish.bind == SPREAD and cores != len(result)):
        raise TakeError(f"insufficient CPUs to satisfy required cpu bind policy {wish.bind}")
