"""Divides a request among the NUMA zones that a pod is aligned to. Reading: resource_manager.go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slacktide.streams.decisions.cores.allocate import Free
from slacktide.streams.decisions.cores.take import FULL, Wish
from slacktide.streams.decisions.cores.topology import NO_CPUS

CPU, MEMORY = "cpu", "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Of one zone, or of a pod."""

    cpu_milli: int = 0
    mem_bytes: int = 0


def unheld(allocatable: Mapping[int, Amounts], held: Mapping[int, Amounts]) -> dict[int, Amounts]:
    """Return what each zone has beside what pods hold there."""
    return {
        zone: Amounts(
            cpu_milli=max(0, its.cpu_milli - held.get(zone, Amounts()).cpu_milli),
            mem_bytes=max(0, its.mem_bytes - held.get(zone, Amounts()).mem_bytes),
        )
        for zone, its in allocatable.items()
    }


def divide(
    request: Amounts, zones: Mapping[int, Amounts], affinity: Sequence[int], free: Free, wish: Wish | None
) -> tuple[Mapping[int, Amounts], Sequence[str]]:
    """Return what a pod gets of each zone, and why it does not fit.

    Args:
        request: of the pod.
        zones: what each zone has.
        affinity: the pod's zones, ascending.
        free: the node's CPUs.
        wish: how the pod binds CPUs; None: it does not.
    """
    cpu = {zone: its.cpu_milli for zone, its in zones.items()}
    unit_milli = 1
    if wish is not None:
        unit_milli = 1_000 * (free.topology.per_core if wish.required and wish.bind == FULL else 1)
        if wish.required:
            kept, _ = free.cpus(wish)
            cpu = {
                zone: min(milli, 1_000 * len(kept & free.topology.of_zone.get(zone, NO_CPUS)))
                for zone, milli in cpu.items()
            }
    cpus, cpu_rest = _walk(request.cpu_milli, cpu, affinity, unit_milli)
    mems, mem_rest = _walk(request.mem_bytes, {zone: its.mem_bytes for zone, its in zones.items()}, affinity, 1)
    reasons = [f"Insufficient NUMA {name}" for name, rest in ((CPU, cpu_rest), (MEMORY, mem_rest)) if rest > 0]
    parts = {
        zone: Amounts(cpu_milli=cpus.get(zone, 0), mem_bytes=mems.get(zone, 0))
        for zone in sorted(affinity)
        if cpus.get(zone, 0) or mems.get(zone, 0)
    }
    return parts, reasons


def _walk(amount: int, free: Mapping[int, int], affinity: Sequence[int], unit: int) -> tuple[dict[int, int], int]:
    """Take equal shares of the zones in their order; return the parts, and the rest."""
    parts = {}
    row = _row(affinity, free)
    for at, zone in enumerate(row):
        left = len(row) - at
        share = amount // left if unit == 1 else -(-amount // 1_000) // (unit // 1_000) // left * unit
        parts[zone] = min(free.get(zone, 0), share)
        amount -= parts[zone]
    return parts, amount


def _row(affinity: Sequence[int], free: Mapping[int, int]) -> list[int]:
    """Sort the zones as the reference does, which takes their places for their ids."""
    row = list(affinity)
    for begin in range(1, len(row)):
        at = begin
        while at > 0 and free.get(at, 0) < free.get(at - 1, 0):
            row[at], row[at - 1] = row[at - 1], row[at]
            at -= 1
    return row
