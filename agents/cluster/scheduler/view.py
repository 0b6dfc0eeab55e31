"""All nodes and pods for the extender, with results by pod shape. Pure: callers pass the time of each change."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from math import inf

import msgspec

from slacktide.agents.cluster.scheduler.board import Board
from slacktide.agents.cluster.scheduler.node import Figures, KnownNode, Size
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.zones import NodeZones
from slacktide.streams.decisions.cores.placement import CoresRefusal, Holder, NodeRules
from slacktide.streams.decisions.gang.membership import SCHEDULER
from slacktide.streams.decisions.load.load_aware_estimator import NOTHING, Amounts, LoadAwarePod, Thresholds
from slacktide.streams.decisions.load.pod_placement import (
    Asking,
    Choice,
    Judged,
    PlacementArgs,
    asking,
    compare,
    judge,
    refusal_of,
)

BINDING_S = 600.0
"""Upper limit from placement to binding: a kube-scheduler waits this long for a pod's volumes.

In a burst bindings wait, too: by default its client sends 50 requests a second.
"""
EXPIRE_S = 1.0
BOUND_MAX = 100_000
SHAPES_MAX = 16


@dataclass(frozen=True, slots=True)
class _Assumed:
    node: str
    until_s: float
    planned: bool = False
    """Whether a kube-scheduler does not know of it yet."""


class View:
    """Nodes by name, and their pods.

    ``counting``: whether pods count that were placed after the last report; False for measurements.
    """

    def __init__(self, args: PlacementArgs, *, counting: bool = True) -> None:
        self.without_benefit: dict[str, SchedulerPod] = {}
        """By uid: pods that request batch or mid resources from a scheduler without load scoring."""
        self.bound: deque[SchedulerPod] = deque(maxlen=BOUND_MAX)
        """Pods bound by our scheduler since this was last emptied."""
        self.planned: Counter[str] = Counter()
        """By node how many pods are assumed of which a kube-scheduler does not know."""
        self.dry_run = False
        """Whether the policy only judges nodes."""
        self._args, self._counting = args, counting
        self._nodes: dict[str, KnownNode] = {}
        self._sizes: dict[str, Size] = {}
        self._rules: dict[str, NodeRules] = {}
        self._pods: dict[tuple[str, str], SchedulerPod] = {}
        self._assumed: dict[str, _Assumed] = {}
        self._blind = False
        self._expired_s = -inf
        self._boards: dict[Hashable, Board] = {}
        """By pod shape, least recently used first."""
        self._changes = count()
        self._changed: dict[str, int] = {}
        """By node its last change, in ascending order."""
        self._until_s = inf
        """No node changes by time alone before this."""

    def receive(self, figures: Figures, *, received_s: float, logged_s: float) -> None:
        """Add figures of a node."""
        if self._node(figures.node).receive(figures, received_s=received_s, logged_s=logged_s):
            self._note(figures.node)

    def take_zones(self, record: NodeZones, *, published_s: float) -> None:
        """Add a node's NUMA zones."""
        if self._node(record.node).take_zones(record, published_s):
            self._note(record.node)

    def forget_zones(self, node: str) -> None:
        """Forget a node's zones."""
        self._change(node, KnownNode.forget_zones)

    def cover(self, nodes: Iterable[str], kind: type[Figures], *, received_s: float) -> None:
        """Cover the latest figures of these nodes by a heartbeat."""
        for name in nodes:
            known = self._nodes.get(name)
            if known is not None and known.cover(kind, received_s):
                self._note(name)

    def forget(self, node: str, kind: type[Figures]) -> None:
        """Forget a removed node's figures of one topic."""
        self._change(node, lambda known: known.forget(kind))

    def govern(self, args: PlacementArgs) -> None:
        """Apply other settings."""
        if args == self._args:
            return
        self._args = args
        self._boards.clear()
        for name, node in self._nodes.items():
            node.govern(args.load)
            self._note(name)

    def limit(self, node: str, own: Thresholds) -> None:
        """Apply a node's own thresholds; empty: none."""
        if own != Thresholds():
            self._node(node)
        self._change(node, lambda known: known.limit(own))

    def has(self, node: str, size: Size | None) -> None:
        """Apply the amounts of a node; None: the node was removed."""
        if self._sizes.get(node) == size:
            return
        if size is None:
            del self._sizes[node]
            self._rules.pop(node, None)
        else:
            self._sizes[node] = size
        self._change(node, lambda known: known.has(size))
        if size is None:  # no agent reports the removal
            self.forget_zones(node)

    def rule(self, node: str, rules: NodeRules) -> None:
        """Apply a node's own rules for CPUs."""
        if self._rules.get(node, NodeRules()) == rules:
            return
        self._rules[node] = rules
        self._change(node, lambda known: known.rule(rules))

    def whole(self, pods: Iterable[SchedulerPod], *, at_s: float) -> None:
        """Replace all pods."""
        listed = {pod.key: pod for pod in pods}
        for key in self._pods.keys() - listed.keys():
            self.gone(key)
        for pod in listed.values():
            self.changed(pod, at_s=at_s)

    def changed(self, pod: SchedulerPod, *, at_s: float) -> None:
        """Add or update a pod; ``at_s``: UTC epoch."""
        known = self._pods.get(pod.key)
        if known is not None and known.uid != pod.uid:  # its deletion was missed
            self.gone(pod.key)
            known = None
        if known is not None and known.node != pod.node:
            self._leave(known.uid, known.node)
        self._pods[pod.key] = pod
        if pod.without_benefit and pod.asked.pod.phase not in ENDED_PHASES:
            self.without_benefit[pod.uid] = pod
        else:
            self.without_benefit.pop(pod.uid, None)
        if pod.node:
            self._settle(pod.uid, pod.node)
            if pod.scheduler == SCHEDULER and (known is None or not known.node):
                self.bound.append(pod)
        if pod.holds:
            self._place(pod.asked, pod.node, at_s, bound=True)
        elif pod.node:
            self._leave(pod.uid, pod.node)

    def gone(self, key: tuple[str, str]) -> None:
        """Remove a pod."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            self.without_benefit.pop(pod.uid, None)
            self._settle(pod.uid, "")
            self._leave(pod.uid, pod.node)

    def blind(self, blind: bool, *, now_s: float) -> None:  # noqa: FBT001
        """Return whether the watch is down: then pods count where they were placed."""
        if self._blind and not blind:
            until_s = now_s + BINDING_S
            self._assumed = {uid: replace(assumed, until_s=until_s) for uid, assumed in self._assumed.items()}
        self._blind = blind

    def choose(self, pod: LoadAwarePod, nodes: Sequence[str], *, now_s: float) -> Choice:
        """Choose a node for the pod; ``now_s``: by the clock of ``receive``."""
        self.expire(now_s)
        self.release(pod.pod.uid)
        return self.survey(asking(pod, self._args), nodes, now_s=now_s)

    def survey(self, asks: Asking, nodes: Sequence[str], *, now_s: float) -> Choice:
        """Compare nodes for a pod of this shape that counts nowhere."""
        names = set(nodes)
        if len(names) < len(nodes):
            nodes = list(dict.fromkeys(nodes))
        return compare(asks, *self._board(asks, names, now_s).of(nodes), self._args)

    def judged(self, asks: Asking, node: str, *, now_s: float) -> Judged:
        """Judge one node for a pod of this shape that counts nowhere."""
        known = self._nodes.get(node) or self._unknown(node)
        return judge(asks, known.view(now_s), self._args)

    def unrequested(self, node: str) -> Amounts | None:
        """Return CPU and memory of a node that no pod requests, of which some may be assumed; None: unknown."""
        known = self._nodes.get(node)
        return None if known is None else known.unrequested

    @property
    def free(self) -> Amounts:
        """Return CPU and memory that no pod requests, on all nodes together."""
        known = [one.unrequested or NOTHING for one in self._nodes.values()]
        return Amounts(*(sum(max(0, amount) for amount in amounts) for amounts in zip(*known, strict=True)))

    def release(self, uid: str) -> None:
        """End a pod's assumption."""
        self._settle(uid, "")

    def assumed(self, uid: str) -> str:
        """Return the node on which a pod is assumed; "": none."""
        assumed = self._assumed.get(uid)
        return "" if assumed is None else assumed.node

    @property
    def last_change(self) -> int:
        """The number of the last change of a node; -1: none yet."""
        return next(reversed(self._changed.values()), -1)

    @property
    def args(self) -> PlacementArgs:
        """The configuration of the rules."""
        return self._args

    def changed_since(self, change: int, *, now_s: float) -> list[tuple[str, int]]:
        """Nodes changed since that change, each with its last one, oldest first; -1: all."""
        self.expire(now_s)
        self._age(now_s)
        newest_first = takewhile(lambda one: one[1] > change, reversed(self._changed.items()))
        return list(newest_first)[::-1]

    def takes(self, asks: Asking, node: str, *, now_s: float) -> bool:
        """Return whether the node would accept the pod."""
        known = self._nodes.get(node) or self._unknown(node)
        refused = refusal_of(asks, known.view(now_s), self._args) is not None
        self._until_s = min(self._until_s, known.until_s)
        return not refused

    def waits(self, pod: SchedulerPod) -> bool | None:
        """Return whether the pod is pending; None: it is unknown or deleted."""
        known = self._pods.get(pod.key)
        if known is None:
            return None
        return known.uid == pod.uid and not known.node

    def _board(self, asks: Asking, nodes: set[str], now_s: float) -> Board:
        """Return the cache with a result for each of these nodes."""
        board = self._boards.pop(asks.shape, None) or Board()
        self._boards[asks.shape] = board
        if len(self._boards) > SHAPES_MAX:
            del self._boards[next(iter(self._boards))]
        self._age(now_s)
        board.follow(self._changed)
        for name in board.missing(nodes):
            known = self._nodes.get(name) or self._unknown(name)
            board.put(name, judge(asks, known.view(now_s), self._args))
            self._until_s = min(self._until_s, known.until_s)
        return board

    def _age(self, now_s: float) -> None:
        """Note nodes that changed by time alone: they became silent, or their report too old."""
        if now_s <= self._until_s:
            return
        self._until_s = inf
        for name, node in self._nodes.items():
            if now_s > node.until_s:
                self._note(name)
            else:
                self._until_s = min(self._until_s, node.until_s)

    def _note(self, node: str) -> None:
        self._changed.pop(node, None)
        self._changed[node] = next(self._changes)

    def assume(
        self, pod: LoadAwarePod, node: str, *,
        now_s: float, at_s: float, binding_s: float = BINDING_S, planned: bool = False,
    ) -> None:  # fmt: skip
        """Assume that a pod will be bound here; ``now_s`` as for ``choose``, ``at_s``: UTC epoch.

        ``binding_s``: for how long. ``planned``: a kube-scheduler does not know of it, so it does not count it itself.
        """
        known = self._pods.get((pod.pod.namespace, pod.pod.name))
        if not self._counting or (known is not None and known.node and known.uid == pod.pod.uid):
            return  # bound already: the request is outdated
        self.release(pod.pod.uid)
        self._assumed[pod.pod.uid] = _Assumed(node, now_s + binding_s, planned)
        self.planned[node] += planned
        self._place(pod, node, at_s)
        self._nodes[node].give(pod, now_s)

    def cores(
        self, key: tuple[str, str], uid: str, node: str, *, now_s: float, at_s: float
    ) -> Holder | CoresRefusal | None:
        """Return the CPUs that a pod gets on a node, to which it is bound next; None: the pod is unknown.

        They are those that it is assumed to have, unless its scheduler chose another node.
        """
        known = self._pods.get(key)
        if known is None or known.uid != uid:
            return None
        assumed = self._assumed.get(uid)
        if assumed is None or assumed.node != node:
            self.assume(known.asked, node, now_s=now_s, at_s=at_s)
        return self._node(node).give(known.asked, now_s)

    def sent(self, key: tuple[str, str], uid: str, node: str, *, until_s: float, at_s: float, cpus: str = "") -> None:
        """Another process placed a pod on the node ("": none); it counts until ``until_s`` if it is not bound yet.

        ``cpus``: those that it gives to the pod.
        """
        known = self._pods.get(key)
        if not self._counting or known is None or known.uid != uid or known.node:
            return
        self._settle(uid, "")
        if node:
            self._assumed[uid] = _Assumed(node, until_s)
            asked = replace(known.asked, pod=msgspec.structs.replace(known.asked.pod, cpuset=cpus))
            self._place(asked, node, at_s, bound=bool(cpus))

    def counts(self, now_s: float) -> tuple[int, int, int]:
        """Return the numbers of known nodes, silent nodes and assumed pods."""
        self.expire(now_s)
        return len(self._nodes), sum(one.silent(now_s) for one in self._nodes.values()), len(self._assumed)

    def _node(self, name: str) -> KnownNode:
        known = self._nodes.get(name)
        if known is None:
            known = self._nodes[name] = self._unknown(name)
        return known

    def _unknown(self, name: str) -> KnownNode:
        node = KnownNode(name, self._args.load, counting=self._counting)
        node.has(self._sizes.get(name))
        node.rule(self._rules.get(name, NodeRules()))
        return node

    def _change(self, name: str, change: Callable[[KnownNode], None]) -> None:
        """Change a node, if it is known. Drop it once there are neither figures nor pods."""
        known = self._nodes.get(name)
        if known is None:
            return
        change(known)
        self._note(name)
        if known.unknown:
            del self._nodes[name], self._changed[name]
            for board in self._boards.values():
                board.drop(name)

    def _place(self, pod: LoadAwarePod, node: str, at_s: float, *, bound: bool = False) -> None:
        self._node(node).place(pod, at_s=at_s, bound=bound)
        self._note(node)

    def _leave(self, uid: str, node: str) -> None:
        self._change(node, lambda known: known.leave(uid))

    def _settle(self, uid: str, node: str) -> None:
        """End a pod's assumption: it is on this node; "": on none."""
        assumed = self._assumed.pop(uid, None)
        if assumed is None:
            return
        if assumed.planned:
            self.planned[assumed.node] -= 1
            self.planned += Counter()  # drops nodes without any
        if assumed.node != node:
            self._leave(uid, assumed.node)

    def expire(self, now_s: float) -> None:
        """End assumptions whose time is over, at most once a second."""
        if self._blind or now_s < self._expired_s + EXPIRE_S:
            return
        self._expired_s = now_s
        for uid in [uid for uid, one in self._assumed.items() if one.until_s <= now_s]:
            self.release(uid)
