"""Folds the latency of one service, where somebody publishes it, against what its nodes measured meanwhile. Pure.

A latency of a node is held against the share of best-effort work there in the same span, one of all nodes against their
mean share. Held against another span, it would seem to depend less on best-effort work than it does.
"""

from math import exp, log
from typing import Final, NamedTuple

from slacktide.schemas.bounds import AMOUNT_MAX, COUNT_MAX
from slacktide.schemas.service import NODES_MAX, LatencyFit, ServiceSli, Shape
from slacktide.streams.learning.estimate import Estimate, Status, estimate, status_after
from slacktide.streams.learning.sums import (
    HOUR_MS,
    MEAN_MAX,
    MINUTE_MS,
    SPAN_MS_MAX,
    SPAN_MS_MIN,
    WEIGHT_MAX,
    Ignored,
    Point,
    added,
    begun,
    is_node,
    sound,
)

LATELY_MS: Final = SPAN_MS_MAX + 2 * MINUTE_MS
"""Minutes of nodes that are kept, for the longest span of a latency."""
GONE_MS: Final = 24 * HOUR_MS
"""A node without a latency for so long makes room for another one."""
COVERED: Final = 0.5
"""The part of a latency's span that minutes of a node must cover."""


class _Minute(NamedTuple):
    begin_ms: int
    end_ms: int
    point: Point


class LatencyFold:
    """The latency of one service; ``None``: none is known."""

    def __init__(self, known: LatencyFit | None = None) -> None:
        self._sums = {} if known is None else {one.node: one for one in known.sums if sound(one)}
        self._status: Status = "learning" if known is None else known.status
        self._shape: Shape = "straight" if known is None else known.shape
        self._target_us = None if known is None else known.target_us
        self._found: tuple[int, Estimate] | None = None
        """Of the nodes as they are, with the time to which weights decay; None: not computed yet."""
        self._publishes = bool(self._sums)
        """Whether anybody does."""
        self._lately: dict[str, list[_Minute]] = {}
        """The last minutes of each node."""
        self._waiting: dict[str, ServiceSli] = {}
        """The newest latency of each node, until its nodes have measured the whole span."""

    def __bool__(self) -> bool:
        return bool(self._sums)

    def measured(self, node: str, observed_ms: int, span_ms: int, point: Point) -> None:
        """Take in what a node measured; nothing is kept of a service whose latency nobody publishes."""
        if not self._publishes:
            return
        if node not in self._lately and len(self._lately) >= NODES_MAX:
            self._lately = {
                one: kept for one, kept in self._lately.items() if observed_ms - kept[-1].end_ms < LATELY_MS
            }
            if len(self._lately) >= NODES_MAX:
                return
        kept = [one for one in self._lately.get(node, ()) if observed_ms - one.end_ms < LATELY_MS]
        self._lately[node] = [*kept, _Minute(observed_ms - span_ms, observed_ms, point)]
        self._fold_measured(node, observed_ms)
        self._fold_measured("", observed_ms - MINUTE_MS)  # the minutes of other nodes end up to a minute later

    def take(self, sli: ServiceSli) -> Ignored | None:
        """Take in a latency; return why it is ignored, if it is. It is folded once its span was measured."""
        if not sli.p99_us:
            return "idle"
        if not SPAN_MS_MIN <= sli.span_ms <= SPAN_MS_MAX or not is_node(sli.node or "all"):
            return "absurd"
        known, waiting = self._sums.get(sli.node), self._waiting.get(sli.node)
        if (known and sli.observed_ms <= known.until_ms) or (waiting and sli.observed_ms <= waiting.observed_ms):
            return "old"
        if known is None and not self._has_room(sli.observed_ms):
            return "crowded"
        self._publishes, self._waiting[sli.node] = True, sli
        if sli.node in self._lately:
            self._fold_measured(sli.node, self._lately[sli.node][-1].end_ms)
        return None

    def _fold_measured(self, node: str, until_ms: int) -> None:
        """Fold the latency that waits, if its span was measured."""
        sli = self._waiting.get(node)
        if sli is not None and sli.observed_ms <= until_ms:
            del self._waiting[node]
            self._fold(sli)

    def _has_room(self, now_ms: int) -> bool:
        self._sums = {
            node: one
            for node, one in self._sums.items()
            if len(self._sums) < NODES_MAX or now_ms - one.until_ms < GONE_MS
        }
        self._found = None
        return len(self._sums) < NODES_MAX and len(self._waiting) < NODES_MAX

    def _fold(self, sli: ServiceSli) -> None:
        beside = self._beside(sli)
        if beside is None:
            return
        known, until_ms = self._sums.get(sli.node), sli.observed_ms
        point = beside._replace(
            y=min(max(-MEAN_MAX, log(sli.p99_us / 1_000)), MEAN_MAX), minutes=min(WEIGHT_MAX, sli.span_ms / MINUTE_MS)
        )
        self._sums[sli.node] = begun(sli.node, point, until_ms) if known is None else added(known, point, until_ms)
        self._target_us, self._found = sli.target_us, None

    def settle(self, now_ms: int) -> tuple[Status, Estimate]:
        """Return the status that is reached, which is kept, and what it follows from."""
        found = self._estimate(now_ms)
        self._status, self._shape = status_after(self._status, found), found.shape
        return self._status, found

    def fit(self, now_ms: int) -> LatencyFit | None:
        """Return what is known now; None: no latency was published."""
        if not self._sums:
            return None
        found = self._estimate(now_ms)
        return LatencyFit(
            status=status_after(self._status, found),
            slope_permille=round(1_000 * found.slope),
            low_permille=round(1_000 * (found.slope - found.half)),
            high_permille=round(1_000 * (found.slope + found.half)),
            shape=found.shape,
            alone_us=min(1_000 * exp(found.alone), AMOUNT_MAX),
            target_us=None if self._target_us is None else min(self._target_us, COUNT_MAX),
            node_hours=found.node_hours,
            nodes=found.nodes,
            sums=[self._sums[node] for node in sorted(self._sums)],
        )

    def _estimate(self, now_ms: int) -> Estimate:
        if self._found is None or self._found[0] != now_ms:
            self._found = now_ms, estimate([self._sums[node] for node in sorted(self._sums)], now_ms, self._shape)
        return self._found[1]

    def _beside(self, sli: ServiceSli) -> Point | None:
        """Return what nodes measured on average in the span of a latency; None: too little of it was measured."""
        begin_ms, end_ms = sli.observed_ms - sli.span_ms, sli.observed_ms
        xs, zs, templates = list[float](), list[float](), set[str]()
        for node in [sli.node] if sli.node else list(self._lately):
            minutes = self._lately.get(node, [])
            shares = [max(0, min(end_ms, one.end_ms) - max(begin_ms, one.begin_ms)) for one in minutes]
            if (covered := sum(shares)) < COVERED * sli.span_ms:
                continue
            xs.append(sum(one.point.x * share for one, share in zip(minutes, shares, strict=True)) / covered)
            zs.append(sum(one.point.z * share for one, share in zip(minutes, shares, strict=True)) / covered)
            templates |= {one.point.template for one, share in zip(minutes, shares, strict=True) if share}
        if not xs:
            return None
        template = templates.pop() if len(templates) == 1 else ""
        return Point(x=sum(xs) / len(xs), y=0.0, z=sum(zs) / len(zs), minutes=0.0, template=template)
