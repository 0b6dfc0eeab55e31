"""Selects CPUs: spread over NUMA nodes, whole cores before single CPUs.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go,
calculateBESuppressCPUSetPolicy. Unlike the reference, a group's key is (socket, NUMA node), which is always unique.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slacktide.schemas.inventory import Processor
from slacktide.schemas.message import Terms

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """CPU ids in the order of selection."""

    cpus: tuple[int, ...]
    bound: str
    """``picked``, or ``short``: too few CPUs are given, so none is selected."""
    terms: Terms


def pick_cpus(wanted: int, processors: Collection[Processor]) -> Picked:
    """Select ``wanted`` of the given CPUs, or none if they are too few. A ``wanted`` below 1 selects none.

    Groups take turns, the largest first. Each gives two CPUs of one core while two are wanted, then single CPUs. Single
    CPUs begin after the group of the last wanted pair, or with the first group if pairs ran out.
    The ``processors`` are distinct, in any order.
    """
    terms: Terms = {"wanted_cpus": wanted, "given_cpus": len(processors)}
    if wanted > len(processors):
        return Picked(cpus=(), bound="short", terms=terms | {"picked_cpus": 0})
    wanted = max(wanted, 0)
    groups = _numa_groups(processors)
    pairs = _in_turn([list(_pairs(group)) for group in groups])[: wanted // 2]
    paired = [cpu for _, pair in pairs for cpu in pair]
    taken = set(paired)
    left = [[one.cpu for one in group if one.cpu not in taken] for group in groups]
    first = pairs[-1][0] + 1 if pairs and len(pairs) == wanted // 2 else 0
    singles = [cpu for _, cpu in _in_turn(left, first)[: wanted - len(paired)]]
    counts: Terms = {"in_pairs_cpus": len(paired), "single_cpus": len(singles), "picked_cpus": wanted}
    return Picked(cpus=(*paired, *singles), bound="picked", terms=terms | counts)


def _numa_groups(processors: Collection[Processor]) -> list[list[Processor]]:
    """Group CPUs by (socket, NUMA node), the largest first. Siblings of a core are adjacent."""
    groups: defaultdict[tuple[int, int], list[Processor]] = defaultdict(list)
    for processor in sorted(processors, key=lambda one: (one.core, one.cpu)):
        groups[processor.socket, processor.numa_node].append(processor)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0].cpu))


def _pairs(group: Sequence[Processor]) -> Iterator[tuple[int, int]]:
    """Yield pairs of siblings. The last CPU of a core with an odd number of CPUs stays single."""
    at = 0
    while at < len(group) - 1:
        one, other = group[at], group[at + 1]
        if one.core == other.core:
            yield one.cpu, other.cpu
            at += 1
        at += 1


def _in_turn(queues: Sequence[Sequence[T]], first: int = 0) -> list[tuple[int, T]]:
    """Return all items, one of each queue in turn from queue ``first``, each with the index of its queue."""
    turns = sorted(
        (nth, (queue - first) % len(queues), queue) for queue, items in enumerate(queues) for nth in range(len(items))
    )
    return [(queue, queues[queue][nth]) for nth, _, queue in turns]
