"""Which nodes may take a pod, and which of them should: load-aware, and by what is left of batch or mid resource.

Load is judged by the core's rules (``load_aware_filter``, ``load_aware_score``). Slacktide's own beside them: a node
that is silent or has best-effort pods leave takes no new ones, what is published of batch and mid resource is counted
against what was placed since, and the node with most of it left is preferred (Koordinator v0.1: to machines with more
resources remaining in co-location).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slacktide.schemas.message import Terms
from slacktide.schemas.qos import effective_priority_class, is_best_effort
from slacktide.streams.decisions.extender_levels import levels
from slacktide.streams.decisions.load_aware_args import NOTHING, RESOURCES, Amounts, LoadAwareArgs
from slacktide.streams.decisions.load_aware_estimator import LoadAwarePod
from slacktide.streams.decisions.load_aware_filter import filter_pod
from slacktide.streams.decisions.load_aware_scheduling import Candidate, NodeState, candidate
from slacktide.streams.decisions.load_aware_score import Scored, score_pod

Tier = Literal["", "batch", "mid"]
LEAVES = ("mem_over_line", "evicting")
"""Pressure under which best-effort pods go: a new one would soon follow them."""
HELD_BACK = "cpu_suppressed"
"""Pressure under which they get less CPU than they asked for."""
SCORED = "scored"
WHOLE_PERMILLE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementArgs:
    """The operator's settings. Of both weights 0 no node is preferred."""

    load: LoadAwareArgs = field(default_factory=LoadAwareArgs)
    load_weight: int = 1
    """Of the load-aware score."""
    balance_weight: int = 1
    """Of what is left of batch or mid resource, for pods that ask for some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A pod that looks for a node."""

    candidate: Candidate
    best_effort: bool
    """It goes first when a node runs short: of class BE, or batch or free by its priority."""
    tier: Tier
    wanted: Amounts
    """What it asks for of the tier's resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What is known of a node as pods ask for it."""

    name: str
    state: NodeState
    silent: str = ""
    """Why its figures may not be true any more: ``stale``, ``frozen``; "": they are fresh."""
    expired: bool = False
    """They are so old that the core's rules do not go by them either."""
    pressure: Sequence[str] = ()
    batch_left: Amounts = NOTHING
    mid_left: Amounts = NOTHING

    def left(self, tier: Tier) -> Amounts:
        """Of a tier's resource, what nobody has asked for."""
        return self.batch_left if tier == "batch" else self.mid_left


class Refusal(NamedTuple):
    """Why a node does not take the pod."""

    reason: str
    preemptible: bool
    """Whether it would if other pods left."""


