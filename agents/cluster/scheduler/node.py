"""One node for the extender: its figures from Kafka and its pods. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from slacktide.schemas.allocatable import OFFERED, NodeAllocatable
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.score import NOTHING as NO_USE
from slacktide.schemas.score import NodeScore
from slacktide.schemas.zones import ZONES_STALE_S, NodeZones
from slacktide.streams.decisions.cores.placement import (
    NO_CORES,
    CoresRefusal,
    Holder,
    NodeCores,
    NodeRules,
    cores_of,
    holder_of,
    topology_of,
)
from slacktide.streams.decisions.cores.schedule import Spec
from slacktide.streams.decisions.coverage import UNCOVERED_S, Latest
from slacktide.streams.decisions.load.load_aware_estimator import (
    Aggregation,
    Amounts,
    LoadAwareArgs,
    LoadAwarePod,
    Thresholds,
)
from slacktide.streams.decisions.load.load_aware_existing import AssignCache, NodeReport, NodeUse, PodUse
from slacktide.streams.decisions.load.load_aware_scheduling import NodeState
from slacktide.streams.decisions.load.pod_placement import NodeView
from slacktide.streams.decisions.numa.placement import NodeZonesView, Reservation, view_of_zones

Figures = NodeScore | NodeMetric | NodeAllocatable
_OF: dict[type[Figures], Callable[[Figures], object]] = {
    NodeScore: attrgetter("allocatable", "pressure", "stale_ms"),
    NodeAllocatable: attrgetter(*OFFERED, "stale_ms"),
}
"""The fields that affect pods, if placed pods count. A metric always does."""
F = TypeVar("F", NodeScore, NodeMetric, NodeAllocatable)


class Size(NamedTuple):
    """CPU and memory of a node."""

    capacity: Amounts
    """The limit of its batch resources."""
    allocatable: Amounts

    @classmethod
    def of(cls, facts: NodeFacts) -> Size:
        """Return the amounts in a node's facts."""
        return cls(*(Amounts(one.cpu_milli or 0, one.mem_bytes or 0) for one in (facts.capacity, facts.allocatable)))


