"""Decides which of the computed resources a Node gets, and when they are written.

Published resources stay at or above the requests of live pods. When the kubelet restarts, it checks running pods
against allocatable again. It fails them if allocatable is removed or below their requests. The floor admits no new pod,
because live pods already hold it. They also stay within the node's capacity, whatever pods request: a kubelet admits
a pod that was bound to its node by hand while the node has no such resource yet. A percentage above 100, such as
``cpuReclaimThresholdPercent``, would offer more. No node can give that, and the kubelet divides it among pods as if it
could. The reference has neither limit. Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins: util,
IsResourceDiff; batchresource/plugin.go, prepareNodeForBatch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.message import Terms
from slacktide.schemas.units import decimal
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.known_pods import REQUEST_FIELDS, known


class Floored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Amounts by field of ``Resources``; None: the resource is removed from the node."""

    figures: dict[str, int | None]
    because: tuple[Because, ...]


def published_floor(
    figures: Mapping[str, int | None], pods: Sequence[Pod], capacity: Resources | None = None
) -> Floored:
    """Raise each amount to the total request of the node's live pods.

    ``figures``: by field of ``Resources``; None: nothing to publish (stale, degraded or disabled). ``capacity``: of the
    node, which is the highest floor; None: unknown.
    """
    asked, reasons = known(pods).asked, []
    for field in REQUEST_FIELDS:
        if field in figures:
            figure, floor = figures[field], asked[field]
            if capacity is not None:
                floor = min(floor, (capacity.cpu_milli if field.endswith("milli") else capacity.mem_bytes) or 0)
            terms: Terms = {} if figure is None else {"figure": figure}
            terms["floor"] = floor
            if figure is not None or floor:
                terms["published"] = max(figure or 0, floor)
            reasons.append(floor_because(field, terms))
    because = tuple(reasons)
    kept = {one.of: None if one.bound == "removed" else int(one.terms["published"]) for one in because}
    return Floored(figures=kept, because=because)


def floor_because(of: str, terms: Terms) -> Because:
    """Build the reason from computed or recorded terms."""
    if "published" not in terms:
        return Because(of=of, bound="removed", terms=terms)
    return Because(of=of, bound="floored" if terms["floor"] > terms.get("figure", 0) else "formula", terms=terms)


def within_capacity(of: str, amount: int, terms: Terms, capacity: int) -> tuple[int, Terms]:
    """Return the amount and its arithmetic, in which the capacity is the cap if it is the lowest one.

    ``of``: a field such as ``batch_cpu_milli``.
    """
    if amount <= capacity:
        return amount, terms
    unit = "milli" if of.endswith("milli") else "bytes"
    cap, result = f"cap_{unit}", f"{of.partition('_')[0]}_{unit}"
    parts = {name: value for name, value in terms.items() if name not in {cap, result}}
    return capacity, {**parts, cap: capacity, result: capacity}


DIFF_THRESHOLD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One resource as published and as computed; None: absent."""

    of: str
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncDecision:
    """Whether to write, and the arithmetic of each resource."""

    need_sync: bool
    because: tuple[Because, ...]


def resource_sync_decision(pairs: Iterable[Pair], diff_threshold: float = DIFF_THRESHOLD) -> SyncDecision:
    """Write if a resource of a tier appeared, disappeared, or changed by more than a fraction of the old amount."""
    because = []
    for pair in pairs:
        old, new = pair.old, pair.new
        if old is None or new is None:
            terms: Terms = {name: value for name, value in (("old", old), ("new", new)) if value is not None}
            bound = "absent" if old is new else "appeared" if old is None else "gone"
        else:
            # The reference compares quantities in thousandths, as doubles.
            moved, allowed = abs(float(new * 1000 - old * 1000)), old * 1000 * diff_threshold
            terms = {"old": old, "new": new, "diff_threshold": diff_threshold}
            terms |= {"moved_thousandths": moved, "allowed_thousandths": allowed}
            bound = "moved" if moved > allowed else "within"
        because.append(Because(of=pair.of, bound=bound, terms=terms))
    need_sync = any(one.bound in {"appeared", "gone", "moved"} for one in because)
    return SyncDecision(need_sync=need_sync, because=tuple(because))


NONE = Resources(batch_cpu_milli=0, batch_mem_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Resources of a priority class that another scheduler allocated."""

    priority_class: str
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Batch CPU in millicores and memory in bytes, each with its arithmetic (CPU first)."""

    allocatable: Resources | None
    """For the Node's capacity and allocatable; None: both resources are removed."""
    origin: Resources
    """For the annotation: the amounts before the subtraction of third-party allocations."""
    because: tuple[Because, Because]


def batch_resource_publish(
    calculated: Resources | None, ratio: str | None, third_party: Sequence[Allocation] | None
) -> Published:
    """Amplify CPU by the node's normalization ratio, then subtract third-party allocations from CPU and memory.

    ``calculated`` None: the node is degraded or reset. ``ratio``: annotation
    node.koordinator.sh/cpu-normalization-ratio; ignored unless it is a decimal above 1. ``third_party``: allocations of
    other schedulers.
    """
    if calculated is None:
        cpu, mem = (Because(of=of, bound="degraded", terms={}) for of in ("batch_cpu_milli", "batch_memory_bytes"))
        return Published(allocatable=None, origin=NONE, because=(cpu, mem))
    given = [one.resources for one in third_party or () if one.priority_class == "koord-batch"]
    given_milli, given_bytes = (sum(getattr(one, field) or 0 for one in given) for field in REQUEST_FIELDS[:2])
    factor, calculated_milli = None if ratio is None else decimal(ratio), calculated.batch_cpu_milli or 0
    if factor is not None and 1 < factor < math.inf:
        # Thousandths of millicores, truncated, then rounded up: the reference amplifies a quantity's milli value.
        cpu = _less("batch_cpu_milli", "milli", -(-int(calculated_milli * 1000 * factor) // 1000), given_milli)
        terms: Terms = {"calculated_milli": calculated_milli, "normalization_ratio": factor} | cpu.terms
        bound = "amplified" if cpu.bound == "formula" else cpu.bound
        cpu = Because(of=cpu.of, bound=bound, terms=terms, adds=cpu.adds)
    else:
        cpu = _less("batch_cpu_milli", "milli", calculated_milli, given_milli)
    mem = _less("batch_memory_bytes", "bytes", calculated.batch_mem_bytes or 0, given_bytes)
    published, origin = (
        Resources(batch_cpu_milli=int(cpu.terms[f"{of}_milli"]), batch_mem_bytes=int(mem.terms[f"{of}_bytes"]))
        for of in ("published", "origin")
    )
    return Published(allocatable=published, origin=origin, because=(cpu, mem))


def _less(of: str, unit: str, origin: int, given_away: int) -> Because:
    left = origin - given_away
    terms: Terms = {f"origin_{unit}": origin, f"third_party_{unit}": given_away, f"published_{unit}": max(0, left)}
    adds = (f"+origin_{unit}", f"-third_party_{unit}")
    return Because(of=of, bound="formula" if left >= 0 else "exhausted", terms=terms, adds=adds)
