"""The descheduler's view of nodes and pods, and passes over it: which pods to evict, and why. Pure.

Averages still include evicted pods for a window. Until it is over, the node gives no more pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from slacktide.agents.cluster.descheduler.pod import DeschedulerPod, amounts_of
from slacktide.schemas.descheduling import DeschedulingPass, NodesOfClass, SourceNode, StayingPods, Victim
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.strategies import UsagePercents
from slacktide.streams.decisions.load.load_aware_classify import (
    Band,
    LoadedNode,
    PlacedPod,
    Survey,
    SurveyPolicy,
    View,
    ViewedNode,
    survey,
    with_unit,
)
from slacktide.streams.decisions.load.load_aware_descheduling import (
    Descheduled,
    DeschedulingPolicy,
    Eviction,
    Kind,
    PassState,
    Rows,
    deschedule,
    view_of,
)

MetricOf = Callable[[str], NodeMetric | None]
"""A node's latest metric; None: none."""
PODS_MAX = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node as a target for pods."""

    facts: NodeFacts
    takes_pods: bool
    """Neither cordoned nor tainted against pods without tolerations."""
    pods_max: int = PODS_MAX


class Cluster:
    """Nodes and pods, mutable."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._pods: dict[tuple[str, str], DeschedulerPod] = {}
        self._on: dict[str, dict[tuple[str, str], DeschedulerPod]] = {}

    def node(self, place: Place) -> None:
        """Add or update a node."""
        self._places[place.facts.name] = place

    def removed(self, name: str) -> None:
        """Remove a node."""
        self._places.pop(name, None)

    def whole(self, pods: Iterable[DeschedulerPod]) -> None:
        """Replace all pods."""
        self._pods.clear()
        self._on.clear()
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: DeschedulerPod) -> None:
        """Add or update a pod."""
        self.gone(pod.key)
        self._pods[pod.key] = pod
        if pod.node:
            self._on.setdefault(pod.node, {})[pod.key] = pod

    def gone(self, key: tuple[str, str]) -> None:
        """Remove a pod."""
        known = self._pods.pop(key, None)
        if known is not None and known.node:
            there = self._on[known.node]
            del there[key]
            if not there:
                del self._on[known.node]

    def copy(self) -> Cluster:
        """Return a snapshot for another thread."""
        other = Cluster()
        other._places, other._pods = dict(self._places), dict(self._pods)
        other._on = {node: dict(pods) for node, pods in self._on.items()}
        return other

    @property
    def nodes(self) -> Collection[str]:
        """All node names."""
        return self._places.keys()

    def pods_on(self, node: str) -> Collection[DeschedulerPod]:
        """Known pods bound to the node."""
        return self._on.get(node, {}).values()

    def may_go(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether this pod still exists, runs and is evictable."""
        pod = self._pods.get((namespace, name))
        return pod is not None and pod.pod.uid == uid and pod.pod.phase in LIVE_PHASES and not pod.stays

    def loaded(self, metric_of: MetricOf, settling: Collection[str]) -> Iterator[LoadedNode]:
        """Yield each node with its pods and use; use is None without a fresh metric.

        The same without allocatable, since any use would exceed it.
        The averages of ``settling`` nodes still include evicted pods, so none of their pods is evicted.
        """
        for name, place in self._places.items():
            metric, amounts = metric_of(name), place.facts.allocatable
            usable = metric is not None and not metric.stale_ms and amounts.cpu_milli and amounts.mem_bytes
            yield self._loaded(name, place, metric if usable else None, name in settling)

    def _loaded(self, name: str, place: Place, metric: NodeMetric | None, settling: bool) -> LoadedNode:  # noqa: FBT001
        there, allocatable = self.pods_on(name), amounts_of(place.facts.allocatable)
        used = {} if metric is None else {pod.uid: _used(pod.use) for pod in metric.pods}
        here = {pod.pod.uid for pod in there}
        besides = [amounts for uid, amounts in used.items() if uid not in here]
        return LoadedNode(
            name=name,
            allocatable=allocatable,
            capacity=allocatable,
            schedulable=place.takes_pods,
            pods=[
                PlacedPod(
                    pod=pod.pod,
                    requests=pod.requests,
                    used=used.get(pod.pod.uid),
                    evictable=not pod.stays and not settling,
                    created_s=pod.created_s,
                    deletion_cost=pod.deletion_cost,
                    eviction_cost=pod.eviction_cost,
                )
                for pod in there
            ],
            pods_max=place.pods_max,
            used_besides=besides if metric is None else [_used(metric.system_use), *besides],
            metric_age_s=None if metric is None else 0.0,
        )


def _used(use: Use) -> dict[str, int]:
    return {"cpu": use.cpu_milli, "memory": use.mem_bytes}


NAMED, LISTED_MAX = 5, 100
VIEWS: dict[str, Kind] = {"high": "whole", "prod_high": "prod"}
"""By node class, the view in which the node is overloaded."""


class Passes:
    """The passes of one term."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._number = 0
        self._dry_run = True
        self._rows = self._relieved = PassState()
        """How long nodes have been overloaded; and the same if all victims of the last pass had left."""
        self._windows_s: dict[str, float] = {}
        """By node with victims in the last pass: the averaging window of its figures."""
        self._settled_s: dict[str, float] = {}
        """Until when each node's averages include evicted pods, or would in a dry run."""

    def next(
        self, cluster: Cluster, metric_of: MetricOf, policy: Policy, now_s: float, now_ms: int
    ) -> DeschedulingPass:
        """Judge all nodes. ``now_s`` is monotonic; ``now_ms`` is UTC epoch time."""
        wanted = policy.descheduling
        if self._dry_run and not wanted.dry_run:
            self._settled_s = {}
        self._dry_run = wanted.dry_run
        settling = {node: until_s for node, until_s in self._settled_s.items() if until_s > now_s}
        nodes = list(cluster.loaded(metric_of, settling))
        seen = survey(
            nodes,
            SurveyPolicy(
                whole=Band(low=_percents(wanted.low), high=_percents(wanted.high)),
                prod=Band(low=_percents(wanted.prod_low), high=_percents(wanted.prod_high)),
                use_deviation=wanted.use_deviation,
                metric_expiration_s=0,  # its age is checked elsewhere
            ),
        )
        done = deschedule(
            seen,
            DeschedulingPolicy(
                too_few_targets=wanted.too_few_targets,
                node_fit=wanted.node_fit,
                lands=True,
                weights={"cpu": wanted.weights.cpu, "memory": wanted.weights.mem},
                consecutive_abnormalities=wanted.anomaly.consecutive_abnormalities,
            ),
            self._rows,
        )
        self._rows, self._relieved, self._number = done.rows, done.state, self._number + 1
        self._settled_s = dict(settling)
        measured = {one.node: metric_of(one.node) for one in done.evictions}
        self._windows_s = {node: 0.0 if one is None else one.window_ms / 1_000 for node, one in measured.items()}
        if wanted.dry_run:
            for node in self._windows_s:
                self.left(node, now_s)
        [whole] = [one for one in done.because if one.of == "pass"]
        return DeschedulingPass(
            epoch=self._epoch,
            number=self._number,
            decided_ms=now_ms,
            policy_version=policy.version,
            dry_run=wanted.dry_run,
            bound=whole.bound,
            terms=whole.terms | {"evicted_pods": len(done.evictions)},
            classes=list(_classes(seen, nodes, metric_of)),
            sources=list(_sources(seen, done, cluster, settling))[:LISTED_MAX],
            victims=list(_victims(seen, done.evictions))[:LISTED_MAX],
        )

    def left(self, node: str, now_s: float) -> None:
        """Record that a victim left its node, or may have. Otherwise the node still counts as overloaded."""
        self._settled_s[node] = now_s + self._windows_s[node]
        self._rows = PassState(
            whole=_as_after(node, self._rows.whole, self._relieved.whole),
            prod=_as_after(node, self._rows.prod, self._relieved.prod),
        )


def _as_after(node: str, before: Rows, after: Rows) -> Rows:
    return {name: row for name, row in before.items() if name != node or name in after}


def _percents(wanted: UsagePercents) -> dict[str, float]:
    percents = {"cpu": wanted.cpu_pct, "memory": wanted.mem_pct}
    return {name: float(percent) for name, percent in percents.items() if percent is not None}


def _classes(seen: Survey, nodes: Sequence[LoadedNode], metric_of: MetricOf) -> Iterator[NodesOfClass]:
    named = {name: [one.node.name for one in members] for name, members in seen.classes.items()}
    out = sorted(node.name for node in nodes if node.metric_age_s is None)
    for name in out:
        metric = metric_of(name)
        why = "unmeasured" if metric is None else "stale" if metric.stale_ms else "nothing_allocatable"
        named.setdefault(why, []).append(name)
    for name, members in named.items():
        if members:
            yield NodesOfClass(load_class=name, count=len(members), nodes=members[:NAMED])


def _sources(seen: Survey, done: Descheduled, cluster: Cluster, settling: Container[str]) -> Iterator[SourceNode]:
    because = {one.of: one for one in done.because}
    over = [(node, name) for name in VIEWS for node in seen.classes[name]]
    for node, load_class in sorted(over, key=lambda one: one[0].node.name):
        name, kind = node.node.name, VIEWS[load_class]
        row = because[f"nodes/{name}/{kind}/row"]
        gave = because.get(f"{kind}/sources/{name}", because["pass"])
        yield SourceNode(
            node=name,
            load_class=load_class,
            bound=row.bound if row.bound == "waiting" else gave.bound,
            terms=row.terms | _share(node, view_of(node, kind)) | _over(view_of(node, kind)),
            staying=_staying(cluster, name, settling=name in settling),
        )


def _staying(cluster: Cluster, node: str, *, settling: bool) -> list[StayingPods]:
    """Return why pods of a node stay, without terminated ones."""
    live = [pod for pod in cluster.pods_on(node) if pod.pod.phase in LIVE_PHASES]
    reasons = Counter(pod.stays or ("settling" if settling else "") for pod in live)
    return [
        StayingPods(reason=reason, count=count)
        for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
        if reason
    ]


def _victims(seen: Survey, evictions: Sequence[Eviction]) -> Iterator[Victim]:
    """Victims, each with the node's use before its eviction and after those before it."""
    nodes = {node.node.name: node for name in VIEWS for node in seen.classes[name]}
    views: dict[tuple[str, bool], View] = {}
    for one in evictions:
        node, at = nodes[one.node], (one.node, one.because_of_prod)
        view = views.get(at) or view_of(node, "prod" if one.because_of_prod else "whole")
        used = one.pod.used or {}
        own: Terms = {f"pod_{with_unit(name)}": used.get(name, 0) for name in view.excess}
        pod = one.pod.pod
        yield Victim(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=one.node,
            terms=_share(node, view) | _over(view) | own,
        )
        views[at] = view.minus(used)


def _share(node: ViewedNode, view: View) -> Terms:
    """Return the most exceeded resource, in percent of allocatable."""
    shares = {name: 100 / (node.node.capacity.get(name) or 1) for name in view.excess}
    used_pct, name = max((view.used[name] * share, name) for name, share in shares.items())
    return {"used_pct": round(used_pct, 1), "threshold_pct": round(view.limits.high[name] * shares[name], 1)}


def _over(view: View) -> Terms:
    terms: Terms = {}
    for name in view.excess:
        unit = with_unit(name)
        terms |= {f"used_{unit}": view.used[name], f"high_{unit}": view.limits.high[name]}
    return terms
