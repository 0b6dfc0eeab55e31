"""Folds the minutes of one service into its profile, and decides when its nodes get a new slope. Pure.

A node's minutes change the sums of this node alone: a record may be forged. ``bins`` are a picture; nothing follows
from them.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from slacktide.schemas.service import (
    BINS,
    NODES_MAX,
    Bin,
    NodeSums,
    ServiceMinute,
    ServiceProfile,
    ServiceSli,
    ServiceSlope,
    Shape,
)
from slacktide.streams.learning.estimate import Estimate, Status, estimate, fit_node, slowdown_permille, status_after
from slacktide.streams.learning.latency import LatencyFold
from slacktide.streams.learning.shape import line_slope
from slacktide.streams.learning.sums import (
    EARLY_MS,
    HOUR_MS,
    LATE_MS,
    MINUTE_MS,
    Ignored,
    Point,
    added,
    begun,
    decay,
    point_of,
    sound,
)

Verdict: TypeAlias = Literal["folded"] | Ignored

NODE_MS: Final = 96 * HOUR_MS
"""A node without minutes for so long is dropped: their weight is below 1 in 65,000."""
PUBLISH_MS: Final = 30 * MINUTE_MS
"""Event time between two slopes: each one changes limits on all nodes of the service."""
DIFFERENCE_PERMILLE: Final = 100
"""A smaller difference is not published."""
STEP: Final = 1.25
"""Largest change at once, so that limits do not jump."""
UNCONFIRMED_MS: Final = 24 * HOUR_MS
"""A slope that nothing confirms for so long is lowered by a step: under its cap best-effort work no longer varies
enough to show whether the service still is as sensitive. With each step it varies more."""
FORGOTTEN_PERMILLE: Final = 50
"""A slope that was lowered so far caps no budget above 5%. None is published any more, so that the next one that is
precise counts at once."""

PICTURE_MAX: Final = 10_000.0
"""Thousandths: no minute is slowed down more."""


class SlopeChange(NamedTuple):
    """What the service's nodes shall know from now on; None: no slope, or none any more."""

    slope: ServiceSlope | None


