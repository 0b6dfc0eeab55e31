"""Selects pods to evict from overloaded nodes in one pass, while other nodes have room.

Nodes that are over in the whole view come first, then nodes that are over in the production view. Reading: koordinator
a7a1b76b, pkg/descheduler: framework/plugins/loadaware/low_node_load.go, utilization_util.go, balancePods, evictPods,
sortNodesByUsage, podFitsAnyNodeWithThreshold; node/node.go, NodeFit; utils/sorter/pod.go, PodSorter; scorer.go,
ResourceUsageScorerPod. The reference checks node by node, and a placed pod reduces only the target's usage room for the
next pod. It orders ties by its maps. Here, sources are in order of score and name, targets of class and name. The
reference's detectors of anomalies also forget by time. Here, a row ends with a pass in which the node is not over or
has no usable metric.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from slacktide.schemas.inventory import LIVE_PHASES
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import CLASS_RANK, effective_priority_class, effective_qos
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_classify import (
    Amounts,
    LoadedNode,
    PlacedPod,
    Survey,
    View,
    ViewedNode,
    with_unit,
)

_KUBE_QOS_RANK = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
_QOS_RANK = {"BE": 0, "LS": 1, "LSR": 2, "LSE": 3, "SYSTEM": 3}
Rank: TypeAlias = tuple[object, ...]


def eviction_order(pods: Iterable[PlacedPod], excess: Amounts, weights: Mapping[str, int]) -> list[PlacedPod]:
    """Sort the pods of one node, first victim first. Ties are in order of namespace, name and UID.

    ``excess`` contains only resources above their high thresholds. An absent weight is 0.
    """

    def rank(placed: PlacedPod) -> Rank:
        pod = placed.pod
        return (
            not pod.borrowed,
            CLASS_RANK[effective_priority_class(pod)],
            pod.priority or 0,
            _KUBE_QOS_RANK.get(pod.kube_qos, _KUBE_QOS_RANK["Burstable"]),
            _QOS_RANK[effective_qos(pod.qos_label, pod.kube_qos)],
            placed.deletion_cost,
            placed.eviction_cost,
            placed.used is None,
            -usage_score(placed.used or {}, excess, weights),
            -placed.created_s,
            (pod.namespace, pod.name, pod.uid),
        )

    return sorted(pods, key=rank)


def usage_score(used: Amounts, excess: Amounts, weights: Mapping[str, int]) -> float:
    """Score how well a pod's usage covers the excess: best exactly, then more, then less.

    Return the weighted mean over the resources in both. Usage below the excess is 0 to 1, the exact excess is 2, and
    more usage falls from 2 towards 1.
    """
    counted = sorted(used.keys() & excess.keys())
    total = sum(weights.get(name, 0) for name in counted)
    if not total:
        return 0.0
    ratios = {name: float(used[name]) / float(excess[name]) for name in counted}
    covers = {name: ratio if ratio < 1 else 1 / ratio + 1 for name, ratio in ratios.items()}
    return sum(cover * weights.get(name, 0) for name, cover in covers.items()) / total


_Spare = dict[tuple[str, str], int]
"""A need or a node's room: a pod slot, and per resource the requested and used amounts."""
_PLACE = ("place", "")


