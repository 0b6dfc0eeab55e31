"""Quota as a share of what a flavor's nodes sell to batch pods: it grows slowly, and shrinks past a line and a time.

No rule of Kueue's: without the annotation nothing of it applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue_objects import SoldSpec

QUOTA_OF = "slacktide.io/quota-of"
QUOTA_PERCENT = "slacktide.io/quota-percent"
BATCH = "batch"
GROW_PERCENT = 10
"""Of what is sold, a minute."""
LINE_PERCENT = 10
"""A quota stays as it is while what is sold is below it by no more."""
SHRINK_MS = 120_000
"""What is sold must be below that line for so long before the quota shrinks."""
CPU = frozenset({"cpu", "kubernetes.io/batch-cpu"})
MEMORY = frozenset({"memory", "kubernetes.io/batch-memory"})


class Damped(NamedTuple):
    """One figure of a flavor."""

    amount: int
    at_ms: int
    """When it was computed."""
    below_ms: int | None = None
    """Since when less is sold than the line allows; None: it is not so."""
    below_max: int = 0
    """The most that was sold since."""


def damped(before: Damped, sold: int, now_ms: int) -> Damped:
    """The figure after some time, by what is sold now.

    Args:
        before: the figure so far.
        sold: CPU in millicores, or memory in bytes.
        now_ms: not before ``before.at_ms``.

    """
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
    """The share that an object asks for; None: its quotas are its own.

    Raises:
        CaseError: an annotation cannot be used; with the object's name.

    """
    kind = annotations.get(QUOTA_OF)
    if kind is None:
        return None
    if kind != BATCH:
        raise CaseError(f"{of}: metadata.annotations[{QUOTA_OF}]", f"{kind!r}; accepted: {BATCH}")
    text = annotations.get(QUOTA_PERCENT, "100")
    if not text.isascii() or not text.isdecimal() or not 0 <= int(text[:5]) <= 1_000 or len(text) > 5:
        raise CaseError(f"{of}: metadata.annotations[{QUOTA_PERCENT}]", f"{text!r}; accepted: 0 to 1000")
    return int(text)


def sold_nominal(resource: str, sold: SoldSpec | None, percent: int) -> int | None:
    """The nominal quota of a resource, rounded down; 0 while nothing is known. None: it is not sold to batch pods."""
    if resource in CPU:
        return 0 if sold is None else sold.cpu_milli * percent // 100
    if resource in MEMORY:
        return 0 if sold is None else sold.memory_bytes * percent // 100
    return None
