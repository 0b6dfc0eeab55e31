"""Checks whether the nodes of a flavor have room for all pods of a workload (gang scheduling).

Pods are placed first-fit, also those of workloads that hold quota. So this approximates the scheduler without its
preferences. Not a rule of Kueue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slacktide.schemas.bounds import INT32_MAX
from slacktide.streams.decisions.queue.sold_quota import CPU, MEMORY

NO_ROOM = "NoRoomForAllPods"
"""The quota suffices, but the nodes have no room for all pods at once."""


class PodGroup(NamedTuple):
    """Identical pods on nodes of one flavor."""

    flavor: str
    pods: int
    cpu_milli: int
    memory_bytes: int


class _Put(NamedTuple):
    flavor: str
    node: int
    cpu_milli: int
    memory_bytes: int


def pod_groups(pods: int, flavors: Mapping[str, str], usage: Mapping[str, int]) -> list[PodGroup]:
    """Group the pods of a pod set by flavor; ``usage`` is their total by resource."""
    if not pods:
        return []
    sums: dict[str, tuple[int, int]] = {}
    for resource, flavor in flavors.items():
        cpu, memory = sums.get(flavor, (0, 0))
        each = -(-usage.get(resource, 0) // pods)
        sums[flavor] = cpu + each * (resource in CPU), memory + each * (resource in MEMORY)
    return [PodGroup(flavor, pods, cpu, memory) for flavor, (cpu, memory) in sorted(sums.items())]


class Room:
    """Free capacity of each node: CPU in millicores, memory in bytes. Flavors without known nodes always have room."""

    def __init__(self, sizes: Mapping[str, Iterable[Sequence[int]]]) -> None:
        self._free = {flavor: [[int(one[0]), int(one[1])] for one in nodes] for flavor, nodes in sizes.items()}
        self._put: dict[str, list[_Put]] = {}

    def fits(self, groups: Iterable[PodGroup]) -> bool:
        """Return whether all pods fit at once."""
        put, whole = self._placed(groups)
        self._book(put, 1)
        return whole

    def take(self, uid: str, groups: Iterable[PodGroup]) -> None:
        """Place those pods of an admitted workload that fit."""
        self.give(uid)
        put, _ = self._placed(groups)
        if put:
            self._put[uid] = put

    def give(self, uid: str) -> None:
        """Remove the pods of a workload that released its quota."""
        self._book(self._put.pop(uid, ()), 1)

    def _placed(self, groups: Iterable[PodGroup]) -> tuple[list[_Put], bool]:
        put: list[_Put] = []
        whole = True
        for one in groups:
            nodes, left = self._free.get(one.flavor), one.pods
            if nodes is None or not (one.cpu_milli or one.memory_bytes):
                continue
            for at, (cpu, memory) in enumerate(nodes):
                count = min(left, _times(cpu, one.cpu_milli), _times(memory, one.memory_bytes))
                if count > 0:
                    put.append(_Put(one.flavor, at, count * one.cpu_milli, count * one.memory_bytes))
                    self._book(put[-1:], -1)
                    left -= count
                if not left:
                    break
            whole = whole and not left
        return put, whole

    def _book(self, put: Iterable[_Put], sign: int) -> None:
        for one in put:
            node = self._free[one.flavor][one.node]
            node[0] += sign * one.cpu_milli
            node[1] += sign * one.memory_bytes


def _times(free: int, each: int) -> int:
    """Return how often a request fits; without a request, without limit."""
    return free // each if each else INT32_MAX
