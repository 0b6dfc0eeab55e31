"""Signed 64-bit amounts of quota and usage. The maximum means unlimited.

CPU is in millicores, everything else in whole units: bytes, pods, devices.
Reading: kueue v0.19.2, pkg/resources/amount.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

UNLIMITED = 2**63 - 1
AMOUNT_MIN = -(2**63)


class FlavorResource(NamedTuple):
    """A resource, by its Kubernetes name, of a flavor."""

    flavor: str
    resource: str


def plus(left: int, right: int) -> int:
    """Return the sum; unlimited if an operand is."""
    if UNLIMITED in {left, right}:
        return UNLIMITED
    return min(max(left + right, AMOUNT_MIN), UNLIMITED)


def minus(left: int, right: int) -> int:
    """Return the difference. An unlimited amount stays unlimited unless the subtrahend is unlimited."""
    if right == UNLIMITED:
        return 0 if left == UNLIMITED else AMOUNT_MIN
    if left == UNLIMITED:
        return UNLIMITED
    return min(max(left - right, AMOUNT_MIN), UNLIMITED)


def total(amounts: Iterable[int]) -> int:
    """Return the sum of all amounts."""
    return reduce(plus, amounts, 0)
