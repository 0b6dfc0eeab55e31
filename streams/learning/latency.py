"""Folds the latency of one service, where somebody publishes it, against what its nodes measured meanwhile. Pure.

A latency of a node is held against the share of best-effort work there, one of all nodes against their mean share.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

from slacktide.schemas.bounds import AMOUNT_MAX, COUNT_MAX
from slacktide.schemas.service import NODES_MAX, LatencyFit, ServiceSli
from slacktide.streams.learning.estimate import Estimate, Status, estimate, status_after
from slacktide.streams.learning.sums import (
    MEAN_MAX,
    MINUTE_MS,
    SPAN_MS_MAX,
    SPAN_MS_MIN,
    WEIGHT_MAX,
    Ignored,
    Point,
    added,
    begun,
    sound,
)

MATCH_MS: Final = 3 * MINUTE_MS
"""A latency is held against a minute that ended so much earlier or later."""


class LatencyFold:
    """The latency of one service; ``None``: none is known."""

    def __init__(self, known: LatencyFit | None = None) -> None:
        self._sums = {} if known is None else {one.node: one for one in known.sums if sound(one)}
        self._status: Status = "learning" if known is None else known.status
        self._target_us = None if known is None else known.target_us
        self._lately: dict[str, tuple[int, Point]] = {}
        """The newest minute of each node, and when it ended."""

    def __bool__(self) -> bool:
        return bool(self._sums)

    def measured(self, node: str, observed_ms: int, point: Point) -> None:
        """Take in what a node measured. Nodes of which nothing was heard for long are forgotten."""
        if len(self._lately) >= NODES_MAX and node not in self._lately:
            self._lately = {name: one for name, one in self._lately.items() if abs(observed_ms - one[0]) <= MATCH_MS}
            if len(self._lately) >= NODES_MAX:
                return
        self._lately[node] = observed_ms, point

    def take(self, sli: ServiceSli) -> Ignored | None:
        """Fold a latency; return why it is ignored, if it is."""
        if not sli.p99_us:
            return "idle"
        if not SPAN_MS_MIN <= sli.span_ms <= SPAN_MS_MAX:
            return "absurd"
        known = self._sums.get(sli.node)
        if known is not None and sli.observed_ms <= known.until_ms:
            return "old"
        if known is None and len(self._sums) >= NODES_MAX:
            return "crowded"
        beside = self._beside(sli)
        if beside is None:
            return "unmatched"
        point = beside._replace(
            y=min(max(-MEAN_MAX, log(sli.p99_us / 1_000)), MEAN_MAX), minutes=min(WEIGHT_MAX, sli.span_ms / MINUTE_MS)
        )
        until_ms = sli.observed_ms
        self._sums[sli.node] = begun(sli.node, point, until_ms) if known is None else added(known, point, until_ms)
        self._target_us = sli.target_us
        return None

    def settle(self, now_ms: int) -> tuple[Status, Estimate]:
        """Return the status that is reached, which is kept, and what it follows from."""
        found = estimate([self._sums[node] for node in sorted(self._sums)], now_ms)
        self._status = status_after(self._status, found)
        return self._status, found

    def fit(self, now_ms: int) -> LatencyFit | None:
        """Return what is known now; None: no latency was published."""
        if not self._sums:
            return None
        found = estimate([self._sums[node] for node in sorted(self._sums)], now_ms)
        return LatencyFit(
            status=status_after(self._status, found),
            slope_permille=round(1_000 * found.slope),
            low_permille=round(1_000 * (found.slope - found.half)),
            high_permille=round(1_000 * (found.slope + found.half)),
            alone_us=min(1_000 * exp(found.alone), AMOUNT_MAX),
            target_us=None if self._target_us is None else min(self._target_us, COUNT_MAX),
            node_hours=found.node_hours,
            nodes=found.nodes,
            sums=[self._sums[node] for node in sorted(self._sums)],
        )

    def _beside(self, sli: ServiceSli) -> Point | None:
        """Return what the service's nodes measured at that time, on average; None: nothing is known of it."""
        there = [self._lately[sli.node]] if sli.node in self._lately else []
        if not sli.node:
            there = list(self._lately.values())
        points = [point for observed_ms, point in there if abs(observed_ms - sli.observed_ms) <= MATCH_MS]
        if not points:
            return None
        templates = {point.template for point in points}
        return Point(
            x=sum(point.x for point in points) / len(points),
            y=0.0,
            z=sum(point.z for point in points) / len(points),
            minutes=0.0,
            template=templates.pop() if len(templates) == 1 else "",
        )
