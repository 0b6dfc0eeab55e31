"""The descheduler's view of nodes and pods. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from slacktide.agents.cluster.descheduler.pod import DeschedulerPod, amounts_of
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.streams.decisions.load.load_aware_classify import LoadedNode, PlacedPod

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
            pods=[_placed(pod, used.get(pod.pod.uid), settling) for pod in there],
            pods_max=place.pods_max,
            used_besides=besides if metric is None else [_used(metric.system_use), *besides],
            metric_age_s=None if metric is None else 0.0,
        )


def _placed(pod: DeschedulerPod, used: dict[str, int] | None, settling: bool) -> PlacedPod:  # noqa: FBT001
    return PlacedPod(
        pod=pod.pod,
        requests=pod.requests,
        used=used,
        evictable=not pod.stays and not settling,
        created_s=pod.created_s,
        deletion_cost=pod.deletion_cost,
        eviction_cost=pod.eviction_cost,
    )


def _used(use: Use) -> dict[str, int]:
    return {"cpu": use.cpu_milli, "memory": use.mem_bytes}
