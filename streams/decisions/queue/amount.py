"""Amounts of quota and usage: 64 bits with a sign, where the largest value stands for "unlimited".

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
    """What a quota is of: a resource, by its name in Kubernetes, on nodes of a flavor."""

    flavor: str
    resource: str


def plus(left: int, right: int) -> int:
    """Their sum; unlimited if one of them is."""
    if UNLIMITED in {left, right}:
        return UNLIMITED
    return min(max(left + right, AMOUNT_MIN), UNLIMITED)


def minus(left: int, right: int) -> int:
    """Their difference; what is unlimited stays so, unless something unlimited is taken off."""
    if right == UNLIMITED:
        return 0 if left == UNLIMITED else AMOUNT_MIN
    if left == UNLIMITED:
        return UNLIMITED
    return min(max(left - right, AMOUNT_MIN), UNLIMITED)


def total(amounts: Iterable[int]) -> int:
    """The sum of all."""
    return reduce(plus, amounts, 0)
