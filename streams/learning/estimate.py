"""Estimates a service's slope from the sums of its nodes. Pure.

Each node is fitted alone, so that baselines of nodes do not matter, and their median is the slope, so that one forged
or strange node does not matter either. The growth is straight until the nodes show that it is bent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Final, Literal, NamedTuple, TypeAlias

from slacktide.schemas.service import NodeSums, Shape
from slacktide.streams.learning.shape import BUDGET
from slacktide.streams.learning.sums import decay

Status: TypeAlias = Literal["learning", "learned", "insensitive"]

NODE_MINUTES_MIN: Final = 30.0
"""Fewer minutes may all be of one batch job."""
DEVIATION_MIN: Final[dict[Shape, float]] = {"straight": 0.02, "bent": 0.05}
"""Standard deviation of x, or of u, that z does not explain. With less, a node does not show what best-effort work
does. Half of the time nothing, and half of it a cap of 0.6%, gives u 0.05."""
REACHES_DOWN: Final = 2.0
"""Standard deviations of x from its mean down to nothing. Above more, a straight growth looks bent as well."""
SURELY: Final = log(20)
"""So much likelier another shape must be."""
UNEXPLAINED_MIN: Final = 1e-6
"""Variance of y, so that a quotient of two is a number."""
Z_DEVIATION_MIN: Final = 0.005
"""A load that varies less explains nothing."""
WEIGHT_TIMES_MAX: Final = 1.0
"""A node counts at most so many times the median: a forged one has any spread of x that it likes. With 2, one forged
node of 10 moved a slope of 0.3 by up to 10%."""
AUTOCORRELATION: Final = 4.0
"""Minutes are not independent. With correlations a and b of successive residuals and of x, the variance of a slope is
(1 + ab) / (1 - ab) times as large: 4 stands for 0.65 and 0.92, a slow service beside batch jobs of 10 minutes."""
MEDIAN_VARIANCE: Final = 1.5708
"""π/2: variance of a median, by that of a mean."""
DEVIATION_BY_MAD: Final = 1.4826
"""Standard deviation of a normal distribution, by its median absolute deviation."""
DEVIATION_BY_MEAN: Final = 1.2533
"""The same, by its mean absolute deviation."""
FEW_NODES: Final = 5
"""The median of fewer deviations is mostly that of a node from itself, so their mean is taken."""
FREEDOM_MIN: Final = 3
"""Two nodes alone show little of how nodes differ: a second one would widen the interval until nothing is learned."""
T_90: Final = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)
"""Student's t for an interval of 90%, by degrees of freedom from 1."""
NORMAL_90: Final = 1.645

HOURS_TO_LEARN: Final = 4.0
"""The decayed weight of one node alone is never above 8.7."""
HOURS_TO_KEEP: Final = 0.5
WIDTH_TO_LEARN: Final = (0.25, 0.1)
"""Half of the interval: a share of the slope, or an absolute width; the larger one."""
WIDTH_TO_KEEP: Final = (0.5, 0.2)
INSENSITIVE: Final = BUDGET
"""Below it, a node full of best-effort work slows the service down by less than the default budget of 25%."""
SENSITIVE_AGAIN: Final = log(1.3)
ALONE_MAX: Final = log(1_000)


class NodeFit(NamedTuple):
    """Least squares of one node: y = level + slope · x + load_slope · (z - mean_z); with u for x if bent."""

    slope: float
    load_slope: float
    mean: float
    """Of x."""
    level: float
    """Of y without best-effort work, at the node's mean load."""
    weight: float
    """Information on x given z: the sum of squares of x that z does not explain."""
    unexplained: float
    """Variance of y that remains."""
    variance: float
    """Of the slope."""
    minutes: float
    """Decayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What follows from all nodes. Slopes are per whole node, as natural logarithms."""

    shape: Shape = "straight"
    slope: float = 0.0
    half: float = 0.0
    """Half of the interval that holds the true slope 9 times of 10."""
    alone: float = 0.0
    """y without best-effort work."""
    node_hours: float = 0.0
    """Of nodes that show what best-effort work does."""
    nodes: int = 0
    hours: float = 0.0
    """Of all nodes."""

    @property
    def precise(self) -> bool:
        """Whether it is good enough to learn from."""
        return self.node_hours >= HOURS_TO_KEEP and self.half <= max(WIDTH_TO_LEARN[0] * self.slope, WIDTH_TO_LEARN[1])

    @property
    def usable(self) -> bool:
        """Whether it can confirm what was learned before, or contradict it."""
        return self.node_hours >= HOURS_TO_KEEP and self.half <= max(WIDTH_TO_KEEP[0] * self.slope, WIDTH_TO_KEEP[1])


def fit_node(sums: NodeSums, now_ms: int, shape: Shape = "straight") -> NodeFit | None:
    """Fit one node, with weights as of ``now_ms``; None: its minutes do not show what best-effort work does."""
    mean, xx, xy, xz = sums.mean_x, sums.xx, sums.xy, sums.xz
    if shape == "bent":
        mean, xx, xy, xz = sums.mean_u, sums.uu, sums.uy, sums.uz
    kept = decay(now_ms - sums.until_ms)
    minutes = sums.minutes * kept
    if minutes < NODE_MINUTES_MIN:
        return None
    by_load = sums.zz > sums.minutes * Z_DEVIATION_MIN**2
    weight = xx - (xz**2 / sums.zz if by_load else 0.0)
    if weight < sums.minutes * DEVIATION_MIN[shape] ** 2:
        return None
    slope = (xy - (xz * sums.yz / sums.zz if by_load else 0.0)) / weight
    load_slope = (sums.yz - slope * xz) / sums.zz if by_load else 0.0
    unexplained = max(0.0, sums.yy - slope * xy - load_slope * sums.yz) / (minutes - 3)
    return NodeFit(
        slope=slope,
        load_slope=load_slope,
        mean=mean,
        level=sums.mean_y - slope * mean,
        weight=weight * kept,
        unexplained=unexplained,
        variance=AUTOCORRELATION * unexplained / weight,
        minutes=minutes,
    )


