"""Which nodes take a pod, and how they compare: by load, remaining resources, CPUs and zones. Slacktide's own."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Literal, NamedTuple

from slacktide.schemas.message import Terms
from slacktide.schemas.qos import effective_priority_class, is_best_effort
from slacktide.streams.decisions.cores.placement import (
    NO_CORES,
    CoresGiven,
    CoresPod,
    CoresRefusal,
    NodeCores,
    cores_of,
)
from slacktide.streams.decisions.load.extender_levels import levels
from slacktide.streams.decisions.load.load_aware_estimator import (
    NOTHING,
    RESOURCES,
    Amounts,
    LoadAwareArgs,
    LoadAwarePod,
)
from slacktide.streams.decisions.load.load_aware_scheduling import (
    Candidate,
    Check,
    NodeState,
    Scored,
    candidate,
    filter_pod,
    score_pod,
)
from slacktide.streams.decisions.numa.placement import (
    NodeZonesView,
    ZonedPod,
    ZonesGiven,
    ZonesRefusal,
    zones_given,
    zones_refusal,
    zones_score,
    zones_terms,
)
from slacktide.streams.decisions.numa.score import Strategy

Tier = Literal["", "batch", "mid", "free"]
LEAVES = ("mem_over_line", "evicting")
"""Pressure under which best-effort pods are evicted, including new ones."""
HELD_BACK = "cpu_suppressed"
"""Pressure under which best-effort pods get less CPU than requested."""
SCORED = "scored"
WHOLE_PERMILLE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementArgs:
    """The operator's settings. A score with weight 0 does not count."""

    load: LoadAwareArgs = field(default_factory=LoadAwareArgs)
    load_weight: int = 1
    balance_weight: int = 1
    """Weight of the remaining batch, mid or free resources, for pods that request some."""
    numa_weight: int = 1
    """Weight of the NUMA score, for Guaranteed pods, if any node has published its zones."""
    numa_strategy: Strategy = "LeastNUMANodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A pod to place."""

    candidate: Candidate
    best_effort: bool
    """Evicted first when a node is short: QoS class BE, or priority class batch or free."""
    tier: Tier
    wanted: Amounts
    zoned: ZonedPod | None = None
    cores: CoresPod | None = None

    @property
    def shape(self) -> Hashable:
        """Return what ``judge`` reads of the pod. Pods of one shape get the same result."""
        one = self.candidate
        of_load = one.estimate.amounts, one.prod, one.daemonset, self.best_effort
        return *of_load, self.tier, self.wanted, self.zoned, self.cores


class NodeView(NamedTuple):
    """A node's state for placement. A tuple, because a thousand are made each second."""

    name: str
    state: NodeState
    silent: str = ""
    """Why the node's data may be wrong: ``stale``, ``frozen``; "": fresh."""
    expired: bool = False
    """The data is too old for the core's rules as well."""
    pressure: Sequence[str] = ()
    batch_left: Amounts = NOTHING
    mid_left: Amounts = NOTHING
    free_left: Amounts = NOTHING
    zones: NodeZonesView | None = None
    """None: not published, or the kubelet's policy is unknown."""
    cores: NodeCores = NO_CORES

    def left(self, tier: Tier) -> Amounts:
        """Return the amounts of a tier's resource that no pod requests."""
        lefts: Mapping[Tier, Amounts] = {"batch": self.batch_left, "mid": self.mid_left, "free": self.free_left}
        return lefts.get(tier, NOTHING)


class Short(NamedTuple):
    """A tier's resource of which the node has too little left."""

    resource: int
    """Index in ``RESOURCES``."""
    wanted: int
    left: int


class Refusal(NamedTuple):
    """Why a node refuses the pod."""

    reason: str
    check: Check | None = None
    """The exceeded threshold, with its arithmetic. ``key`` and ``own`` are those of its ``Gate``."""
    key: str = ""
    own: bool = False
    short: Short | None = None
    zones: ZonesRefusal | None = None
    cores: CoresRefusal | None = None
    text: str = ""
    """Why, where the pod and not the node is the reason."""


class Willing(NamedTuple):
    """A node that accepts the pod, before the comparison. Flat, because each pod compares a thousand."""

    name: str
    load_score: int
    left_cpu_milli: int
    """Remaining amount of the tier's resource, after the pod."""
    left_mem_bytes: int
    bound: str
    """``scored``, or why the node's score is 0."""
    numa_score: int | None
    """0 to 100; None: zones do not count for this pod."""
    scored: Scored
    node: NodeView

    @property
    def left(self) -> Amounts:
        """Return the remaining amounts of the tier's resource, after the pod."""
        return Amounts(self.left_cpu_milli, self.left_mem_bytes)


Judged = Refusal | Willing