class Targets:
    """The target nodes of one phase, in order. A placed pod keeps its room until the phase ends.

    A tree: each inner node holds its subtree's maximum per kind of room, so the search skips full subtrees.
    """

    def __init__(self, targets: Sequence[tuple[LoadedNode, View]], *, lands: bool = False) -> None:
        """Compute the current room; ``lands``: a placed pod also takes its requests and a slot."""
        self._lands = lands
        self._watched = tuple(dict.fromkeys(name for _, view in targets for name in view.limits.high))
        self._leaves = 1 << len(targets).bit_length()
        """The index of the first leaf. Leaves without a node have no room."""
        self._spare: list[_Spare] = [{} for _ in range(2 * self._leaves)]
        for at, (node, view) in enumerate(targets, self._leaves):
            self._spare[at] = _spare(node, view)
        for at in range(self._leaves - 1, 0, -1):
            self._sum_up(at)

    def take(self, pod: PlacedPod) -> bool:
        """Place the pod on the first target with room; return whether there is one. It needs a metric."""
        if pod.used is None:
            return False
        # Its requests, and its usage of all watched resources, even if 0.
        requested = {("requested", name): amount for name, amount in pod.requests.items()}
        need = {_PLACE: 1} | requested | {("used", name): pod.used.get(name, 0) for name in self._watched}
        at = found = self._first(1, need)
        if found:
            for kind, amount in need.items():
                if self._lands or kind[0] == "used":
                    self._spare[at][kind] = self._spare[at].get(kind, 0) - amount
            while at := at // 2:
                self._sum_up(at)
        return bool(found)

    def _first(self, at: int, need: _Spare) -> int:
        """Return the first leaf with room at or below ``at``; 0: none."""
        spare = self._spare[at]
        if any(amount > spare.get(kind, 0) for kind, amount in need.items()):
            return 0
        if at >= self._leaves:
            return at
        return self._first(2 * at, need) or self._first(2 * at + 1, need)

    def _sum_up(self, at: int) -> None:
        left, right = self._spare[2 * at], self._spare[2 * at + 1]
        self._spare[at] = {kind: max(left.get(kind, 0), right.get(kind, 0)) for kind in left | right}


def _spare(node: LoadedNode, view: View) -> _Spare:
    """Return the node's room. A target is always schedulable."""
    spare = {("requested", name): amount for name, amount in node.allocatable.items()}
    for pod in node.live_pods:
        for name, amount in pod.requests.items():
            spare["requested", name] = spare.get(("requested", name), 0) - amount
    used = {("used", name): limit - view.used[name] for name, limit in view.limits.high.items()}
    return spare | used | {_PLACE: node.pods_max - len(node.live_pods)}


Kind = Literal["whole", "prod"]
"""``whole``: all pods count. ``prod``: only production pods count and are evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulingPolicy:
    """Settings of a descheduling pass."""

    too_few_targets: int = 0
    """Act only if more nodes than this have room."""
    node_fit: bool = True
    """Evict only pods that fit a target."""
    lands: bool = False
    """A placed pod takes its requests and a slot from the next pod. In the reference it takes only its usage."""
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    consecutive_abnormalities: int = 5
    """Tolerated consecutive passes in which a node is over; 1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to evict from its node."""

    pod: PlacedPod
    node: str
    because_of_prod: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a phase, or of one of its sources."""

    evictions: tuple[Eviction, ...] = ()
    relieved: tuple[str, ...] = ()
    left: Amounts
    """The remaining budget."""
    because: tuple[Because, ...] = ()


def room(targets: Sequence[ViewedNode], kind: Kind, resources: Sequence[str]) -> dict[str, int]:
    """Sum the targets' room up to their high thresholds; negative if they are over."""
    views = [view_of(node, kind) for node in targets]
    return {name: sum(view.limits.high[name] - view.used[name] for view in views) for name in resources}


def view_of(node: ViewedNode, kind: Kind) -> View:
    """Return the node's view in a phase."""
    return node.prod if kind == "prod" else node.whole


def move(
    kind: Kind,
    sources: Sequence[ViewedNode],
    targets: Sequence[ViewedNode],
    budget: Amounts,
    policy: DeschedulingPolicy,
) -> Moved:
    """Evict pods from the sources, the most loaded first, ties by name, to targets in order of preference.

    ``budget``: the amount that may be moved, for every watched resource.
    """
    if not targets:
        return Moved(left=budget)
    viewed = [(node.node, view_of(node, kind)) for node in targets]
    places = Targets(viewed, lands=policy.lands) if policy.node_fit else None
    scored = [(load_score(node, kind, policy.weights), node) for node in sources]
    left, gave = budget, []
    for score, node in sorted(scored, key=lambda one: (-one[0], one[1].node.name)):
        gave.append(_relieve(kind, node, score, left, places, policy.weights))
        left = gave[-1].left
    return Moved(
        evictions=tuple(eviction for one in gave for eviction in one.evictions),
        relieved=tuple(name for one in gave for name in one.relieved),
        left=left,
        because=tuple(reason for one in gave for reason in one.because),
    )


