"""Classifies nodes as overloaded or with room, by whole usage and by production usage.

Thresholds may name any Kubernetes resource. Amounts are millicores for CPU, bytes for memory, else a count. Reading:
koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware, newThresholds, getNodeThresholds,
calcAverageResourceUsagePercent, getNodeUsage, classifyNodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because

Amounts = Mapping[str, int]
"""Resource name -> amount; a missing one is 0."""
Percents = Mapping[str, float]
"""Resource name -> percent of the capacity."""


def with_unit(resource: str) -> str:
    """Append the unit to a resource's name, as in terms: ``cpu_milli``, ``memory_bytes``."""
    if resource.endswith("cpu"):
        return f"{resource}_milli"
    return f"{resource}_bytes" if resource.endswith("memory") else f"{resource}_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """An operator's percentages: a node accepts pods up to ``low``, and loses pods above ``high``."""

    low: Percents
    high: Percents


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A band's thresholds on one node, with their arithmetic per resource."""

    low: Amounts
    high: Amounts
    because: tuple[Because, ...]


def watched_resources(*bands: Band) -> tuple[str, ...]:
    """Return memory and all resources with a threshold, sorted."""
    return tuple(sorted({"memory"}.union(*(percents for band in bands for percents in (band.low, band.high)))))


def average_used(resources: Sequence[str], loads: Sequence[tuple[Amounts, Amounts]]) -> Percents:
    """Compute the nodes' mean usage in percent of capacity, from (used, capacity); no capacity: 0 percent.

    The sum is exact, so the order of the nodes does not change the last digit.
    """

    def percent(used: int, capacity: int) -> float:
        return float(used) / float(capacity) * 100.0 if capacity else 0.0

    return {
        name: fsum(percent(used.get(name, 0), capacity.get(name, 0)) for used, capacity in loads) / max(len(loads), 1)
        for name in resources
    }


def node_limits(of: str, band: Band, capacity: Amounts, average: Percents | None) -> Limits:
    """Compute one node's thresholds from a complete band. Resources without capacity have thresholds of 0.

    With ``average``, the nodes' average usage in percent, the band's percentages are distances from it. ``of`` is the
    path of the reasons.
    """
    low, high, because = {}, {}, []
    for name in band.low:
        whole, unit = capacity.get(name, 0), with_unit(name)
        bound, low_pct, high_pct = "percent", band.low[name], band.high[name]
        distances: Terms = {}
        if average is not None and low_pct == 0:
            bound, low_pct, high_pct = "unlimited", 100.0, 100.0
        elif average is not None:
            mean = average[name]
            distances = {"average_pct": mean, "below_pct": low_pct, "above_pct": high_pct}
            bound, low_pct, high_pct = "deviation", _clamp(mean - low_pct), _clamp(mean + high_pct)
        low[name], high[name] = _share(whole, low_pct), _share(whole, high_pct)
        terms: Terms = {f"capacity_{unit}": whole} | distances | {"low_pct": low_pct, "high_pct": high_pct}
        terms |= {f"low_{unit}": low[name], f"high_{unit}": high[name]}
        because.append(Because(of=f"{of}/{name}", bound=bound, terms=terms))
    return Limits(low=low, high=high, because=tuple(because))


def _clamp(percent: float) -> float:
    return min(max(percent, 0.0), 100.0)


def _share(capacity: int, percent: float) -> int:
    """Multiply in the reference's order, which determines the last unit."""
    return int(float(percent) * 0.01 * float(capacity))