class Ranked(NamedTuple):
    """A node that accepts the pod, compared with the others."""

    willing: Willing
    most: Amounts
    """The largest remaining amount on any node, per resource."""
    args: PlacementArgs
    balance_permille: int
    score_permille: int
    level: int
    zones: ZonesGiven | None = None
    """The zones that the pod would get; None: not requested, or unknown."""
    cores: CoresGiven | CoresRefusal | None = None
    """None: the pod requests no CPUs for itself. Only a DaemonSet's pod may be refused them here."""

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.willing.name

    @property
    def bound(self) -> str:
        """Return ``scored``, or why the node's score is 0."""
        return self.willing.bound

    @property
    def terms(self) -> Terms:
        """Return the arithmetic: the load, the remaining and the largest amounts, then the total."""
        scored, left = self.willing.scored, self.willing.left
        terms: Terms = {}
        for one in scored.because[: len(RESOURCES)]:
            terms |= one.terms
        for index, (_, unit) in enumerate(RESOURCES):
            if self.most[index]:
                terms |= {f"left_{unit}": left[index], f"most_left_{unit}": self.most[index]}
        terms |= {
            "load_score": scored.score,
            "load_weight": self.args.load_weight,
            "balance_permille": self.balance_permille,
            "balance_weight": self.args.balance_weight,
        }
        terms |= {} if self.zones is None else zones_terms(self.zones)
        if isinstance(self.cores, CoresGiven):
            terms |= self.cores.terms
        if self.willing.numa_score is not None:
            terms |= {"numa_score": self.willing.numa_score, "numa_weight": self.args.numa_weight}
        return terms | {"score_permille": self.score_permille}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The result for one pod. Only nodes that are reported, five of a thousand, become ``Ranked``."""

    pod: Asking
    refused: Mapping[str, Refusal]
    willing: Sequence[Willing]
    """The other nodes. Each list below has one entry for each."""
    names: Sequence[str]
    most: Amounts
    balances: Sequence[int]
    scores: Sequence[int]
    levels: Sequence[int]
    args: PlacementArgs

    @property
    def ranked(self) -> tuple[Ranked, ...]:
        """Return all accepting nodes, the best first, ties by name."""
        return self.best(len(self.willing))

    def best(self, count: int) -> tuple[Ranked, ...]:
        """Return the ``count`` best nodes."""
        least = min(nlargest(count, self.scores), default=0)
        among = [index for index, score in enumerate(self.scores) if score >= least]
        among.sort(key=lambda index: (-self.scores[index], self.names[index]))
        args, pod, ranked = self.args, self.pod.zoned, []
        for index in among[:count]:
            willing, zones = self.willing[index], self.willing[index].node.zones
            given = None if zones is None or pod is None else zones_given(pod, zones, args.numa_strategy)
            cores = None if self.pod.cores is None else cores_of(self.pod.cores, willing.node.cores)
            rest = self.balances[index], self.scores[index], self.levels[index], given, cores
            ranked.append(Ranked(willing, self.most, args, *rest))
        return tuple(ranked)


def asking(asked: LoadAwarePod, args: PlacementArgs) -> Asking:
    """Compute what depends only on the pod."""
    requests = asked.pod.requests
    wanted: dict[Tier, Amounts] = {
        "batch": Amounts(requests.batch_cpu_milli or 0, requests.batch_mem_bytes or 0),
        "mid": Amounts(requests.mid_cpu_milli or 0, requests.mid_mem_bytes or 0),
        "free": Amounts(requests.free_cpu_milli or 0, requests.free_mem_bytes or 0),
    }
    tier: Tier = next((tier for tier, amounts in wanted.items() if any(amounts)), "")
    of_class = effective_priority_class(asked.pod)
    return Asking(
        candidate=candidate(asked, args.load),
        best_effort=is_best_effort(asked.pod) or of_class in {"koord-batch", "koord-free"},
        tier=tier,
        wanted=wanted.get(tier, NOTHING),
        zoned=asked.zoned,
        cores=asked.cores,
    )


def choose(pod: Asking, nodes: Iterable[NodeView], args: PlacementArgs) -> Choice:
    """Judge each node, and rank those that accept the pod."""
    judged = {node.name: judge(pod, node, args) for node in nodes}
    refused = {name: one for name, one in judged.items() if isinstance(one, Refusal)}
    return compare(pod, refused, [one for one in judged.values() if isinstance(one, Willing)], args)


def judge(pod: Asking, node: NodeView, args: PlacementArgs) -> Judged:
    """Judge one node. The result is valid for all pods of one shape until the node changes."""
    refusal = refusal_of(pod, node, args)
    if refusal is not None:
        return refusal
    _, scale = node.state.met_by(pod.candidate)
    bound = node.silent or scale.unknown
    if not bound and pod.best_effort and HELD_BACK in node.pressure:
        bound = HELD_BACK
    scored = score_pod(pod.candidate.estimate.amounts, scale, stale=False)
    left_cpu_milli = left_mem_bytes = 0
    if pod.tier:  # a DaemonSet's pod may request more than is left
        left, wanted = node.left(pod.tier), pod.wanted
        left_cpu_milli = max(0, left.cpu_milli - wanted.cpu_milli) if wanted.cpu_milli else 0
        left_mem_bytes = max(0, left.mem_bytes - wanted.mem_bytes) if wanted.mem_bytes else 0
    numa = None
    if pod.zoned is not None and node.zones is not None:
        numa = zones_score(pod.zoned, node.zones, args.numa_strategy)
    return Willing(node.name, scored.score, left_cpu_milli, left_mem_bytes, bound or SCORED, numa, scored, node)


def compare(pod: Asking, refused: Mapping[str, Refusal], willing: Sequence[Willing], args: PlacementArgs) -> Choice:
    """Rank the nodes that accept the pod."""
    names, _, cpus, mems, *_ = zip(*willing, strict=True) if willing else [()] * len(Willing._fields)
    most = Amounts(max(cpus, default=0), max(mems, default=0))
    balances, scores = _scored(pod, willing, most, args)
    best = max(scores, default=0)
    # The best node, ties by name. The pod counts there until it is bound.
    first = min((index for index, score in enumerate(scores) if score == best), key=names.__getitem__, default=None)
    return Choice(
        pod=pod,
        refused=refused,
        willing=willing,
        names=list(names),
        most=most,
        balances=balances,
        scores=scores,
        levels=levels(scores, first),
        args=args,
    )


def rescored(pod: Asking, willing: Willing, most: Amounts, args: PlacementArgs) -> int:
    """Return the score of a node that was judged again, in permille; ``most`` as when it was first compared."""
    return _scored(pod, [willing], most, args)[1][0]


def _scored(pod: Asking, willing: Sequence[Willing], most: Amounts, args: PlacementArgs) -> tuple[list[int], list[int]]:
    """Return a balance and a score for each node; ``most``: the largest remaining amounts."""
    _, loads, cpus, mems, bounds, numas, *_ = zip(*willing, strict=True) if willing else [()] * len(Willing._fields)
    balances = _balances((cpus, mems), most)
    nodes = zip(loads, balances, bounds, strict=True)
    load_weight, balance_weight = 10 * args.load_weight, args.balance_weight if pod.tier else 0
    weight = max(1, args.load_weight + balance_weight)
    scores = [
        (load * load_weight + balance * balance_weight) // weight if bound == SCORED else 0
        for load, balance, bound in nodes
    ]
    if pod.zoned is not None and any(numa is not None for numa in numas):
        scores = _with_zones(pod, scores, zip(numas, bounds, strict=True), args)
    return balances, scores


def refusal_of(pod: Asking, node: NodeView, args: PlacementArgs) -> Refusal | None:
    """Return why a node refuses the pod, if it does. No node refuses a DaemonSet's pod."""
    if pod.candidate.daemonset:
        return None
    if pod.best_effort or pod.tier:
        away = node.silent or (next((one for one in LEAVES if one in node.pressure), "") if node.pressure else "")
        if away:
            return Refusal(away)
    gate, _ = node.state.met_by(pod.candidate)
    amounts = pod.candidate.estimate.amounts
    filtered = filter_pod(amounts, gate, args.load, daemonset=False, stale=node.expired)
    if filtered.reject_reason is not None:
        check = filtered.checks[-1] if filtered.checks else None
        return Refusal(filtered.reject_reason, check=check, key=gate.key, own=gate.own)
    return _short_of(pod, node, args)