def load_score(node: ViewedNode, kind: Kind, weights: Mapping[str, int]) -> int:
    """Return the weighted mean of used capacity over the watched resources, 0 to 1000."""
    used, capacity = view_of(node, kind).used, node.node.capacity
    total = sum(weights.get(name, 0) for name in used)
    if not total:
        return 0
    score = 0
    for name, amount in used.items():
        if of := capacity.get(name, 0):
            score += min(amount, of) * 1000 // of * weights.get(name, 0)
    return score // total


def _relieve(
    kind: Kind, source: ViewedNode, score: int, budget: Amounts, places: Targets | None, weights: Mapping[str, int]
) -> Moved:
    """Evict pods until the node is no longer over, the budget is spent, or no pod is left."""
    view, left = view_of(source, kind), budget
    candidates = [
        pod
        for pod in source.node.pods
        if pod.evictable and pod.pod.phase in LIVE_PHASES and (kind == "whole" or pod.is_prod)
    ]
    fitting = candidates
    if places is not None:  # The oldest are placed first in any list order.
        fitting = sorted(candidates, key=lambda one: (one.created_s, one.pod.namespace, one.pod.name, one.pod.uid))
        fitting = [pod for pod in fitting if places.take(pod)]
    removable = eviction_order(fitting, view.excess, weights)
    leaving: list[PlacedPod] = []
    stopped = "no_more_pods"
    for pod in removable:
        if not view.excess or not all(amount > 0 for amount in left.values()):
            stopped = "budget_spent" if view.excess else "relieved"
            break
        leaving.append(pod)
        # A pod without a metric changes neither usage nor budget.
        used = pod.used or {}
        view, left = view.minus(used), {name: amount - used.get(name, 0) for name, amount in left.items()}
    name = source.node.name
    terms: Terms = {
        "score": score,
        "candidate_pods": len(candidates),
        "removable_pods": len(removable),
        **{f"high_{with_unit(resource)}": limit for resource, limit in view.limits.high.items()},
        **{f"used_{with_unit(resource)}": used for resource, used in view.used.items()},
        **{f"budget_{with_unit(resource)}": amount for resource, amount in left.items()},
        "evicted_pods": len(leaving),
    }
    return Moved(
        evictions=tuple(Eviction(pod=pod, node=name, because_of_prod=kind == "prod") for pod in leaving),
        relieved=(name,) if stopped == "relieved" else (),
        left=left,
        because=(Because(of=f"{kind}/sources/{name}", bound=stopped, terms=terms),),
    )


Rows = Mapping[str, int]
"""Node -> consecutive passes in which it was over, including this one."""


def counted(before: Rows, over: Iterable[str]) -> dict[str, int]:
    """Return the rows after a pass. The rows of nodes that are not over end."""
    return {node: before.get(node, 0) + 1 for node in over}


def lasts(row: int, tolerated: int) -> bool:
    """Return whether a row is longer than tolerated. A tolerance of 1 means no wait."""
    return tolerated == 1 or row > tolerated


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """The rows of overloaded nodes in both views, which the next pass reads."""

    whole: Rows = field(default_factory=dict)
    prod: Rows = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descheduled:
    """The result of one pass: the victims in order, and the state for the next pass."""

    evictions: tuple[Eviction, ...]
    state: PassState
    rows: PassState
    """The state for the next pass if no eviction succeeds: the rows of relieved nodes continue."""
    because: tuple[Because, ...]
    """Each source's row, and the pass's result. If it acted, also the budgets, and why each source stopped."""