def estimate(nodes: Sequence[NodeSums], now_ms: int, before: Shape = "straight") -> Estimate:
    """Return the median over nodes, and how sure it is.

    Args:
        nodes: sums of each node.
        now_ms: event time to which weights decay.
        before: the shape so far.

    """
    both = [(sums, fit_node(sums, now_ms), fit_node(sums, now_ms, "bent")) for sums in nodes]
    shape = _shape(both, before)
    fits = [fit for _, straight, bent in both if (fit := bent if shape == "bent" else straight) is not None]
    hours = sum(sums.minutes * decay(now_ms - sums.until_ms) for sums in nodes) / 60
    if not fits:
        return Estimate(shape=shape, hours=hours)
    most = WEIGHT_TIMES_MAX * median([(fit.weight, 1.0) for fit in fits])
    weights = [min(fit.weight, most) for fit in fits]
    slope = median([(fit.slope, weight) for fit, weight in zip(fits, weights, strict=True)])
    return Estimate(
        shape=shape,
        slope=slope,
        half=max(_within(fits, weights), _between(fits, weights, slope)),
        alone=median([(fit.level + (fit.slope - slope) * fit.mean, 1.0) for fit in fits]),
        node_hours=sum(fit.minutes for fit in fits) / 60,
        nodes=len(fits),
        hours=hours,
    )


def status_after(status: Status, found: Estimate) -> Status:
    """Return the status that follows from an estimate.

    A status once reached stays as long as nodes measure the service and nothing contradicts it: where a cap is in
    force, best-effort work hardly varies, and shows nothing more.
    """
    if found.hours < HOURS_TO_KEEP or (status == "learning" and found.node_hours < HOURS_TO_LEARN):
        return "learning"
    if status != "learning" and not found.usable:
        return status
    if found.slope + found.half < (SENSITIVE_AGAIN if status == "insensitive" else INSENSITIVE):
        return "insensitive"
    surely = found.slope > 0 if status == "learned" else found.precise and found.slope > found.half
    return "learned" if surely else "learning"


def median(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median of (value, weight): the middle of two values if each side weighs half."""
    ordered = sorted(weighted)
    half, below = sum(weight for _, weight in ordered) / 2, 0.0
    for number, (value, weight) in enumerate(ordered):
        below += weight
        if below > half * (1 + 1e-12):
            return value
        if below >= half * (1 - 1e-12) and number + 1 < len(ordered):
            return (value + ordered[number + 1][0]) / 2
    return ordered[-1][0]


def slowdown_permille(logarithm: float) -> int:
    """Return a slowdown in thousandths: 1,000 is none."""
    return round(1_000 * exp(min(max(0.0, logarithm), ALONE_MAX)))


def _shape(both: Sequence[tuple[NodeSums, NodeFit | None, NodeFit | None]], before: Shape) -> Shape:
    """Return the shape that fits better; ``before``, until another one is likelier by far.

    Two thirds of the nodes must show it, with minutes from nearly no best-effort work on, so that few forged or strange
    nodes decide nothing. ``both``: each node's straight and bent fit.
    """
    logs, minutes = list[float](), 0.0
    for sums, straight, bent in both:
        if either := straight or bent:
            minutes += either.minutes
            down = sums.mean_x**2 * sums.minutes <= REACHES_DOWN**2 * sums.xx
            logs.append(log(_unexplained(straight) / _unexplained(bent)) if straight and bent and down else 0.0)
    if not logs:
        return before
    logs.sort()
    surely, third = 2 * AUTOCORRELATION * SURELY / minutes, len(logs) // 3
    if logs[third] >= surely:
        return "bent"
    return "straight" if logs[-1 - third] <= -surely else before


def _unexplained(fit: NodeFit) -> float:
    return fit.unexplained + UNEXPLAINED_MIN


def _within(fits: Sequence[NodeFit], weights: Sequence[float]) -> float:
    """Half of the interval from what remains unexplained within nodes."""
    variance = sum(weight**2 * fit.variance for fit, weight in zip(fits, weights, strict=True)) / sum(weights) ** 2
    return NORMAL_90 * sqrt(variance * (MEDIAN_VARIANCE if len(fits) > 2 else 1.0))


def _between(fits: Sequence[NodeFit], weights: Sequence[float], slope: float) -> float:
    """Half of the interval from how nodes differ; 0 for one node, which differs from none."""
    if len(fits) < 2:
        return 0.0
    deviations = [(abs(fit.slope - slope), weight) for fit, weight in zip(fits, weights, strict=True)]
    total = sum(weights)
    if len(fits) < FEW_NODES:
        deviation = DEVIATION_BY_MEAN * sum(one * weight for one, weight in deviations) / total
    else:
        deviation = DEVIATION_BY_MAD * median(deviations)
    effective = total**2 / sum(weight**2 for weight in weights)
    freedom = max(FREEDOM_MIN, round(effective) - 1)
    t = T_90[freedom - 1] if freedom <= len(T_90) else NORMAL_90 + 1.6 / freedom
    return t * deviation * sqrt(MEDIAN_VARIANCE / effective)
