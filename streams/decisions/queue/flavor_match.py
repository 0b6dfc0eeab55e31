"""What the nodes of a flavor accept: pods by labels and taints, and all pods of a workload at once (gang scheduling).

Reading: kueue v0.19.2, pkg/scheduler/flavorassigner/flavorassigner.go, checkFlavorForPodSets. ``Room`` is not a rule of
Kueue. It places pods first-fit, also those of workloads that hold quota. So it approximates the scheduler without its
preferences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import TextError
from slacktide.schemas.text import integer_of
from slacktide.streams.decisions.queue.job import Toleration
from slacktide.streams.decisions.queue.sold_quota import CPU, MEMORY

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """A taint of a flavor's nodes."""

    key: str
    value: str = ""
    effect: str = ""


class Expression(NamedTuple):
    """A required value of one node label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeFlavor(NamedTuple):
    """A ResourceFlavor."""

    node_labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class NodeNeeds(NamedTuple):
    """A pod's constraints on nodes."""

    selector: Mapping[str, str] = {}
    affinity: tuple[tuple[Expression, ...], ...] = ()
    """Terms, of which one must match."""
    tolerations: tuple[Toleration, ...] = ()


def matches(needs: NodeNeeds, flavor: NodeFlavor) -> bool:
    """Return whether the pods match the flavor. Labels that it does not have exclude nothing."""
    labels = flavor.node_labels
    tolerations = (*needs.tolerations, *flavor.tolerations)
    if any(not _tolerated(taint, tolerations) for taint in flavor.taints if taint.effect in KEEPS_AWAY):
        return False
    if any(labels.get(key, value) != value for key, value in needs.selector.items()):
        return False
    terms = [[one for one in term if one.key in labels] for term in needs.affinity]
    return not terms or any(all(_holds(one, labels[one.key]) for one in term) for term in terms)


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(
        one.effect in {"", taint.effect}
        and one.key in {"", taint.key}
        and (one.operator == "Exists" or (one.operator in {"", "Equal"} and one.value == taint.value))
        for one in tolerations
    )


def _holds(one: Expression, value: str) -> bool:
    if one.operator in {"In", "NotIn"}:
        return (value in one.values) == (one.operator == "In")
    if one.operator in {"Gt", "Lt"}:
        try:
            left, right = integer_of(value, where=one.key), integer_of(one.values[0], where=one.key)
        except (TextError, IndexError):
            return False
        return left > right if one.operator == "Gt" else left < right
    return one.operator == "Exists"


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
