"""All nodes and pods as descheduling knows them. Pure: its callers read the sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from slacktide.agents.cluster.descheduler.pod import SeenPod, amounts_of
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.streams.decisions.load_aware_classify import LoadedNode, PlacedPod

MetricOf = Callable[[str], NodeMetric | None]
"""A node's latest metric; None: none any more, or none yet."""
PODS_MAX = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node as a place for pods."""

    facts: NodeFacts
    takes_pods: bool
    """Neither cordoned nor tainted against pods that do not tolerate it."""
    pods_max: int = PODS_MAX


class Cluster:
    """Mutable."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._pods: dict[tuple[str, str], SeenPod] = {}
        self._on: dict[str, dict[tuple[str, str], SeenPod]] = {}

    def node(self, place: Place) -> None:
        """A node is so."""
        self._places[place.facts.name] = place

    def removed(self, name: str) -> None:
        """There is no such node any more."""
        self._places.pop(name, None)

    def whole(self, pods: Iterable[SeenPod]) -> None:
        """These pods there are, and no others."""
        self._pods.clear()
        self._on.clear()
        for pod in pods:
            self.changed(pod)

    def changed(self, pod: SeenPod) -> None:
        """A pod is so."""
        self.gone(pod.key)
        self._pods[pod.key] = pod
        if pod.node:
            self._on.setdefault(pod.node, {})[pod.key] = pod

    def gone(self, key: tuple[str, str]) -> None:
        """A pod is not there any more."""
        known = self._pods.pop(key, None)
        if known is not None and known.node:
            there = self._on[known.node]
            del there[key]
            if not there:
                del self._on[known.node]

    def copy(self) -> Cluster:
        """All as it is now, for who looks at it while it goes on."""
        other = Cluster()
        other._places, other._pods = dict(self._places), dict(self._pods)
        other._on = {node: dict(pods) for node, pods in self._on.items()}
        return other

    @property
    def nodes(self) -> Collection[str]:
        """All of them."""
        return self._places.keys()

    def pods_on(self, node: str) -> Collection[SeenPod]:
        """Those that were bound there and are still known."""
        return self._on.get(node, {}).values()

    def may_go(self, namespace: str, name: str, uid: str) -> bool:
        """Whether this very pod is there still, has not ended, and nothing forbids to evict it."""
        pod = self._pods.get((namespace, name))
        return pod is not None and pod.pod.uid == uid and pod.pod.phase in LIVE_PHASES and not pod.stays

    def loaded(self, metric_of: MetricOf, settling: Collection[str]) -> Iterator[LoadedNode]:
        """Each node with its pods and its use; one that is silent or was never measured has none.

        Nor has one of which nothing is allocatable: any use would be more than a share of that.

        Args:
            metric_of: a node's latest metric.
            settling: nodes whose figures still hold what has left them: no pod of theirs may go.

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


def _placed(seen: SeenPod, used: dict[str, int] | None, settling: bool) -> PlacedPod:  # noqa: FBT001
    return PlacedPod(
        pod=seen.pod,
        requests=seen.requests,
        used=used,
        evictable=not seen.stays and not settling,
        created_s=seen.created_s,
        deletion_cost=seen.deletion_cost,
        eviction_cost=seen.eviction_cost,
    )


def _used(use: Use) -> dict[str, int]:
    return {"cpu": use.cpu_milli, "memory": use.mem_bytes}