class Ranked(NamedTuple):
    """A node that would take the pod."""

    node: NodeView
    scored: Scored
    left: Amounts
    """Of the tier's resource, with the pod there."""
    most: Amounts
    """The same of the node that has most, per resource."""
    args: PlacementArgs
    balance_permille: int
    score_permille: int
    bound: str
    level: int

    @property
    def terms(self) -> Terms:
        """The numbers that were computed: the load's, what is left against what is most, the total last."""
        terms: Terms = {}
        for one in self.scored.because[: len(RESOURCES)]:
            terms |= one.terms
        for index, (_, unit) in enumerate(RESOURCES):
            if self.most[index]:
                terms |= {f"left_{unit}": self.left[index], f"most_left_{unit}": self.most[index]}
        return terms | {
            "load_score": self.scored.score,
            "load_weight": self.args.load_weight,
            "balance_permille": self.balance_permille,
            "balance_weight": self.args.balance_weight,
            "score_permille": self.score_permille,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What comes of one pod's question."""

    refused: dict[str, Refusal]
    """By node."""
    ranked: tuple[Ranked, ...]
    """The others, the best first; of equal ones by name."""


def asking(asked: LoadAwarePod, args: PlacementArgs) -> Asking:
    """What is to be known of a pod before any node is looked at."""
    requests = asked.pod.requests
    batch = Amounts(requests.batch_cpu_milli or 0, requests.batch_mem_bytes or 0)
    mid = Amounts(requests.mid_cpu_milli or 0, requests.mid_mem_bytes or 0)
    of_class = effective_priority_class(asked.pod)
    return Asking(
        candidate=candidate(asked, args.load),
        best_effort=is_best_effort(asked.pod) or of_class in {"koord-batch", "koord-free"},
        tier="batch" if any(batch) else "mid" if any(mid) else "",
        wanted=batch if any(batch) else mid,
    )


def choose(pod: Asking, nodes: Iterable[NodeView], args: PlacementArgs) -> Choice:
    """Ask each node, and rank those that would take the pod."""
    refused: dict[str, Refusal] = {}
    willing: list[NodeView] = []
    for node in nodes:
        refusal = refusal_of(pod, node, args)
        if refusal is None:
            willing.append(node)
        else:
            refused[node.name] = refusal
    return Choice(refused=refused, ranked=_ranked(pod, willing, args))


def refusal_of(pod: Asking, node: NodeView, args: PlacementArgs) -> Refusal | None:
    """Why a node does not take the pod; None: it would. A DaemonSet's pod goes to every node."""
    if pod.candidate.daemonset:
        return None
    if pod.best_effort or pod.tier:
        away = node.silent or next((one for one in LEAVES if one in node.pressure), "")
        if away:
            return Refusal(away, preemptible=False)
    gate = node.state.prod_gate if pod.candidate.prod else node.state.other_gate
    amounts = pod.candidate.estimate.amounts
    reason = filter_pod(amounts, gate, args.load, daemonset=False, stale=node.expired).reject_reason
    if reason is not None:
        return Refusal(reason, preemptible=False)
    if pod.tier:
        for (name, _), wanted, left in zip(RESOURCES, pod.wanted, node.left(pod.tier), strict=True):
            if wanted > left:
                return Refusal(f"{pod.tier}_short:{name}", preemptible=True)
    return None


def _ranked(pod: Asking, nodes: Sequence[NodeView], args: PlacementArgs) -> tuple[Ranked, ...]:
    lefts = [_left_with(pod, node) for node in nodes]
    most = Amounts(*(max(each, default=0) for each in zip(*lefts, strict=True))) if lefts else NOTHING
    ranked = [_scored(pod, node, left, most, args) for node, left in zip(nodes, lefts, strict=True)]
    told = levels([one.score_permille for one in ranked])
    leveled = [one._replace(level=level) for one, level in zip(ranked, told, strict=True)]
    return tuple(sorted(leveled, key=lambda one: (-one.score_permille, one.node.name)))


def _left_with(pod: Asking, node: NodeView) -> Amounts:
    """Of what the pod asks for of its tier; a DaemonSet's pod may find less than it asks for."""
    if not pod.tier:
        return NOTHING
    pairs = zip(node.left(pod.tier), pod.wanted, strict=True)
    return Amounts(*(max(0, left - wanted) if wanted else 0 for left, wanted in pairs))


def _scored(pod: Asking, node: NodeView, left: Amounts, most: Amounts, args: PlacementArgs) -> Ranked:
    """Load and balance weighed; nothing where the load is not known, or best-effort pods are held back."""
    scale = node.state.prod_scale if pod.candidate.prod else node.state.other_scale
    scored = score_pod(pod.candidate.estimate.amounts, scale, stale=False)
    bound = node.silent or scale.unknown
    if not bound and pod.best_effort and HELD_BACK in node.pressure:
        bound = HELD_BACK
    balance = min((have * WHOLE_PERMILLE // top for have, top in zip(left, most, strict=True) if top), default=0)
    balance_weight = args.balance_weight if pod.tier else 0
    weight = args.load_weight + balance_weight
    total = (scored.score * 10 * args.load_weight + balance * balance_weight) // weight if weight else 0
    return Ranked(node, scored, left, most, args, balance, 0 if bound else total, bound or SCORED, 0)
