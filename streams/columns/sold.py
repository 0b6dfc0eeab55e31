"""What is sold on many nodes: the arithmetic of ``batch_resource``, ``mid_resource`` and ``published_floor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slacktide.streams.columns.block import sums
from slacktide.streams.columns.market import LARGER, REQUEST, Market
from slacktide.streams.columns.rings import Ints

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


class Sold(NamedTuple):
    """Of each node, int64. Pairs are of CPU in millicores and memory in bytes."""

    figures: Ints
    """[n, 4]: batch, then mid, never below what is asked for."""
    sold: Ints
    """[n, 4]: the same by the arithmetic alone."""
    batch_terms: Ints
    """[n, 2, 8]: of CPU and memory, in order of ``BATCH_TERMS``."""
    mid_terms: Ints
    """[n, 2, 11]"""
    asked: Ints
    """[n, 4]: batch, then mid."""
    prod_use: Ints
    """[n, 2]"""


def sold(markets: Sequence[Market], own: Ints, pods: Ints, counts: Ints) -> Sold:
    """Say what batch and mid pods may ask for.

    Args:
        markets: of the nodes, all of them plain.
        own: int64 [n, 2, 2]: average use of the node, then of its system.
        pods: int64 [N, 2]: average use of all pods, one node after the other, in order of ``Market.names``.
        counts: int64 [n]: of each node's pods.

    """
    strategy = np.array([market.strategy for market in markets], np.int64)
    high = np.concatenate([market.high for market in markets])
    lse = np.concatenate([market.lse for market in markets])
    prod = np.concatenate([market.prod for market in markets])
    batch, mid = np.empty((len(markets), 2, 8), np.int64), np.empty((len(markets), 2, 11), np.int64)
    for unit, of_market in enumerate(("request_milli", "request_bytes")):
        request = np.concatenate([getattr(market, of_market) for market in markets])
        used = np.where(high, pods[:, unit], 0)
        by_use = np.where(lse, request, used) if unit == 0 else used
        capacity, margin, reserved, policy = (strategy[:, column + unit] for column in (0, 2, 4, 6))
        taken = np.select(
            [policy == REQUEST, policy == LARGER],
            [sums(request, counts), sums(np.maximum(request, used), counts)],
            sums(by_use, counts),
        )
        system = own[:, 1, unit]
        larger = np.maximum(system, reserved)
        kept = np.where(policy == REQUEST, reserved, larger)
        left = capacity - margin - kept - taken
        batch[:, unit] = np.stack([capacity, margin, system, reserved, kept, taken, left, np.maximum(left, 0)], 1)
        mid[:, unit] = _mid(strategy, unit, capacity - own[:, 0, unit], larger)
    figures = np.concatenate([batch[:, :, -1], mid[:, :, -1]], 1)
    asked = strategy[:, 13:17]
    prod_use = np.stack([sums(np.where(prod, pods[:, unit], 0), counts) for unit in range(2)], 1)
    return Sold(np.maximum(figures, asked), figures, batch, mid, asked, prod_use)


def _mid(strategy: Ints, unit: int, unused: Ints, kept: Ints) -> Ints:
    """Give the terms of what mid pods may ask for. Nobody predicts what is reclaimable: it is 0."""
    capacity, percent = strategy[:, unit], strategy[:, 8]
    cap, prod_request = strategy[:, 9 + unit], strategy[:, 11 + unit]
    reclaimable = np.zeros_like(capacity)
    base = np.maximum(0, np.minimum(reclaimable, unused))
    unallocated = np.maximum(0, capacity - kept - prod_request)
    part = (unallocated * (percent / 100)).astype(np.int64)
    found: Ints = np.stack(
        [
            capacity,
            reclaimable,
            unused,
            base,
            kept,
            prod_request,
            unallocated,
            percent,
            part,
            cap,
            np.minimum(base + part, cap),
        ],
        1,
    )
    return found
