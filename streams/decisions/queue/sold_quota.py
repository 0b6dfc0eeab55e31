"""Computes quota as a share of a flavor's batch allocatable, damped: it grows slowly and shrinks after a delay.

Not a rule of Kueue; it applies only with the annotation. For Kueue, only ``nominalQuota`` of batch resources changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from slacktide.schemas.errors import CaseError, QuantityError
from slacktide.schemas.queue_objects import SoldSpec
from slacktide.schemas.text import shown
from slacktide.schemas.units import quantity

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


def damped(before: Damped, sold: int, now_ms: int) -> Damped:
    """Return the damped amount at ``now_ms``; CPU in millicores, or memory in bytes."""
    amount = before.amount
    if sold >= amount:
        step = max(1, sold * GROW_PERCENT * (now_ms - before.at_ms) // 6_000_000)
        return Damped(min(sold, amount + step), now_ms)
    if sold * 100 >= amount * (100 - LINE_PERCENT):
        return Damped(amount, now_ms)
    since = now_ms if before.below_ms is None else before.below_ms
    most = sold if before.below_ms is None else max(sold, before.below_max)
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


def sold_nominal(resource: str, sold: SoldSpec | None, percent: int) -> int | None:
    """Return the nominal quota, rounded down; 0 if batch allocatable is unknown, None for other resources."""
    if resource in CPU:
        return 0 if sold is None else sold.cpu_milli * percent // 100
    if resource in MEMORY:
        return 0 if sold is None else sold.memory_bytes * percent // 100
    return None


Json = dict[str, Any]


def effective_groups(
    groups: Sequence[Json], annotations: Mapping[str, str], sold: Mapping[str, SoldSpec], of: str
) -> list[Json] | None:
    """Return the current resource groups; None if the ClusterQueue does not opt in.

    ``sold``: damped batch allocatable by flavor. An unknown flavor keeps its quotas. Raises CaseError if an annotation
    is invalid; ``of`` names the ClusterQueue.
    """
    percent = quota_percent(annotations, of)
    if percent is None:
        return None

    def resource(flavor: str, one: Json) -> Json:
        share = sold_nominal(one["name"], sold[flavor], percent) if flavor in sold else None
        return one if share is None else one | {"nominalQuota": _text(one, share)}

    return [
        group | {
            "flavors": [
                flavor | {"resources": [resource(flavor["name"], one) for one in flavor["resources"]]}
                for flavor in group["flavors"]
            ]
        }
        for group in groups
    ]  # fmt: skip


def _text(one: Json, share: int) -> str | int:
    """Return the quantity; keep the current text if it is equal: ``1`` and ``1000m`` are."""
    text = f"{share}m" if one["name"] == "cpu" else str(share)
    before: str | int = one.get("nominalQuota", 0)
    try:
        return before if quantity(before) == quantity(text) else text
    except QuantityError:
        return text
