"""Computes the batch, mid and free allocatable of many nodes, as the scalar rules do.

The inputs of a node beside its averages are integers, built once per pod list and policy: its ``OfferInputs``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.score import NOTHING
from slacktide.schemas.third_party import ANNOTATION
from slacktide.streams.columns.numbers import sums
from slacktide.streams.columns.rings import Ints
from slacktide.streams.decisions.known_pods import POD, KnownPod, KnownPods, PodName, row_of
from slacktide.streams.decisions.prediction.mid_forecast import MidForecast
from slacktide.streams.decisions.resources.batch_resource import Capacity, cpu_policy
from slacktide.streams.decisions.resources.mid_resource import STATIC
from slacktide.streams.decisions.resources.node_load import node_reserved

USAGE, REQUEST, LARGER = range(3)
_POLICIES: Final[Mapping[str, int]] = {"request": REQUEST, "maxUsageRequest": LARGER}
_PERCENT_MAX: Final = 1_000
_NEXT_POD: Final = b',{"uid":'
"""Where the next pod's template begins. JSON texts have no unescaped quotes."""
_EXACT: Final = 1 << 53
"""The scalar rules handle larger amounts."""


@dataclass(slots=True, eq=False)
class OfferInputs:
    """The inputs of one node. Valid while names, pods, facts, policy and forecast are the same objects."""

    names: Sequence[PodName]
    pods: KnownPods
    facts: NodeFacts
    policy: Policy
    forecast: MidForecast
    plain: bool
    """Whether arrays can compute the reclaimed resources; otherwise the scalar rules do."""
    strategy: Ints
    """int64 [21]; undefined where not ``plain``.

    CPU in millicores and memory in bytes of capacity, margin and reservation; the policies for both; the percentage of
    unallocated resources for mid; then pairs again: the cap of mid, what production pods request, what batch and mid
    pods have requested, what is reclaimable, and what free pods have requested.
    """
    offers_free: bool
    each: Ints
    """int64 [pods, 6], in order of ``names``: see ``known_pods.POD``."""
    pods_line: bytes
    """The pods of a NodeMetric, as a template of their figures; b"": none."""
    lines: dict[object, Sequence[bytes]] = field(default_factory=dict)
    """Templates of records; that of a NodeMetric is split where its pods belong."""

    def holds(
        self, names: Sequence[PodName], pods: KnownPods, facts: NodeFacts, policy: Policy, forecast: MidForecast
    ) -> bool:
        """Check whether it was built from these objects."""
        same = self.names is names and self.pods is pods and self.facts is facts and self.policy is policy
        return same and self.forecast is forecast


def offer_inputs(
    names: Sequence[PodName],
    pods: KnownPods,
    facts: NodeFacts,
    policy: Policy,
    forecast: MidForecast,
    pod_line: Callable[[PodName], bytes],
    before: OfferInputs | None,
) -> OfferInputs:
    """Build a node's inputs; ``before``: those before, whose templates are reused."""
    colocation = colocation_on(policy, facts)
    strategy = _strategy(pods, facts, colocation, forecast)
    exact = max(map(abs, strategy)) < _EXACT
    known = [pods.by_uid.get(name.uid) for name in names]
    listed = len(names) - known.count(None) == len(pods.by_uid) or pods.there | pods.live <= {one.uid for one in names}
    return OfferInputs(
        names=names,
        pods=pods,
        facts=facts,
        policy=policy,
        forecast=forecast,
        plain=_plain(colocation, pods, facts)
        and ANNOTATION not in facts.annotations
        and listed
        and not pods.exclusive
        and exact,
        strategy=np.array(strategy if exact else (0,) * len(strategy), np.int64),
        offers_free=colocation.free_class_enable,
        each=np.frombuffer(b"".join(map(_row, names, known)), np.int64).reshape(len(names), len(POD)),
        pods_line=_pods_line(names, pod_line, before),
    )


def _row(name: PodName, pod: KnownPod | None) -> bytes:
    """Return a pod's row of ``OfferInputs.each``; ``pod``: as the list has it."""
    if pod is None:
        return row_of(name.priority_class, there=False, live=False, lse=False, request=(0, 0))
    kind = pod.kind
    if name is pod.name:
        return kind.row
    request = kind.cpu_milli, kind.mem_bytes
    return row_of(name.priority_class, there=kind.there, live=kind.live, lse=kind.lse, request=request)


def _pods_line(names: Sequence[PodName], pod_line: Callable[[PodName], bytes], before: OfferInputs | None) -> bytes:
    """Build ``OfferInputs.pods_line`` from the lines of unchanged pods.

    Compares identities: reading the objects would miss the processor's cache.
    """
    had: dict[int, bytes] = {}
    if before is not None:
        had = dict(zip(map(id, before.names), (b"," + before.pods_line).split(_NEXT_POD)[1:], strict=True))
    lines = [had.get(id(name)) or pod_line(name).removeprefix(_NEXT_POD[1:]) for name in names]
    return _NEXT_POD.join((b"", *lines))[1:]


def _plain(colocation: Colocation, pods: KnownPods, facts: NodeFacts) -> bool:
    capped = colocation.batch_cpu_threshold_pct is not None or colocation.batch_mem_threshold_pct is not None
    dynamic = colocation.mid_reclaim_mode != STATIC and colocation.mid_unallocated_pct <= _PERCENT_MAX
    within = max(colocation.cpu_reclaim_threshold_pct, colocation.mem_reclaim_threshold_pct) <= 100
    within &= max(colocation.mid_cpu_threshold_pct, colocation.mid_mem_threshold_pct) <= 100
    only_floored = not colocation.free_class_enable and pods.free_asked != NOTHING
    # The floor is cut at the capacity.
    limits = facts.capacity.cpu_milli or 0, facts.capacity.mem_bytes or 0
    fit = all(asked <= limit for asked, limit in zip(pods.asked.values(), limits * 3, strict=True))
    return colocation.enable and dynamic and within and not capped and not only_floored and fit