def deschedule(seen: Survey, policy: DeschedulingPolicy, before: PassState) -> Descheduled:
    """Run one pass over a survey. A relieved node starts a new row."""
    whole, prod = seen.classes["high"], seen.classes["prod_high"]
    rows = PassState(whole=counted(before.whole, _names(whole)), prod=counted(before.prod, _names(prod)))
    sources = _lasting(whole, rows.whole, policy)
    prod_sources = _lasting(prod, rows.prod, policy)
    because = [*_why_rows("whole", rows.whole, policy), *_why_rows("prod", rows.prod, policy)]
    terms: Terms = {
        "over_nodes": len(whole) + len(prod),
        "lasting_nodes": len(sources) + len(prod_sources),
        "too_few_nodes": policy.too_few_targets,
        "target_nodes": sum(len(seen.classes[name]) for name in ("low", "prod_low", "both_low")),
    }
    bound = ""
    if not terms["over_nodes"]:
        bound = "none_over"
    elif not terms["lasting_nodes"]:
        bound = "none_lasting"
    elif not terms["target_nodes"]:
        bound = "no_targets"
    elif terms["target_nodes"] <= terms["too_few_nodes"]:
        # Not all nodes can have room, because a source has none.
        bound = "too_few_targets"
    because.append(Because(of="pass", bound=bound or "acted", terms=terms))
    if bound:
        return Descheduled(evictions=(), state=rows, rows=rows, because=tuple(because))
    first, second = _phases(seen, sources, prod_sources, policy)
    return Descheduled(
        evictions=first.evictions + second.evictions,
        state=PassState(whole=_without(rows.whole, first.relieved), prod=_without(rows.prod, second.relieved)),
        rows=rows,
        because=(*because, *first.because, *second.because),
    )


def _phases(
    seen: Survey, sources: Sequence[ViewedNode], prod_sources: Sequence[ViewedNode], policy: DeschedulingPolicy
) -> tuple[Moved, Moved]:
    """Run the whole phase, then the production phase, which gets the room left on common targets."""
    low, prod_low, both_low = (seen.classes[name] for name in ("low", "prod_low", "both_low"))
    room_low, common = room(low, "whole", seen.resources), room(both_low, "whole", seen.resources)
    budget = {name: room_low[name] + common[name] for name in seen.resources}
    because = []
    for name in seen.resources:
        unit = with_unit(name)
        terms: Terms = {f"low_{unit}": room_low[name], f"both_low_{unit}": common[name], f"budget_{unit}": budget[name]}
        because.append(Because(of=f"whole/budget/{name}", bound="formula", terms=terms))
    first = move("whole", sources, [*low, *both_low], budget, policy)
    prod_room, common_prod = room(prod_low, "prod", seen.resources), room(both_low, "prod", seen.resources)
    prod_budget, prod_because = {}, []
    for name in seen.resources:
        unit = with_unit(name)
        left = min(common[name], first.left[name])  # what the whole phase left on common targets
        prod_budget[name] = prod_room[name] + min(common_prod[name], left)
        terms = {
            f"prod_low_{unit}": prod_room[name],
            f"both_low_prod_{unit}": common_prod[name],
            f"both_low_whole_{unit}": common[name],
            f"left_{unit}": first.left[name],
            f"budget_{unit}": prod_budget[name],
        }
        bound = "prod_room" if common_prod[name] <= left else "whole_room"
        prod_because.append(Because(of=f"prod/budget/{name}", bound=bound, terms=terms))
    second = move("prod", prod_sources, [*prod_low, *both_low], prod_budget, policy)
    return replace(first, because=(*because, *first.because)), replace(second, because=(*prod_because, *second.because))


def _names(nodes: Iterable[ViewedNode]) -> list[str]:
    return [node.node.name for node in nodes]


def _lasting(nodes: Iterable[ViewedNode], rows: Rows, policy: DeschedulingPolicy) -> list[ViewedNode]:
    return [node for node in nodes if lasts(rows[node.node.name], policy.consecutive_abnormalities)]


def _without(rows: Rows, relieved: Iterable[str]) -> Rows:
    ended = set(relieved)
    return {name: row for name, row in rows.items() if name not in ended}


def _why_rows(kind: Kind, rows: Rows, policy: DeschedulingPolicy) -> list[Because]:
    tolerated = policy.consecutive_abnormalities
    return [
        Because(
            of=f"nodes/{name}/{kind}/row",
            bound="lasting" if lasts(row, tolerated) else "waiting",
            terms={"tolerated_passes": tolerated, "row_passes": row},
        )
        for name, row in rows.items()
    ]