CLASSES = ("low", "high", "prod_low", "prod_high", "both_low", "between")
"""``low`` has room in the whole view, ``prod_low`` in the production view. ``between`` has no room and is not over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod on a node, with its usage."""

    pod: Pod
    requests: Amounts
    used: Amounts | None
    evictable: bool
    """No other rule forbids the eviction."""
    created_s: int
    deletion_cost: int = 0
    eviction_cost: int = 0

    @property
    def is_prod(self) -> bool:
        """Return whether the pod counts in the production view."""
        return effective_priority_class(self.pod) == "koord-prod"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedNode:
    """A node with its pods and measured usage."""

    name: str
    allocatable: Amounts
    capacity: Amounts
    """The base of percentages: raw allocatable, or allocatable if the node has no raw amounts."""
    schedulable: bool
    pods: Sequence[PlacedPod]
    pods_max: int = 110
    used_besides: Sequence[Amounts]
    """Usage of the system and of removed pods."""
    metric_age_s: float | None
    """None: no metric. Infinite: a metric of unknown age."""

    @property
    def live_pods(self) -> list[PlacedPod]:
        """Return the pods that hold their requests."""
        return [pod for pod in self.pods if pod.pod.phase not in ENDED_PHASES]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A node's usage and thresholds in one view, for every watched resource."""

    used: Amounts
    limits: Limits

    @property
    def excess(self) -> dict[str, int]:
        """Return the amount of each resource above its high threshold. Other resources are omitted."""
        above = {name: self.used[name] - limit for name, limit in self.limits.high.items()}
        return {name: amount for name, amount in above.items() if amount > 0}

    @property
    def is_under(self) -> bool:
        """Return whether no resource is above its low threshold."""
        return all(self.used[name] <= limit for name, limit in self.limits.low.items())

    def minus(self, used: Amounts) -> View:
        """Return the view without a pod's usage."""
        return View(used={name: own - used.get(name, 0) for name, own in self.used.items()}, limits=self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewedNode:
    """A node with a usable metric."""

    node: LoadedNode
    whole: View
    prod: View
    """Production pods without the system, with the production thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyPolicy:
    """Settings of the node classification."""

    whole: Band
    prod: Band
    use_deviation: bool = False
    """The bands' percentages are distances from the nodes' average usage."""
    metric_expiration_s: int = 180
    """0 or less: metrics do not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The classes of nodes with usable metrics. Each class is in order of node name."""

    resources: tuple[str, ...]
    classes: Mapping[str, Sequence[ViewedNode]]
    because: tuple[Because, ...]
    """Each resource's thresholds by node and view, then each node's class."""


def survey(nodes: Iterable[LoadedNode], policy: SurveyPolicy) -> Survey:
    """Classify all nodes in both views. The order of nodes and pods does not matter."""
    ordered = sorted(nodes, key=lambda node: node.name)
    expiration_s, measured, left_out = policy.metric_expiration_s, list[LoadedNode](), []
    for node in ordered:
        age_s = node.metric_age_s
        if age_s is not None and (expiration_s <= 0 or age_s < expiration_s):
            measured.append(node)
            continue
        terms: Terms = {"expiration_s": expiration_s} | ({} if age_s is None else {"age_s": age_s})
        bound = "no_metric" if age_s is None else "metric_expired"
        left_out.append(Because(of=f"nodes/{node.name}/class", bound=bound, terms=terms))
    resources = watched_resources(policy.whole, policy.prod)
    # Of the system and all measured pods, including ended and removed pods.
    everything = [_sum([*node.used_besides, *(pod.used for pod in node.pods)], resources) for node in measured]
    of_prod = [_sum([pod.used for pod in node.live_pods if pod.is_prod], resources) for node in measured]
    whole = _views("whole", measured, everything, policy.whole, policy)
    prod = _views("prod", measured, of_prod, policy.prod, policy)
    classes: dict[str, list[ViewedNode]] = {name: [] for name in CLASSES}
    for views in zip(measured, whole, prod, strict=True):
        viewed = ViewedNode(node=views[0], whole=views[1], prod=views[2])
        classes[_load_class(viewed)].append(viewed)
    limits = [one for pair in zip(whole, prod, strict=True) for view in pair for one in view.limits.because]
    standings = [_why(name, node) for name, members in classes.items() for node in members]
    return Survey(resources=resources, classes=classes, because=(*limits, *standings, *left_out))


def _sum(amounts: Iterable[Amounts | None], resources: Sequence[str]) -> Amounts:
    known = [one for one in amounts if one is not None]
    return {name: sum(one.get(name, 0) for one in known) for name in resources}


def _views(
    kind: str, nodes: Sequence[LoadedNode], usages: Sequence[Amounts], band: Band, policy: SurveyPolicy
) -> list[View]:
    resources = watched_resources(policy.whole, policy.prod)
    # A missing high threshold is 0. A resource without a low threshold is not limited, even if it has a high one: both
    # thresholds are the whole capacity. That is 100 percent, or 0 if percentages are deviations.
    nothing = 0.0 if policy.use_deviation else 100.0
    complete = Band(
        low={name: band.low.get(name, nothing) for name in resources},
        high={name: band.high.get(name, 0.0) if name in band.low else nothing for name in resources},
    )
    loads = [(used, node.capacity) for used, node in zip(usages, nodes, strict=True)]
    average = average_used(resources, loads) if policy.use_deviation else None
    return [
        View(used=used, limits=node_limits(f"nodes/{node.name}/{kind}", complete, node.capacity, average))
        for node, used in zip(nodes, usages, strict=True)
    ]


def _load_class(node: ViewedNode) -> str:
    """Return the node's class. Only schedulable nodes can be low, in either view."""
    schedulable = node.node.schedulable
    prod = "prod_high" if node.prod.excess else "prod_low" if schedulable and node.prod.is_under else ""
    if schedulable and node.whole.is_under:
        return {"prod_high": "prod_high", "prod_low": "both_low"}.get(prod, "low")
    return "high" if node.whole.excess else prod or "between"


def _why(load_class: str, node: ViewedNode) -> Because:
    terms: Terms = {}
    for kind, view in (("whole", node.whole), ("prod", node.prod)):
        for resource, used in view.used.items():
            unit = with_unit(resource)
            terms[f"{kind}_low_{unit}"] = view.limits.low[resource]
            terms[f"{kind}_high_{unit}"] = view.limits.high[resource]
            terms[f"{kind}_used_{unit}"] = used
    return Because(of=f"nodes/{node.node.name}/class", bound=load_class, terms=terms)
