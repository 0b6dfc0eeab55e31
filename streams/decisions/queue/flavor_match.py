"""What the nodes of a flavor accept and give: pods by labels and taints, all pods at once, and quota.

``matches`` follows kueue v0.19.2, pkg/scheduler/flavorassigner/flavorassigner.go, checkFlavorForPodSets. The rest is no
rule of Kueue. ``Room`` (gang scheduling) places pods first-fit, also those of workloads that hold quota. So it
approximates the scheduler without its preferences. Quota as a share of a flavor's batch allocatable is damped: it grows
slowly and shrinks after a delay. It applies only with the annotation. For Kueue, only ``nominalQuota`` of batch
resources changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import CaseError, QuantityError, TextError
from slacktide.schemas.queue import OfferedSpec
from slacktide.schemas.text import integer_of, shown
from slacktide.schemas.units import quantity
from slacktide.streams.decisions.queue.job import Toleration

QUOTA_OF = "slacktide.io/quota-of"
QUOTA_PERCENT = "slacktide.io/quota-percent"
BATCH = "batch"
GROW_PERCENT = 10
"""Of batch allocatable per minute."""
LINE_PERCENT = 10
"""A quota does not shrink while batch allocatable is at most this percentage below it."""
SHRINK_MS = 120_000
"""How long batch allocatable must be below that limit before the quota shrinks."""
CPU = frozenset({"cpu", "kubernetes.io/batch-cpu"})
MEMORY = frozenset({"memory", "kubernetes.io/batch-memory"})


class Damped(NamedTuple):
    """One damped amount of a flavor."""

    amount: int
    at_ms: int
    below_ms: int | None = None
    """Since when batch allocatable is below the limit; None: it is not."""
    below_max: int = 0
    """Maximum of batch allocatable since then."""


def damped(before: Damped, offered: int, now_ms: int) -> Damped:
    """Return the damped amount at ``now_ms``; CPU in millicores, or memory in bytes."""
    amount = before.amount
    if offered >= amount:
        step = max(1, offered * GROW_PERCENT * (now_ms - before.at_ms) // 6_000_000)
        return Damped(min(offered, amount + step), now_ms)
    if offered * 100 >= amount * (100 - LINE_PERCENT):
        return Damped(amount, now_ms)
    since = now_ms if before.below_ms is None else before.below_ms
    most = offered if before.below_ms is None else max(offered, before.below_max)
    if now_ms - since >= SHRINK_MS:
        return Damped(most, now_ms)
    return Damped(amount, now_ms, since, most)


def quota_percent(annotations: Mapping[str, str], of: str) -> int | None:
    """Return an object's percentage; None if its quotas are its own. Raises CaseError if an annotation is invalid."""
    kind = annotations.get(QUOTA_OF)
    if kind is None:
        return None
    if kind != BATCH:
        raise CaseError(f"{of}: metadata.annotations[{QUOTA_OF}]", f"{shown(kind)}; accepted: {BATCH}")
    text = annotations.get(QUOTA_PERCENT, "100")
    if not text.isascii() or not text.isdecimal() or not 0 <= int(text[:5]) <= 1_000 or len(text) > 5:
        raise CaseError(f"{of}: metadata.annotations[{QUOTA_PERCENT}]", f"{shown(text)}; accepted: 0 to 1000")
    return int(text)


def offered_nominal(resource: str, offered: OfferedSpec | None, percent: int) -> int | None:
    """Return the nominal quota, rounded down; 0 if batch allocatable is unknown, None for other resources."""
    if resource in CPU:
        return 0 if offered is None else offered.cpu_milli * percent // 100
    if resource in MEMORY:
        return 0 if offered is None else offered.memory_bytes * percent // 100
    return None


Json = dict[str, Any]


def effective_groups(
    groups: Sequence[Json], annotations: Mapping[str, str], offered: Mapping[str, OfferedSpec], of: str
) -> list[Json] | None:
    """Return the current resource groups; None if the ClusterQueue does not opt in.

    ``offered``: damped batch allocatable by flavor. An unknown flavor keeps its quotas. Raises CaseError if an
    annotation is invalid; ``of`` names the ClusterQueue.
    """
    percent = quota_percent(annotations, of)
    if percent is None:
        return None

    def resource(flavor: str, one: Json) -> Json:
        share = offered_nominal(one["name"], offered[flavor], percent) if flavor in offered else None
        if share is None:
            return one
        text, before = f"{share}m" if one["name"] == "cpu" else str(share), one.get("nominalQuota", 0)
        try:
            equal = quantity(before) == quantity(text)
        except QuantityError:
            equal = False
        return one | {"nominalQuota": before if equal else text}  # ``1`` and ``1000m`` are equal

    return [
        group | {
            "flavors": [
                flavor | {"resources": [resource(flavor["name"], one) for one in flavor["resources"]]}
                for flavor in group["flavors"]
            ]
        }
        for group in groups
    ]  # fmt: skip


KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class Taint(NamedTuple):
    """A taint of a flavor's nodes."""

    key: str
    value: str = ""
    effect: str = ""


class Expression(NamedTuple):
    """A required value of one node label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeFlavor(NamedTuple):
    """A ResourceFlavor."""

    node_labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class NodeNeeds(NamedTuple):
    """A pod's constraints on nodes."""

    selector: Mapping[str, str] = {}
    affinity: tuple[tuple[Expression, ...], ...] = ()
    """Terms, of which one must match."""
    tolerations: tuple[Toleration, ...] = ()


def matches(needs: NodeNeeds, flavor: NodeFlavor) -> bool:
    """Return whether the pods match the flavor. Labels that it does not have exclude nothing."""
    labels = flavor.node_labels
    tolerations = (*needs.tolerations, *flavor.tolerations)

    def tolerated(taint: Taint) -> bool:
        return any(
            one.effect in {"", taint.effect}
            and one.key in {"", taint.key}
            and (one.operator == "Exists" or (one.operator in {"", "Equal"} and one.value == taint.value))
            for one in tolerations
        )

    if not all(tolerated(taint) for taint in flavor.taints if taint.effect in KEEPS_AWAY):
        return False
    if any(labels.get(key, value) != value for key, value in needs.selector.items()):
        return False
    terms = [[one for one in term if one.key in labels] for term in needs.affinity]
    return not terms or any(all(_holds(one, labels[one.key]) for one in term) for term in terms)


def _holds(one: Expression, value: str) -> bool:
    if one.operator in {"In", "NotIn"}:
        return (value in one.values) == (one.operator == "In")
    if one.operator in {"Gt", "Lt"}:
        try:
            left, right = integer_of(value, where=one.key), integer_of(one.values[0], where=one.key)
        except (TextError, IndexError):
            return False
        return left > right if one.operator == "Gt" else left < right
    return one.operator == "Exists"


NO_ROOM = "NoRoomForAllPods"
"""The quota suffices, but the nodes have no room for all pods at once."""


class PodGroup(NamedTuple):
    """Identical pods on nodes of one flavor."""

    flavor: str
    pods: int
    cpu_milli: int
    memory_bytes: int


class _Put(NamedTuple):
    flavor: str
    node: int
    cpu_milli: int
    memory_bytes: int


def pod_groups(pods: int, flavors: Mapping[str, str], usage: Mapping[str, int]) -> list[PodGroup]:
    """Group the pods of a pod set by flavor; ``usage`` is their total by resource."""
    if not pods:
        return []
    sums: dict[str, tuple[int, int]] = {}
    for resource, flavor in flavors.items():
        cpu, memory = sums.get(flavor, (0, 0))
        each = -(-usage.get(resource, 0) // pods)
        sums[flavor] = cpu + each * (resource in CPU), memory + each * (resource in MEMORY)
    return [PodGroup(flavor, pods, cpu, memory) for flavor, (cpu, memory) in sorted(sums.items())]


class Room:
    """Free capacity of each node: CPU in millicores, memory in bytes. Flavors without known nodes always have room."""

    def __init__(self, sizes: Mapping[str, Iterable[Sequence[int]]]) -> None:
        self._free = {flavor: [[int(one[0]), int(one[1])] for one in nodes] for flavor, nodes in sizes.items()}
        self._put: dict[str, list[_Put]] = {}

    def fits(self, groups: Iterable[PodGroup]) -> bool:
        """Return whether all pods fit at once."""
        put, whole = self._placed(groups)
        self._book(put, 1)
        return whole

    def take(self, uid: str, groups: Iterable[PodGroup]) -> None:
        """Place those pods of an admitted workload that fit."""
        self.give(uid)
        put, _ = self._placed(groups)
        if put:
            self._put[uid] = put

    def give(self, uid: str) -> None:
        """Remove the pods of a workload that released its quota."""
        self._book(self._put.pop(uid, ()), 1)

    def _placed(self, groups: Iterable[PodGroup]) -> tuple[list[_Put], bool]:
        put: list[_Put] = []
        whole = True
        for one in groups:
            nodes, left = self._free.get(one.flavor), one.pods
            if nodes is None or not (one.cpu_milli or one.memory_bytes):
                continue
            for at, (cpu, memory) in enumerate(nodes):
                count = min(left, _times(cpu, one.cpu_milli), _times(memory, one.memory_bytes))
                if count > 0:
                    put.append(_Put(one.flavor, at, count * one.cpu_milli, count * one.memory_bytes))
                    self._book(put[-1:], -1)
                    left -= count
                if not left:
                    break
            whole = whole and not left
        return put, whole

    def _book(self, put: Iterable[_Put], sign: int) -> None:
        for one in put:
            node = self._free[one.flavor][one.node]
            node[0] += sign * one.cpu_milli
            node[1] += sign * one.memory_bytes


def _times(free: int, each: int) -> int:
    """Return how often a request fits; without a request, without limit."""
    return free // each if each else INT32_MAX
