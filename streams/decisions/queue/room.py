"""Whether the nodes of a flavor have room for all pods of a workload: a gang runs as a whole or not at all.

Each node has a size, and pods are put where they fit first. Pods of workloads that hold quota were put the same way, so
this is the scheduler's view without its preferences. No rule of Kueue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slacktide.schemas.bounds import INT32_MAX
from slacktide.streams.decisions.queue.sold_quota import CPU, MEMORY

NO_ROOM = "NoRoomForAllPods"
"""The quota suffices, and the nodes do not have room for all pods at once."""


class PodGroup(NamedTuple):
    """Pods that are alike, on nodes of one flavor."""

    flavor: str
    pods: int
    cpu_milli: int
    """Of one pod."""
    memory_bytes: int


class _Put(NamedTuple):
    flavor: str
    node: int
    cpu_milli: int
    memory_bytes: int


def pod_groups(pods: int, flavors: Mapping[str, str], usage: Mapping[str, int]) -> list[PodGroup]:
    """Of a pod set, one for each flavor.

    Args:
        pods: how many.
        flavors: by resource.
        usage: by resource, of all of them.

    """
    if not pods:
        return []
    sums: dict[str, tuple[int, int]] = {}
    for resource, flavor in flavors.items():
        cpu, memory = sums.get(flavor, (0, 0))
        each = -(-usage.get(resource, 0) // pods)
        sums[flavor] = cpu + each * (resource in CPU), memory + each * (resource in MEMORY)
    return [PodGroup(flavor, pods, cpu, memory) for flavor, (cpu, memory) in sorted(sums.items())]


class Room:
    """What is free on each node. A flavor whose nodes are not known has room for all.

    Args:
        sizes: by flavor, of each node CPU in millicores and memory in bytes.

    """

    def __init__(self, sizes: Mapping[str, Iterable[Sequence[int]]]) -> None:
        self._free = {flavor: [[int(one[0]), int(one[1])] for one in nodes] for flavor, nodes in sizes.items()}
        self._put: dict[str, list[_Put]] = {}

    def fits(self, groups: Iterable[PodGroup]) -> bool:
        """Whether all pods have room at once."""
        put, whole = self._placed(groups)
        self._book(put, 1)
        return whole

    def take(self, uid: str, groups: Iterable[PodGroup]) -> None:
        """A workload has quota: its pods are put where there is room for them, as far as there is."""
        self.give(uid)
        put, _ = self._placed(groups)
        if put:
            self._put[uid] = put

    def give(self, uid: str) -> None:
        """A workload has no quota any more."""
        self._book(self._put.pop(uid, ()), 1)

    def _placed(self, groups: Iterable[PodGroup]) -> tuple[list[_Put], bool]:
        """Book pods, group by group; whether all have room."""
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
    """How often a request goes into what is free; without a request any number of times."""
    return free // each if each else INT32_MAX
