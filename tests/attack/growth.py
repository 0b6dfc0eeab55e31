"""Whether a figure of a process grows: a robust slope after warming up, against stated limits. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Points = Sequence[tuple[float, float]]
"""Seconds, and the figure."""
WARM_UP_PART = 1 / 3
"""Of the whole run: caches fill, and so do windows."""
POINTS_MAX = 200
"""Slopes are taken between all pairs of so many points, evenly chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much a figure may grow over the measured span: so much, or this part of its median, whichever is more."""

    amount: float
    part: float = 0.0


LIMITS = {
    "rss_mb": Limit(amount=8.0, part=0.06),
    "descriptors": Limit(amount=5.0),
    "threads": Limit(amount=2.0),
    "files": Limit(amount=8.0),
    "folder_mb": Limit(amount=4.0),
}
"""By figure. A leak of one descriptor in three minutes, or of 50 MB an hour, is found in a run of 15 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One figure of one process over the measured span."""

    process: str
    figure: str
    first: float
    last: float
    grown: float
    """By the slope, over the span."""
    allowed: float

    @property
    def too_much(self) -> bool:
        """Whether the run fails."""
        return self.grown > self.allowed


def drift_per_s(points: Points) -> float:
    """The median of the slopes between all pairs of points, after Theil and Sen; 0.0 of fewer than two points."""
    step = max(1, len(points) // POINTS_MAX)
    chosen = points[::step]
    slopes = [
        (later - earlier) / (later_s - earlier_s)
        for index, (earlier_s, earlier) in enumerate(chosen)
        for later_s, later in chosen[index + 1 :]
        if later_s > earlier_s
    ]
    return median(slopes) if slopes else 0.0


def growth(process: str, figure: str, points: Points) -> Growth:
    """Judge one figure; what came within the warm-up is left out."""
    begin_s = points[0][0] + (points[-1][0] - points[0][0]) * WARM_UP_PART
    measured = [point for point in points if point[0] >= begin_s]
    limit, usual = LIMITS[figure], median(value for _, value in measured)
    return Growth(
        process=process,
        figure=figure,
        first=measured[0][1],
        last=measured[-1][1],
        grown=drift_per_s(measured) * (measured[-1][0] - measured[0][0]),
        allowed=max(limit.amount, limit.part * usual),
    )