def _short_of(pod: Asking, node: NodeView, args: PlacementArgs) -> Refusal | None:
    """Return why the node's remaining resources, its CPUs or its zones are too small, if they are."""
    if pod.tier:
        for resource, (wanted, left) in enumerate(zip(pod.wanted, node.left(pod.tier), strict=True)):
            if wanted > left:
                reason = f"{pod.tier}_short:{RESOURCES[resource].name}"
                return Refusal(reason, short=Short(resource, wanted, left))
    if pod.cores is not None and isinstance(cores := cores_of(pod.cores, node.cores), CoresRefusal):
        return Refusal(cores.reason, cores=cores)
    if pod.zoned is None or node.zones is None:
        return None
    zones = zones_refusal(pod.zoned, node.zones, args.numa_strategy)
    return None if zones is None else Refusal(zones.reason, zones=zones)


def _with_zones(
    pod: Asking, scores: Sequence[int], nodes: Iterable[tuple[int | None, str]], args: PlacementArgs
) -> list[int]:
    """Add the weighted NUMA score, which is 0 for a node without published zones."""
    weight = args.load_weight + (args.balance_weight if pod.tier else 0)
    both = max(1, weight + args.numa_weight)
    return [
        (score * weight + 10 * (numa or 0) * args.numa_weight) // both if bound == SCORED else 0
        for score, (numa, bound) in zip(scores, nodes, strict=True)
    ]


def _balances(lefts: Iterable[Sequence[int]], most: Amounts) -> list[int]:
    """Divide the remaining by the largest amount, of the scarcer resource, in permille; 0 without requests."""
    cpus, mems = (
        [left * WHOLE_PERMILLE // top for left in of_nodes] if top else [WHOLE_PERMILLE] * len(of_nodes)
        for of_nodes, top in zip(lefts, most, strict=True)
    )
    if not any(most):
        return [0] * len(cpus)
    return [cpu if cpu < mem else mem for cpu, mem in zip(cpus, mems, strict=True)]  # noqa: FURB136 - faster
