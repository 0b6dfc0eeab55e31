"""Finds places for all pods of gangs that start together, or none. Pure but for the room, which it leaves as it was.

Slacktide's own. Each pod takes the best node that is left, in the order of a kube-scheduler. This is exact for pods of
one shape; pods of several shapes may miss a plan that exists.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Protocol

from slacktide.streams.decisions.load.load_aware_estimator import RESOURCES, Amounts, LoadAwarePod
from slacktide.streams.decisions.load.pod_placement import (
    Asking,
    Choice,
    Judged,
    PlacementArgs,
    Refusal,
    Short,
    asking,
    rescored,
)

SURVEYED_MAX, JUDGED_MAX = 20_000, 5_000
"""Nodes of one plan for all shapes, and judgements of nodes that got a pod of the plan.

A kube-scheduler waits meanwhile, and places pods alone if it gets no response within its timeout.
"""
TAKEN = "host_taken"


class Room(Protocol):
    """The nodes as pods see them now."""

    def survey(self, asks: Asking, nodes: Sequence[str]) -> Choice:
        """Judge these nodes for a pod."""

    def judged(self, asks: Asking, node: str) -> Judged:
        """Judge one node for a pod."""

    def unrequested(self, node: str) -> Amounts | None:
        """Return CPU and memory of a node that no pod requests; None: unknown."""

    def hold(self, pod: LoadAwarePod, node: str) -> None:
        """Count a pod on a node."""

    def release(self, uid: str) -> None:
        """Do not count a pod any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod of a gang that needs a place."""

    pod: LoadAwarePod
    gang: str
    shape: Hashable
    """Pods of one shape fit the same nodes."""
    offer: Sequence[str]
    """Nodes that a kube-scheduler's own rules leave for a pod of this shape."""
    apart: bool
    """Whether two pods of this shape cannot share a node."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.pod.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Why there is no plan."""

    placed: Mapping[str, int]
    """By gang: how many of its pods had a place."""
    first: Candidate | None = None
    """The first pod without a place; None: too many judgements."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Why nodes refused it."""


class _Shape:
    """Nodes for pods of one shape, the best first."""

    def __init__(self, one: Candidate, room: Room, args: PlacementArgs) -> None:
        self.asks, self.apart = asking(one.pod, args), one.apart
        choice = room.survey(self.asks, one.offer)
        self.refused, self._most, self._args = dict(choice.refused), choice.most, args
        self._stale: set[str] = set()
        self._heap = [(-score, name) for score, name in zip(choice.scores, choice.names, strict=True)]
        heapify(self._heap)

    def touch(self, node: str) -> None:
        """A pod was placed on the node."""
        self._stale.add(node)

    def take(self, pod: LoadAwarePod, room: Room) -> tuple[str, int]:
        """Return the best node, "" if none is left, and the number of judgements made."""
        judgements = 0
        while self._heap:
            score, node = heappop(self._heap)
            if node in self._stale:
                judgements += 1
                self._stale.discard(node)
                judged = room.judged(self.asks, node)
                if isinstance(judged, Refusal):
                    self.refused[node] = judged
                else:
                    heappush(self._heap, (-rescored(self.asks, judged, self._most, self._args), node))
            elif (lack := lacking(pod, room.unrequested(node))) is not None:
                self.refused[node] = lack
            else:
                if self.apart:
                    self.refused[node] = Refusal(TAKEN)
                else:
                    heappush(self._heap, (score, node))
                return node, judgements
        return "", judgements


def lacking(pod: LoadAwarePod, free: Amounts | None) -> Refusal | None:
    """Return what a pod requests that a node lacks by Kubernetes' own figures; None: it lacks nothing that is known."""
    if free is None:
        return None
    asks = pod.pod.requests.cpu_milli or 0, pod.pod.requests.mem_bytes or 0
    for resource, (asked, left) in enumerate(zip(asks, free, strict=True)):
        if asked > max(left, 0):
            return Refusal(f"unrequested_short:{RESOURCES[resource].name}", short=Short(resource, asked, left))
    return None


def planned(
    candidates: Sequence[Candidate], needs: Mapping[str, int], room: Room, args: PlacementArgs
) -> dict[str, str] | Missed:
    """Return a node by uid, and let the pods count there; the room is as before if a gang gets less than it needs.

    ``candidates``: pods of all gangs that start together, in the order in which they are placed. ``needs``: by gang the
    least number of places. Further pods get places if there are any.
    """
    shapes: dict[Hashable, _Shape] = {}
    places: dict[str, str] = {}
    counts: Counter[str] = Counter()
    surveyed, judgements, first = 0, 0, None
    for one in candidates:
        shape = shapes.get(one.shape)
        if shape is None:
            surveyed += len(one.offer)
            if surveyed > SURVEYED_MAX:
                break
            shape = shapes[one.shape] = _Shape(one, room, args)
        node, more = shape.take(one.pod, room)
        judgements += more
        if judgements > JUDGED_MAX:
            break
        if not node:
            first = first or one
            continue
        places[one.uid] = node
        counts[one.gang] += 1
        room.hold(one.pod, node)
        for other in shapes.values():
            other.touch(node)
    too_large = surveyed > SURVEYED_MAX or judgements > JUDGED_MAX
    if not too_large and all(counts[gang] >= need for gang, need in needs.items()):
        return places
    for uid in reversed(places):
        room.release(uid)
    if too_large:
        first = None
    return Missed(placed=dict(counts), first=first, refused=shapes[first.shape].refused if first else {})