class ServiceFold:
    """One service, from its profile; None: none is known."""

    def __init__(self, profile: ServiceProfile | None = None) -> None:
        known = profile or unknown("")
        self.service, self.observed_ms = known.service, known.observed_ms
        self.folded_to, self._folded_from = known.folded_to, known.folded_from
        self.published = known.published
        self._status: Status = known.status
        self._shape: Shape = known.shape
        self._confirmed_ms = known.confirmed_ms
        self._latency = LatencyFold(known.latency)
        self._nodes = {one.node: one for one in known.sums if sound(one)}
        self._found: Estimate | None = None
        """Of the nodes as they are; None: not computed yet."""
        self._bins = [(0.0, 0.0)] * BINS
        for number, one in enumerate(known.bins):
            if abs(one.mean_permille) <= PICTURE_MAX:
                self._bins[number] = one.minutes, one.mean_permille

    def __len__(self) -> int:
        """Return how many nodes it keeps."""
        return len(self._nodes)

    def __contains__(self, node: object) -> bool:
        return node in self._nodes

    def take(self, minute: ServiceMinute, offset: int, appended_ms: int | None = None) -> Verdict:
        """Fold a minute, or return why it is ignored.

        Args:
            minute: of this service; the first one names it.
            offset: in the partition of the service. Offsets restart where a topic is created again.
            appended_ms: append time of its record, UTC epoch; None: not known, so its own time is not judged.
        """
        if self._is_known(minute, offset):
            return "old"
        if appended_ms is not None and (untimely := _untimely(minute.observed_ms, appended_ms)):
            return untimely
        point = point_of(minute)
        if not isinstance(point, Point):
            return point
        known = self._nodes.get(minute.node)
        if known is None and not self._has_room(minute.observed_ms, point.minutes):
            return "crowded"
        self._picture(known, point, minute.observed_ms)
        self._nodes[minute.node] = (
            begun(minute.node, point, minute.observed_ms) if known is None else added(known, point, minute.observed_ms)
        )
        self.service, self.folded_to = self.service or minute.service, offset
        self._folded_from = offset if self._folded_from < 0 else self._folded_from
        self._found = None
        self._latency.measured(minute.node, minute.observed_ms, minute.span_ms, point)
        return "folded"

    def take_latency(self, sli: ServiceSli, appended_ms: int | None = None) -> Verdict:
        """Fold a latency, or return why it is ignored. ``appended_ms``: as in ``take``."""
        if appended_ms is not None and (untimely := _untimely(sli.observed_ms, appended_ms)):
            return untimely
        return self._latency.take(sli) or "folded"

    def slope_out(self, partition: int = 0) -> SlopeChange | None:
        """Settle the status, drop nodes that are gone, and return what is new for the nodes; None: nothing.

        ``partition``: of the service's minutes, as evidence.
        """
        gone = [node for node, sums in self._nodes.items() if self.observed_ms - sums.until_ms > NODE_MS]
        for node in gone:
            del self._nodes[node]
            self._found = None
        found = self._estimate()
        status = self._status = status_after(self._status, found)
        self._shape = found.shape
        if self._latency:
            of_latency, its = self._latency.settle(self.observed_ms)
            status, found = (of_latency, its) if of_latency != "learning" else (status, found)
        if found.usable:
            self._confirmed_ms = self.observed_ms
        slope = 0
        if status == "learned":
            slope = next_slope(self.published, found, self._confirmed_ms, self.observed_ms)
        if slope == (self.published.slope_permille if self.published else 0):
            return None
        self.published = None
        if slope:
            self.published = ServiceSlope(
                service=self.service,
                slope_permille=slope,
                observed_ms=self.observed_ms,
                partition=partition,
                folded_to=self.folded_to,
            )
        return SlopeChange(self.published)

    def profile(self) -> ServiceProfile:
        """Return what is known now."""
        found, latency = self._estimate(), self._latency.fit(self.observed_ms)
        return ServiceProfile(
            service=self.service,
            observed_ms=self.observed_ms,
            folded_to=self.folded_to,
            folded_from=self._folded_from,
            status=status_after(self._status, found),
            slope_permille=round(1_000 * found.slope),
            low_permille=round(1_000 * (found.slope - found.half)),
            high_permille=round(1_000 * (found.slope + found.half)),
            shape=found.shape,
            alone_permille=slowdown_permille(found.alone),
            node_hours=found.node_hours,
            nodes=found.nodes,
            latency=latency,
            signal="pressure" if latency is None or latency.status == "learning" else "latency",
            confirmed_ms=self._confirmed_ms,
            published=self.published,
            bins=self._bins_out(),
            sums=[self._nodes[node] for node in sorted(self._nodes)],
        )

    def _is_known(self, minute: ServiceMinute, offset: int) -> bool:
        """Check whether it is folded: by offset, also of nodes that are dropped since; by time, also if sent twice."""
        if offset <= self.folded_to and minute.observed_ms <= self.observed_ms:
            return True
        known = self._nodes.get(minute.node)
        return known is not None and minute.observed_ms <= known.until_ms

    def _estimate(self) -> Estimate:
        if self._found is None:
            self._found = estimate([self._nodes[node] for node in sorted(self._nodes)], self.observed_ms, self._shape)
        return self._found

    def _has_room(self, observed_ms: int, minutes: float) -> bool:
        """Make room for another node; False: all others weigh more."""
        if len(self._nodes) < NODES_MAX:
            return True
        now_ms = max(self.observed_ms, observed_ms)

        def weight(one: NodeSums) -> tuple[float, str]:
            return one.minutes * decay(now_ms - one.until_ms), one.node

        least = min(self._nodes.values(), key=weight)
        if weight(least)[0] >= minutes * decay(now_ms - observed_ms):
            return False
        del self._nodes[least.node]
        return True

    def _picture(self, known: NodeSums | None, point: Point, observed_ms: int) -> None:
        """Let the picture decay until now, and add the point where the node's own level is known."""
        if observed_ms > self.observed_ms:
            kept = decay(observed_ms - self.observed_ms)
            self._bins = [(minutes * kept, mean) for minutes, mean in self._bins]
            self.observed_ms = observed_ms
        fit = None if known is None else fit_node(known, observed_ms, self._shape)
        if known is None or fit is None:
            return
        above = 1_000 * (point.y - fit.level - fit.load_slope * (point.z - known.mean_z))
        above = min(max(-PICTURE_MAX, above), PICTURE_MAX)
        number = min(BINS - 1, int(point.x * BINS))
        before, mean = self._bins[number]
        weight = min(point.minutes, (observed_ms - known.until_ms) / MINUTE_MS) * decay(self.observed_ms - observed_ms)
        minutes = before + weight
        if minutes > 0:
            self._bins[number] = minutes, mean + (above - mean) * weight / minutes

    def _bins_out(self) -> list[Bin]:
        if not any(minutes for minutes, _ in self._bins):
            return []
        return [Bin(minutes=minutes, mean_permille=mean) for minutes, mean in self._bins]


def unknown(service: str) -> ServiceProfile:
    """Return the profile of a service of which nothing is known."""
    return ServiceProfile(service=service, observed_ms=0, folded_to=-1, folded_from=-1, status="learning")


def _untimely(observed_ms: int, appended_ms: int) -> Ignored | None:
    if observed_ms > appended_ms + EARLY_MS:
        return "early"
    return "old" if observed_ms < appended_ms - LATE_MS else None


def next_slope(published: ServiceSlope | None, found: Estimate, confirmed_ms: int, observed_ms: int) -> int:
    """Return the slope that nodes of a learned service shall know, in thousandths; 0: none.

    The first one is published as it is. Later ones come at most every half hour of event time, and change by a quarter
    at most: to a precise estimate that differs by more than a tenth, or because the interval excludes what nodes know.
    """
    slope, low, high = (
        max(0, round(1_000 * line_slope(found.shape, found.slope + side))) for side in (0.0, -found.half, found.half)
    )
    before = published.slope_permille if published else 0
    if published is None or not before:
        return slope if found.precise else 0
    if observed_ms - published.observed_ms < PUBLISH_MS:
        return before
    if not found.usable:
        if observed_ms - max(published.observed_ms, confirmed_ms) < UNCONFIRMED_MS:
            return before
        lowered = round(before / STEP)
        return lowered if lowered > FORGOTTEN_PERMILLE else 0
    if not (found.precise or not low <= before <= high) or abs(slope - before) * 1_000 <= before * DIFFERENCE_PERMILLE:
        return before
    return min(max(slope, round(before / STEP)), round(before * STEP))
