"""Pending pods by shape: a node is judged once for all pods with the same requests. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace

from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.streams.decisions.load.load_aware_args import Amounts
from slacktide.streams.decisions.load.pod_placement import Asking


@dataclass(slots=True, eq=False)
class Group:
    """Pods of one shape that the same nodes refused."""

    nodes: frozenset[str]
    pods: dict[str, Waits] = field(default_factory=dict)
    """By uid."""


@dataclass(slots=True, eq=False)
class Shape:
    """Pods that nodes judge alike."""

    asks: Asking
    groups: dict[frozenset[str], Group] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    """Nodes that refused any of these pods."""

    def group(self, nodes: frozenset[str]) -> Group:
        """Return the group of pods that these nodes refused; equal sets share one object."""
        group = self.groups.get(nodes)
        if group is None:
            group = self.groups[nodes] = Group(nodes)
            self.nodes |= nodes
        return group

    def refused_by(self, node: str) -> Iterator[Waits]:
        """Return pods that the node refused."""
        return (one for group in self.groups.values() if node in group.nodes for one in group.pods.values())


@dataclass(slots=True, eq=False)
class Waits:
    """A pod that all nodes refused."""

    pod: SchedulerPod
    refused_s: float
    decided_ms: int
    shape: Shape
    group: Group
    woken_s: float | None = None
    """None: it was not woken since the refusal."""

    @property
    def order(self) -> tuple[int, float, str]:
        """In a kube-scheduler's order: highest priority, then oldest."""
        return -(self.pod.asked.pod.priority or 0), self.pod.created_s or 0.0, self.pod.uid


@dataclass(slots=True, eq=False)
class _Kind:
    """Shapes that differ only in amounts."""

    least: Asking
    """The minimum of each amount: a node that refuses this refuses all of them."""
    shapes: dict[Hashable, Shape] = field(default_factory=dict)


class Shapes:
    """All shapes, mutable."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def of(self, asks: Asking) -> Shape:
        """Return the shape for these requests."""
        kind = self._kinds.setdefault(_kind(asks), _Kind(asks))
        shape = kind.shapes.get(asks.shape)
        if shape is None:
            shape = kind.shapes[asks.shape] = Shape(asks)
            kind.least = _least(kind.least, asks)
        return shape

    def drop(self, shape: Shape) -> None:
        """Remove a shape without pods."""
        key = _kind(shape.asks)
        kind = self._kinds.get(key)
        if kind is not None and kind.shapes.get(shape.asks.shape) is shape:
            del kind.shapes[shape.asks.shape]
            if not kind.shapes:
                del self._kinds[key]

    def clear(self) -> None:
        """Remove all shapes."""
        self._kinds.clear()

    def judged(self, node: str, takes: Callable[[Asking], bool]) -> tuple[list[Shape], int]:
        """Shapes whose pods the node refused and would accept now, and the number of judgements made."""
        willing: list[Shape] = []
        judgements = 0
        for kind in self._kinds.values():
            shapes = [shape for shape in kind.shapes.values() if node in shape.nodes]
            if len(shapes) > 1:
                judgements += 1
                if not takes(kind.least):
                    continue
            judgements += len(shapes)
            willing += [shape for shape in shapes if takes(shape.asks)]
        return willing, judgements


def _kind(asks: Asking) -> Hashable:
    one = asks.candidate
    return one.prod, one.daemonset, asks.best_effort, asks.tier, asks.zoned


def _least(one: Asking, other: Asking) -> Asking:
    """Return the minimum of each amount."""
    estimate, amounts = one.candidate.estimate, other.candidate.estimate.amounts
    estimate = replace(estimate, amounts=Amounts(*map(min, estimate.amounts, amounts)))
    wanted = Amounts(*map(min, one.wanted, other.wanted))
    return replace(one, candidate=replace(one.candidate, estimate=estimate), wanted=wanted)