def _strategy(pods: KnownPods, facts: NodeFacts, colocation: Colocation, forecast: MidForecast) -> tuple[int, ...]:
    asked = tuple(pods.asked.values())
    cpu, mem, reserved = facts.capacity.cpu_milli or 0, facts.capacity.mem_bytes or 0, node_reserved(facts)
    return (
        cpu,
        mem,
        Capacity(cpu, colocation.cpu_reclaim_threshold_pct, None).margin,
        Capacity(mem, colocation.mem_reclaim_threshold_pct, None).margin,
        reserved.cpu_milli or 0,
        reserved.mem_bytes or 0,
        _POLICIES.get(cpu_policy(colocation), USAGE),
        _POLICIES.get(colocation.mem_calculate_policy, USAGE),
        colocation.mid_unallocated_pct,
        int(cpu * (colocation.mid_cpu_threshold_pct / 100)),
        int(mem * (colocation.mid_mem_threshold_pct / 100)),
        pods.prod_request.cpu_milli,
        pods.prod_request.mem_bytes,
        *asked[:4],
        forecast.reclaimable.cpu_milli,
        forecast.reclaimable.mem_bytes,
        *asked[4:],
    )


BATCH_TERMS = ("capacity", "margin", "system", "reserved", "system_or_reserved", "high_priority", "available", "batch")
MID_TERMS = (
    "capacity",
    "reclaimable",
    "unused",
    "base",
    "system_or_reserved",
    "prod_request",
    "unallocated",
    "unallocated_pct",
    "unallocated_part",
    "cap",
    "mid",
)


FREE_TERMS = (*BATCH_TERMS[:-1], "batch_used", "free")


class Offered(NamedTuple):
    """Results of each node, int64. Pairs are CPU in millicores and memory in bytes."""

    figures: Ints
    """[n, 6]: batch, mid, then free, at least what is requested."""
    offered: Ints
    """[n, 6]: the same without that minimum."""
    batch_terms: Ints
    """[n, 2, 8]: of CPU and memory, in order of ``BATCH_TERMS``."""
    mid_terms: Ints
    """[n, 2, 11]: in order of ``MID_TERMS``."""
    free_terms: Ints
    """[n, 2, 9]: also where no free resources are published."""
    asked: Ints
    """[n, 6]: requested by batch, mid, then free pods."""
    prod_use: Ints
    """[n, 2]"""


def offered(offers: Sequence[OfferInputs], own: Ints, pods: Ints, counts: Ints) -> Offered:
    """Compute the batch, mid and free allocatable of plain nodes.

    ``own``: int64 [n, 2, 2]: average use of the node, then of its system. ``pods``: int64 [N, 2]: average use of all
    pods, node by node, in order of ``OfferInputs.names``.
    """
    strategy = np.concatenate([offer.strategy for offer in offers]).reshape(len(offers), -1)
    capacity, margin, reserved, policy = (strategy[:, column : column + 2] for column in (0, 2, 4, 6))
    high, lse, prod, batch, *request = np.concatenate([offer.each for offer in offers]).T
    taken, used = _taken(policy, pods, counts, high[:, None], lse, np.stack(request, 1))
    system = own[:, 1]
    larger = np.maximum(system, reserved)
    kept = np.where(policy == REQUEST, reserved, larger)
    left = capacity - margin - kept - taken
    of_batch = np.stack([capacity, margin, system, reserved, kept, taken, left, np.maximum(left, 0)], 2)
    mid = _mid(strategy, capacity - own[:, 0], larger)
    batch_used = sums(pods * batch[:, None], counts)
    idle = capacity - margin - larger - used
    terms = capacity, margin, system, reserved, larger, used, idle, batch_used, np.maximum(idle - batch_used, 0)
    free = np.stack(terms, 2)
    offers_free = np.array([[offer.offers_free] for offer in offers])
    figures = np.concatenate([of_batch[:, :, -1], mid[:, :, -1], np.where(offers_free, free[:, :, -1], 0)], 1)
    asked = strategy[:, [13, 14, 15, 16, 19, 20]]
    prod_use = sums(pods * prod[:, None], counts)
    return Offered(np.maximum(figures, asked), figures, of_batch, mid, free, asked, prod_use)


def _taken(policy: Ints, pods: Ints, counts: Ints, high: Ints, lse: Ints, request: Ints) -> tuple[Ints, Ints]:
    """Return what pods with precedence over batch take: by each node's ``policy``, and by use; int64 [n, 2]."""
    used = pods * high
    by_use = used.copy()
    by_use[:, 0] = np.where(lse, request[:, 0], used[:, 0])
    taken = sums(by_use, counts)
    if (policy == USAGE).all():
        return taken, taken
    other = [sums(request, counts), sums(np.maximum(request, used), counts)]
    return np.select([policy == REQUEST, policy == LARGER], other, taken), taken


def _mid(strategy: Ints, unused: Ints, kept: Ints) -> Ints:
    capacity, cap, prod_request, reclaimable = (strategy[:, column : column + 2] for column in (0, 9, 11, 17))
    percent = np.broadcast_to(strategy[:, 8:9], capacity.shape)
    base = np.maximum(0, np.minimum(reclaimable, unused))
    unallocated = np.maximum(0, capacity - kept - prod_request)
    part = (unallocated * (percent / 100)).astype(np.int64)
    mid = np.minimum(base + part, cap)
    terms = capacity, reclaimable, unused, base, kept, prod_request, unallocated, percent, part, cap, mid
    found: Ints = np.stack(terms, 2)
    return found
