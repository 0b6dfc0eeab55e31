"""Pods that every node refused, and which of them would fit now. Pure.

A kube-scheduler retries such a pod when a pod or node changes at the API server. It cannot see changes of load, zones
or freshness in Kafka, so the extender wakes the pod. A wake costs a write, so there are few:

* A changed node is judged once per pod shape, if it refused such a pod.
* It wakes one of the pods that fit. That pod counts there before the next one is woken.
* A pod is woken again only after every node has refused it again, with exponential backoff.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from slacktide.agents.cluster.scheduler.pod import Order, SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.backoff import Backoff
from slacktide.streams.decisions.load.load_aware_estimator import Amounts
from slacktide.streams.decisions.load.pod_placement import Asking, asking


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
    def order(self) -> Order:
        """Highest priority, then highest sub-priority, then oldest."""
        return self.pod.order


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


PODS_MAX = 10_000
"""Above this limit the oldest are forgotten; a kube-scheduler still retries them."""
WAKES_PER_S = 20
"""Rate limit and burst. A kube-scheduler itself sends 50 requests a second by default."""
BACKOFF_S, BACKOFF_MAX_S = 1.0, 10.0
"""Backoff between a pod's wakes, as a kube-scheduler's own."""
ANSWER_S = 5.0
"""A woken pod should be tried within this time. Later its place goes to another pod."""
UNSEEN_S = 60.0
"""A pod that the watch has not shown for this long is deleted."""
PRUNE_S = 5.0


@dataclass(slots=True)
class _Pause:
    """Backoff of one pod, without jitter: pods are woken at different times anyway."""

    backoff: Backoff = field(default_factory=lambda: Backoff(BACKOFF_S, BACKOFF_MAX_S, random=lambda: 1.0))
    until_s: float = 0.0


class Waiting:
    """Pending pods, mutable. ``now_s`` is the monotonic clock of ``nodes``."""

    def __init__(self, nodes: View) -> None:
        self._nodes = nodes
        self._args = nodes.args
        self._pods: OrderedDict[str, Waits] = OrderedDict()
        """By uid, in order of refusal."""
        self._shapes = Shapes()
        self._pauses: OrderedDict[str, _Pause] = OrderedDict()
        """By uid, in order of the first wake."""
        self._followed = -1
        """The last node change that was processed."""
        self._changed: dict[str, None] = {}
        """Nodes to judge, in order."""
        self._willing: OrderedDict[str, list[Shape]] = OrderedDict()
        """Nodes that refused pods and would accept them now, by shape; the next to wake a pod first."""
        self._promised: dict[str, Waits] = {}
        """By node the pod that was woken for it."""
        self._left, self._left_s, self._pruned_s = float(WAKES_PER_S), 0.0, 0.0

    @property
    def behind(self) -> bool:
        """Whether changed nodes are still to be judged."""
        return bool(self._changed)

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def refuse(self, pod: SchedulerPod, asks: Asking, nodes: Iterable[str], *, now_s: float, decided_ms: int) -> None:
        """Record that all of these nodes (at least one) refused the pod; ``decided_ms``: UTC epoch."""
        self._drop(pod.uid)
        refused = frozenset(nodes)
        shape = self._shapes.of(asks)
        for node in self._willing.keys() & refused:
            self._willing[node] = [one for one in self._willing[node] if one is not shape]
            if not self._willing[node]:
                del self._willing[node]
        group = shape.group(refused)
        self._pods[pod.uid] = group.pods[pod.uid] = Waits(pod, now_s, decided_ms, shape, group)
        while len(self._pods) > PODS_MAX:
            self._drop(next(iter(self._pods)))

    def accept(self, uid: str) -> None:
        """Record that a node accepted the pod."""
        self._drop(uid)
        self._pauses.pop(uid, None)

    def leave(self, uid: str, decided_ms: int) -> None:
        """Record that a replica placed or refused the pod at this time; if later than here, that replica wakes it."""
        known = self._pods.get(uid)
        if known is not None and decided_ms > known.decided_ms:
            self._drop(uid)

    def fail(self, uid: str) -> None:
        """Record that the pod could not be woken."""
        known = self._pods.get(uid)
        if known is not None:
            known.woken_s = None

    def wake(self, judgements: int, *, now_s: float) -> list[SchedulerPod]:
        """Return pods to wake now. ``judgements`` limits this call; the next one continues."""
        self._govern()
        self._prune(now_s)
        self._judge(judgements, now_s)
        self._left = min(WAKES_PER_S, self._left + WAKES_PER_S * max(0.0, now_s - self._left_s))
        self._left_s = now_s
        return [one.pod for one in self._wake(now_s)]

    def _judge(self, most: int, now_s: float) -> None:
        """Judge changed nodes in order, so that one that changes constantly keeps its turn."""
        for node, change in self._nodes.changed_since(self._followed, now_s=now_s):
            self._followed = change
            self._willing.pop(node, None)
            if self._shapes:
                self._changed[node] = None
        judged = 0
        while self._changed and judged < most:
            node = next(iter(self._changed))
            del self._changed[node]
            willing, judgements = self._shapes.judged(node, partial(self._nodes.takes, node=node, now_s=now_s))
            judged += max(1, judgements)
            if willing:
                self._willing[node] = willing
                self._willing.move_to_end(node, last=False)

    def _wake(self, now_s: float) -> list[Waits]:
        """For each node the first pod that fits, unless one that was woken for it was not tried yet."""
        woken: list[Waits] = []
        for node in list(islice(self._willing, WAKES_PER_S)):
            if self._left < 1:
                break
            self._willing.move_to_end(node)
            if not self._expects(node, now_s):
                waits = (one for shape in self._willing[node] for one in shape.refused_by(node))
                one = min((one for one in waits if self._ready(one, now_s)), key=lambda one: one.order, default=None)
                if one is not None:
                    pause = self._pauses.pop(one.pod.uid, None) or _Pause()
                    pause.until_s = now_s + pause.backoff.next_s()
                    self._pauses[one.pod.uid] = pause
                    while len(self._pauses) > PODS_MAX:
                        self._pauses.popitem(last=False)
                    one.woken_s = now_s
                    self._left -= 1
                    self._promised[node] = one
                    woken.append(one)
        return woken

    def _expects(self, node: str, now_s: float) -> bool:
        """Return whether a pod that was woken for the node may still be tried."""
        one = self._promised.get(node)
        if one is None:
            return False
        asked = self._pods.get(one.pod.uid) is not one
        expects = not asked and one.woken_s is not None and now_s < one.woken_s + ANSWER_S
        if not expects:
            del self._promised[node]
        return expects

    def _ready(self, one: Waits, now_s: float) -> bool:
        pause = self._pauses.get(one.pod.uid)
        early = pause is not None and now_s < pause.until_s
        return one.woken_s is None and not early and self._nodes.waits(one.pod) is True

    def _govern(self) -> None:
        """After a change of settings pods have other shapes, and each node is judged again."""
        if self._nodes.args is self._args:
            return
        self._args = self._nodes.args
        self._shapes.clear()
        self._willing.clear()
        self._followed = -1
        for one in self._pods.values():
            one.shape = self._shapes.of(asking(one.pod.asked, self._args))
            one.group = one.shape.group(one.group.nodes)
            one.group.pods[one.pod.uid] = one

    def _prune(self, now_s: float) -> None:
        """Forget bound and deleted pods, and woken pods that were not tried: another replica serves them."""
        if now_s < self._pruned_s + PRUNE_S:
            return
        self._pruned_s = now_s
        for one in list(self._pods.values()):
            waits = self._nodes.waits(one.pod)
            gone = waits is False or (waits is None and now_s >= one.refused_s + UNSEEN_S)
            if gone or (one.woken_s is not None and now_s >= one.woken_s + ANSWER_S):
                self._drop(one.pod.uid)

    def _drop(self, uid: str) -> None:
        one = self._pods.pop(uid, None)
        if one is None:
            return
        del one.group.pods[uid]
        if not one.group.pods:
            del one.shape.groups[one.group.nodes]
        if not one.shape.groups:
            self._shapes.drop(one.shape)
