"""Whether and what to write to a Node's batch, mid and free resources: one status patch for all.

Source: koordinator a7a1b76b, pkg/slo-controller/noderesource: write if a resource was added, removed or changed by more
    than a tenth, or if the last write is older than 300 s. Unchanged values are not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.errors import QuantityError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy import Colocation
from slacktide.schemas.units import whole
from slacktide.streams.decisions.resources.resource_sync_decision import Pair, resource_sync_decision

TIERS = (
    {"batch_cpu_milli": "kubernetes.io/batch-cpu", "batch_mem_bytes": "kubernetes.io/batch-memory"},
    {"mid_cpu_milli": "kubernetes.io/mid-cpu", "mid_mem_bytes": "kubernetes.io/mid-memory"},
    {"free_cpu_milli": "kubernetes.io/free-cpu", "free_mem_bytes": "kubernetes.io/free-memory"},
)
"""Resource name by field; CPU in millicores, memory in bytes."""
NAMES = {field: name for tier in TIERS for field, name in tier.items()}
_UNREADABLE = -1
Figures = Mapping[str, int | None]
"""By field; None: the node lacks the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """These resources in a Node's status."""

    capacity: Figures
    allocatable: Figures

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return any(one is not None for one in (*self.capacity.values(), *self.allocatable.values()))

    @property
    def batch(self) -> tuple[int | None, int | None]:
        """Allocatable batch CPU and memory; None: missing or unreadable."""
        cpu_milli, mem_bytes = (self.allocatable[field] for field in TIERS[0])
        return _readable(cpu_milli), _readable(mem_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """A wanted write and its reason."""

    figures: Figures
    reason: str
    urgent: bool
    """Withdraws resources of a node without fresh figures, or repairs a contradiction."""

    @property
    def body(self) -> dict[str, object]:
        """The merge patch for ``nodes/status``; null removes a resource."""
        amounts = {NAMES[field]: None if value is None else str(value) for field, value in self.figures.items()}
        return {"status": {"capacity": amounts, "allocatable": amounts}}


WITHDRAWN = StatusWrite(figures=dict.fromkeys(NAMES), reason="removed", urgent=True)
"""Removes all resources, when the bridge is removed from the cluster."""


def shown(capacity: Mapping[str, str] | None, allocatable: Mapping[str, str] | None) -> Shown:
    """Read these resources from a Node's status; an unreadable amount counts as changed."""
    return Shown(capacity=_figures(capacity or {}), allocatable=_figures(allocatable or {}))


def figures_of(published: NodeAllocatable) -> Figures:
    """Return the figures to write."""
    return {field: getattr(published, field) for field in NAMES}


def unsold(published: NodeAllocatable) -> NodeAllocatable:
    """Return the record without figures, for a dry run."""
    return msgspec.structs.replace(published, **dict.fromkeys(NAMES))


def capped(published: NodeAllocatable, capacity: Resources) -> NodeAllocatable:
    """Return the record, capped at the node's capacity; resources that the node does not declare count as 0."""
    limits = {field: _capacity(field, capacity) for field in NAMES}
    above = {field: limit for field, limit in limits.items() if (getattr(published, field) or 0) > limit}
    return msgspec.structs.replace(published, **above) if above else published


def overstated(published: NodeAllocatable, capacity: Resources) -> str:
    """List figures above the node's capacity; "": none."""
    limits = {field: _capacity(field, capacity) for field in NAMES}
    above = [
        f"{field} is {getattr(published, field)}, above the Node's capacity of {limit}"
        for field, limit in limits.items()
        if (getattr(published, field) or 0) > limit
    ]
    return "; ".join(above)


def _capacity(field: str, capacity: Resources) -> int:
    return (capacity.mem_bytes if field.endswith("_bytes") else capacity.cpu_milli) or 0


def status_write(
    shown: Shown, published: NodeAllocatable, colocation: Colocation, since_s: float
) -> StatusWrite | None:
    """Return the write to make, if any. ``published`` is ``capped`` and not frozen."""
    figures = figures_of(published)
    if shown.capacity == figures == shown.allocatable:
        return None
    moved = [tier for tier in TIERS if _moved(tier, shown.allocatable, figures, colocation.resource_diff_threshold)]
    if shown.capacity != shown.allocatable:
        return StatusWrite(figures=figures, reason="capacity and allocatable differ", urgent=True)
    if moved:
        withdrawn = published.degraded or published.stale_ms > 0 or _gone(shown.allocatable, figures)
        return StatusWrite(figures=figures, reason="moved", urgent=withdrawn)
    if since_s >= colocation.update_time_threshold_s:
        return StatusWrite(figures=figures, reason="due", urgent=False)
    return None


def _moved(tier: Mapping[str, str], old: Figures, new: Figures, threshold: float) -> bool:
    pairs = [Pair(of=field, old=old[field], new=new[field]) for field in tier]
    return resource_sync_decision(pairs, threshold).need_sync


def _gone(old: Figures, new: Figures) -> bool:
    return any(old[field] is not None and new[field] is None for field in NAMES)


def _figures(amounts: Mapping[str, str]) -> dict[str, int | None]:
    return {field: _amount(amounts.get(name)) for field, name in NAMES.items()}


def _amount(text: str | None) -> int | None:
    try:
        return None if text is None else whole(text)
    except QuantityError:
        return _UNREADABLE


def _readable(amount: int | None) -> int | None:
    return None if amount is None or amount < 0 else amount