class KnownNode:
    """A node, mutable. ``counting``: whether pods count that were placed after the last report."""

    def __init__(self, name: str, args: LoadAwareArgs, *, counting: bool) -> None:
        self.pods: dict[str, LoadAwarePod] = {}
        """By uid: pods bound to the node, or assumed."""
        self._name, self._args, self._counting = name, args, counting
        self._cache = AssignCache(args=args)
        self._latest: dict[type[Figures], Latest[Any]] = {}
        self._logged_s = 0.0
        """When the metric was published, by the reader's clock."""
        self._unread = False
        """Whether the report must be rebuilt from the metric and pods."""
        self._size: Size | None = None
        self._asked: Resources | None = None
        self._own = Thresholds()
        self._zones: NodeZones | None = None
        self._recorded: NodeZonesView | None = None
        """The record as the rules read it."""
        self._zones_s = -inf
        self._named: frozenset[str] = frozenset()
        """Uids of the pods in that record."""
        self._rules = NodeRules()
        self._topology = NO_CORES.topology
        self._holders: dict[str, Holder] = {}
        """By uid: pods with CPUs of their own, bound or assumed. Kept also while the CPUs are unknown."""
        self._cores: NodeCores | None = None
        """None: to be built again."""
        self._view = NodeView(name=name, state=self._stands())
        self.until_s = -inf
        """When the view expires; -inf: it is outdated already."""

    def receive(self, figures: Figures, *, received_s: float, logged_s: float) -> bool:
        """Add figures of the node; figures older than the known ones are ignored.

        ``received_s`` is by the reader's own monotonic clock; ``logged_s``, when they were published, is UTC epoch.
        Return whether pods may see a difference: most scores repeat the metric.
        """
        kind, known = type(figures), self._latest.get(type(figures))
        before: Figures | None = None if known is None else known.message
        if known is None:
            self._latest[kind] = Latest(figures, received_s, received_s)
        elif not known.take(figures, received_s):
            return False
        if isinstance(figures, NodeMetric):
            self._logged_s, self._unread = logged_s, True
        same = (
            self._counting and not self._view.silent and not self._view.expired and before is not None
            and kind in _OF and _OF[kind](before) == _OF[kind](figures)
        )  # fmt: skip
        if not same:
            self.until_s = -inf
        return not same

    def _of(self, kind: type[F]) -> F | None:
        known = self._latest.get(kind)
        return None if known is None else known.message

    def take_zones(self, record: NodeZones, published_s: float) -> bool:
        """Add a record of NUMA zones, unless a newer one is fresh. Return whether pods may see a difference."""
        known, stale = self._zones, self._zones_stale(published_s)
        if known is not None and not stale and (record.boot_id, record.seq) < (known.boot_id, known.seq):
            return False
        named = frozenset(pod.uid for pod in record.pods)
        reserved = self.pods.keys() - self._named
        alike = known is not None and _of_zones(known) == _of_zones(record)
        same = alike and not stale and reserved == self.pods.keys() - named
        if not alike:
            self._recorded, self._topology, self._cores = view_of_zones(record), topology_of(record), None
        self._zones, self._zones_s, self._named = record, max(published_s, self._zones_s), named
        if not same:
            self.until_s = -inf
        return not same

    def forget_zones(self) -> None:
        """Forget its zones."""
        self._zones, self._recorded, self._named, self.until_s = None, None, frozenset(), -inf
        self._topology, self._cores = NO_CORES.topology, None

    def _zones_stale(self, now_s: float) -> bool:
        return now_s > self._zones_s + ZONES_STALE_S

    def _zones_view(self, now_s: float) -> NodeZonesView | None:
        """Return zones without the resources of pods that the record does not include yet."""
        if self._recorded is None:
            return None
        waiting = [pod for uid, pod in self.pods.items() if uid not in self._named] if self._counting else []
        reservations = [
            Reservation(f"{pod.pod.namespace}/{pod.pod.name}", pod.zoned.reserved)
            for pod in waiting
            if pod.zoned is not None
        ]
        return self._recorded.less(reservations, stale=self._zones_stale(now_s))

    def rule(self, rules: NodeRules) -> None:
        """Apply the node's own rules for CPUs."""
        self._rules, self._cores, self.until_s = rules, None, -inf

    def _hold(self, uid: str, holder: Holder | None) -> None:
        if self._holders.get(uid) == holder:
            return
        self._holders = {**self._holders, uid: holder} if holder else {
            other: one for other, one in self._holders.items() if other != uid
        }  # fmt: skip
        self._cores, self.until_s = None, -inf

    def cores(self, now_s: float) -> NodeCores:
        """Return its CPUs, with the pods that hold some. Without a fresh record they are unknown."""
        if self._zones is None or self._zones_stale(now_s):
            return NO_CORES
        if self._cores is None:
            of_kubelet = self._zones.cpu_static is not False
            self._cores = NodeCores(
                topology=self._topology, of_kubelet=of_kubelet, rules=self._rules, holders=self._holders
            )
        return self._cores

    def give(self, pod: LoadAwarePod, now_s: float) -> Holder | CoresRefusal | None:
        """Give the pod its CPUs, or those that it has already; None: it requests none."""
        if pod.cores is None:
            return None
        if pod.pod.uid not in self._holders:
            found = cores_of(pod.cores, self.cores(now_s))
            if isinstance(found, CoresRefusal):
                return found
            self._hold(pod.pod.uid, found.holder)
        return self._holders[pod.pod.uid]

    def cover(self, kind: type[Figures], received_s: float) -> bool:
        """Cover the latest figures of this kind by a heartbeat. Return whether pods may see a difference."""
        known = self._latest.get(kind)
        if known is None:
            return False
        known.cover(received_s)
        if self._view.silent or self._view.expired:
            self.until_s = -inf
            return True
        return False

    def govern(self, args: LoadAwareArgs) -> None:
        """Apply other settings of the rules."""
        self._args, self._unread = args, True
        self._cache.govern(args)
        self.until_s = -inf

    def limit(self, own: Thresholds) -> None:
        """Apply the node's own thresholds; empty: the cluster's apply."""
        self._own, self._unread = own, True
        self.until_s = -inf

    def has(self, size: Size | None) -> None:
        """Apply the amounts of the node; None: unknown."""
        self._size, self.until_s = size, -inf

    @property
    def _most(self) -> Amounts | None:
        return None if self._size is None else self._size.capacity

    @property
    def unrequested(self) -> Amounts | None:
        """Return CPU and memory that no pod requests; None: unknown."""
        if self._size is None:
            return None
        cpu_milli, mem_bytes = self._size.allocatable
        asked = [pod.pod.requests for pod in self.pods.values()]
        return Amounts(
            cpu_milli - sum(one.cpu_milli or 0 for one in asked), mem_bytes - sum(one.mem_bytes or 0 for one in asked)
        )

    def forget(self, kind: type[Figures]) -> None:
        """Forget the figures of one topic, which were removed."""
        self._latest.pop(kind, None)
        self._unread |= kind is NodeMetric
        self.until_s = -inf

    @property
    def unknown(self) -> bool:
        """Whether there are neither figures nor pods."""
        return not self.pods and not self._latest and self._own == Thresholds() and self._zones is None

    def place(self, pod: LoadAwarePod, *, at_s: float, bound: bool) -> None:
        """Add a pod. If it is bound, its annotation names its CPUs."""
        if bound:
            self._hold(pod.pod.uid, holder_of(pod.pod, Spec() if pod.cores is None else pod.cores.spec))
        known = self.pods.get(pod.pod.uid)
        self.pods[pod.pod.uid] = pod
        if self._counting:
            if known is None:
                self._cache.assign(pod, at_s=at_s)
            else:
                self._cache.update(pod, at_s=at_s)
        self.until_s, self._asked, self._unread = -inf, None, True

    def leave(self, uid: str) -> None:
        """Remove a pod."""
        pod = self.pods.pop(uid, None)
        self._hold(uid, None)
        if pod is not None:
            self._cache.unassign(pod)
            self.until_s, self._asked = -inf, None

    def view(self, now_s: float) -> NodeView:
        """Return the node as pods see it now, by the clock of ``receive``; valid until something changes."""
        if now_s > self.until_s:
            zones_s = inf if self._zones is None else self._zones_s + ZONES_STALE_S
            self.until_s = min(
                (one for one in (self._freezes_s, self._expires_s, zones_s) if one >= now_s), default=inf
            )
            batch_left, mid_left, free_left = self._lefts()
            self._view = NodeView(
                name=self._name,
                state=self._stands(),
                silent=self._silent(now_s),
                expired=now_s > self._expires_s,
                pressure=() if (score := self._of(NodeScore)) is None else score.pressure,
                batch_left=batch_left,
                mid_left=mid_left,
                free_left=free_left,
                zones=self._zones_view(now_s),
                cores=self.cores(now_s),
            )
        return self._view

    def silent(self, now_s: float) -> bool:
        """Return whether its figures are stale."""
        return bool(self._silent(now_s))

    def _silent(self, now_s: float) -> str:
        if not self._latest:
            return ""  # without figures the load is reported as unknown
        if any(one.message.stale_ms for one in self._latest.values()):
            return "stale"
        return "frozen" if now_s > self._freezes_s else ""

    @property
    def _freezes_s(self) -> float:
        """When any of its figures becomes stale; topics may be on different brokers."""
        return min((one.covered_s for one in self._latest.values()), default=inf) + UNCOVERED_S

    @property
    def _expires_s(self) -> float:
        """When the report becomes too old."""
        metric: Latest[NodeMetric] | None = self._latest.get(NodeMetric)
        if metric is None or self._args.expiration_s <= 0:
            return inf
        if metric.message.stale_ms:  # a heartbeat does not refresh it
            return metric.published_s + self._args.expiration_s - metric.message.stale_ms / 1000
        return metric.covered_s + self._args.expiration_s

    def _stands(self) -> NodeState:
        if self._unread:
            self._unread = False
            self._cache.measured(self._report())
        score = self._of(NodeScore)
        return NodeState(
            allocatable=Amounts() if score is None else _amounts(score.allocatable),
            custom=self._own,
            load=None if score is None else self._cache.load(),
            args=self._args,
        )

    def _report(self) -> NodeReport | None:
        """Return the metric for the rules: with the pods that are on the node, and the statistics in use.

        Averages cover a young pod only in part: it is estimated until it fills the window.
        """
        metric = self._of(NodeMetric)
        if metric is None:
            return None
        here = {(one.pod.namespace, one.pod.name) for one in self.pods.values()}
        return NodeReport(
            updated_s=self._logged_s,
            interval_s=metric.window_ms // 1000,
            node=NodeUse(
                use=_amounts(metric.node_use),
                system=_amounts(metric.system_use),
                aggregated={
                    Aggregation(kind, one.window_ms // 1000): Amounts(
                        getattr(one.node_cpu_milli, kind), getattr(one.node_mem_bytes, kind)
                    )
                    for kind in self._statistics()
                    for one in metric.aggregates
                },
            ),
            pods={
                key: PodUse(_amounts(pod.use), pod.priority_class == "koord-prod")
                for pod in (metric.pods if here else ())
                if (key := (pod.namespace, pod.name)) in here
            },
        )

    def _statistics(self) -> set[str]:
        """Return statistics that thresholds may use."""
        asked = (self._args.score_aggregation, self._args.thresholds.aggregation, self._own.aggregation)
        return {one.kind for one in asked if one is not None} if any(asked) else set()

    def _lefts(self) -> tuple[Amounts, Amounts, Amounts]:
        """Return unrequested batch, mid and free-tier resources; without counting, as published."""
        if not self._counting:
            score = self._of(NodeScore)
            lefts = () if score is None else (score.batch_left, score.mid_left, score.free_left)
            batch, mid, free = (_least(_amounts(left), self._most) for left in lefts or [NO_USE] * 3)
            return batch, mid, free
        if self._asked is None:
            listed = [pod.pod.requests for pod in self.pods.values()]
            self._asked = Resources(**{field: sum(getattr(one, field) or 0 for one in listed) for field in OFFERED})
        batch, mid, free = (self._left(tier, self._asked) for tier in ("batch", "mid", "free"))
        return batch, mid, free

    def _left(self, tier: str, asked: Resources) -> Amounts:
        """Return published minus requested resources of a tier."""
        fields = f"{tier}_cpu_milli", f"{tier}_mem_bytes"
        published = self._of(NodeAllocatable)
        offered = _least(Amounts(*(getattr(published, field, None) or 0 for field in fields)), self._most)
        taken = (getattr(asked, field) or 0 for field in fields)
        return Amounts(*(max(0, one - other) for one, other in zip(offered, taken, strict=True)))


def _of_zones(record: NodeZones) -> NodeZones:
    """Return the fields that affect pods: without changing fields and pods."""
    return msgspec.structs.replace(record, boot_id="", seq=0, observed_ms=0, pods=[], missing=[])


def _least(amounts: Amounts, most: Amounts | None) -> Amounts:
    """Return the minimum of each; None: unlimited."""
    if most is None:
        return amounts
    return Amounts(min(amounts.cpu_milli, most.cpu_milli), min(amounts.mem_bytes, most.mem_bytes))


def _amounts(use: Use) -> Amounts:
    return Amounts(use.cpu_milli, use.mem_bytes)
