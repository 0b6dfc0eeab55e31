"""Computes the batch, mid and free allocatable of many nodes, as the scalar rules do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slacktide.streams.columns.block import sums
from slacktide.streams.columns.market import LARGER, REQUEST, USAGE, Market
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


FREE_TERMS = (*BATCH_TERMS[:-1], "batch_used", "free")


class Sold(NamedTuple):
    """Results of each node, int64. Pairs are CPU in millicores and memory in bytes."""

    figures: Ints
    """[n, 6]: batch, mid, then free, at least what is requested."""
    sold: Ints
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


def sold(markets: Sequence[Market], own: Ints, pods: Ints, counts: Ints) -> Sold:
    """Compute the batch, mid and free allocatable of plain nodes.

    ``own``: int64 [n, 2, 2]: average use of the node, then of its system. ``pods``: int64 [N, 2]: average use of all
    pods, node by node, in order of ``Market.names``.
    """
    strategy = np.concatenate([market.strategy for market in markets]).reshape(len(markets), -1)
    capacity, margin, reserved, policy = (strategy[:, column : column + 2] for column in (0, 2, 4, 6))
    high, lse, prod, batch, *request = np.concatenate([market.each for market in markets]).T
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
    sells_free = np.array([[market.sells_free] for market in markets])
    figures = np.concatenate([of_batch[:, :, -1], mid[:, :, -1], np.where(sells_free, free[:, :, -1], 0)], 1)
    asked = strategy[:, [13, 14, 15, 16, 19, 20]]
    prod_use = sums(pods * prod[:, None], counts)
    return Sold(np.maximum(figures, asked), figures, of_batch, mid, free, asked, prod_use)


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
