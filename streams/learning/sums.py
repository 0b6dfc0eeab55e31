"""A minute of a service as a point, and decayed sums of a node's minutes. Pure.

West (1979), "Updating mean and variance estimates: an improved method", with weights that decay in event time.
"""

import re
from math import log
from typing import Final, Literal, NamedTuple, TypeAlias

from slacktide.schemas.service import NodeSums, ServiceMinute
from slacktide.streams.decisions.suppress.cpu_pressure import RUNS_PERMILLE
from slacktide.streams.learning.shape import bent

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
HALF_LIFE_MS: Final = 6 * HOUR_MS
"""A day after a release, the minutes before it weigh a sixteenth, so that a slope twice as large is known within 7%."""
SPAN_MS_MIN: Final = 10_000
SPAN_MS_MAX: Final = 600_000
WEIGHT_MAX: Final = 5.0
"""Minutes: one record of a longer span still is one point."""
BEYOND: Final = 1.5
"""CPU time, or waiting, beyond what the span allows: counters and span are not read at the same moment."""
EARLY_MS: Final = 5 * MINUTE_MS
"""How far a node's clock may be ahead of the broker's."""
LATE_MS: Final = 48 * HOUR_MS
"""Retention of the topic: what a node measured before may be of another release."""
RELEASE_KEPT: Final = 0.25
"""Of what was learned before a release. A day later it weighs a sixtieth; meanwhile a slope is known that is not quite
wrong."""
MEAN_MAX: Final = 10.0
"""Above every x, y and z: waiting of 150% in two ways, by 2% of a CPU, is 5.0."""
SUM_MAX: Final = 1e6

_NODE, _TEMPLATE = re.compile(r"[a-z0-9.-]{1,253}"), re.compile(r"[A-Za-z0-9._-]{0,63}")
"""Names of Nodes and values of labels, as Kubernetes has them. With others a profile may be too large for a record."""

Ignored: TypeAlias = Literal["old", "early", "idle", "absurd", "crowded", "unknown"]
"""Why a minute or a latency is not folded. ``old``: it is folded already, or of another time; ``crowded``: no more
services, or nodes, are kept; ``unknown``: no node measures the service of a latency."""


class Point(NamedTuple):
    """A minute in the terms of the regression."""

    x: float
    """Share of the node's CPU that best-effort pods used."""
    y: float
    """Natural logarithm of the slowdown: CPU time plus waiting, by CPU time."""
    z: float
    """Share of the node's CPU that other pods used."""
    minutes: float
    """Its weight."""
    template: str
    """Hash of the pods' template; "": none, or several."""


def point_of(minute: ServiceMinute) -> Point | Ignored:
    """Return the minute as a point, or why it is none. 2% of a CPU per pod is the least that counts as running."""
    span_us = minute.span_ms * 1_000
    pods_us, capacity_us = minute.pods * span_us, minute.cpus * span_us
    waited_us = minute.wait_us + minute.mem_wait_us
    if not SPAN_MS_MIN <= minute.span_ms <= SPAN_MS_MAX or not is_node(minute.node):
        return "absurd"
    if minute.be_cpu_us + minute.ls_cpu_us > BEYOND * capacity_us or minute.run_us > BEYOND * capacity_us:
        return "absurd"
    if max(minute.wait_us, minute.mem_wait_us) > BEYOND * pods_us:
        return "absurd"
    if not minute.pods or minute.run_us * 1_000 < pods_us * RUNS_PERMILLE:
        return "idle"
    return Point(
        x=minute.be_cpu_us / capacity_us,
        y=log((minute.run_us + waited_us) / minute.run_us),
        z=minute.ls_cpu_us / capacity_us,
        minutes=min(WEIGHT_MAX, minute.span_ms / MINUTE_MS),
        template=minute.template if _TEMPLATE.fullmatch(minute.template) else "",
    )


def is_node(name: str) -> bool:
    """Check that it can be the name of a Node."""
    return _NODE.fullmatch(name) is not None


def decay(elapsed_ms: int) -> float:
    """Return the factor by which weights decay in this time; 1 for a negative one."""
    return float(0.5 ** (max(0, elapsed_ms) / HALF_LIFE_MS))


def begun(node: str, point: Point, until_ms: int) -> NodeSums:
    """Return the sums of a node's first point."""
    return NodeSums(node=node, until_ms=until_ms, minutes=point.minutes, mean_minutes=point.minutes,
                    mean_x=short(point.x), mean_u=short(bent(point.x)), mean_y=short(point.y), mean_z=short(point.z),
                    xx=0.0, xy=0.0, xz=0.0, uu=0.0, uy=0.0, uz=0.0, yy=0.0, yz=0.0, zz=0.0,
                    template=point.template)  # fmt: skip


def added(sums: NodeSums, point: Point, until_ms: int) -> NodeSums:
    """Return the sums with a newer point. Its weight is at most the time since the one before: time passes once.

    After a release the sums of products lose most of their weight, and the means begin anew: the level of before would
    be compared with the new one, as if best-effort work had caused the difference.
    """
    elapsed_ms = until_ms - sums.until_ms
    kept, before = decay(elapsed_ms), sums.mean_minutes * decay(elapsed_ms)
    if point.template and sums.template and point.template != sums.template:
        kept, before = kept * RELEASE_KEPT, 0.0
    weight = min(point.minutes, elapsed_ms / MINUTE_MS)
    share, gain = weight / (before + weight), weight * before / (before + weight)
    u = bent(point.x)
    dx, du, dy, dz = point.x - sums.mean_x, u - sums.mean_u, point.y - sums.mean_y, point.z - sums.mean_z
    return NodeSums(
        node=sums.node,
        until_ms=until_ms,
        minutes=short(sums.minutes * kept + weight),
        mean_minutes=short(before + weight),
        mean_x=short(sums.mean_x + dx * share),
        mean_u=short(sums.mean_u + du * share),
        mean_y=short(sums.mean_y + dy * share),
        mean_z=short(sums.mean_z + dz * share),
        xx=short(sums.xx * kept + gain * dx * dx),
        xy=short(sums.xy * kept + gain * dx * dy),
        xz=short(sums.xz * kept + gain * dx * dz),
        uu=short(sums.uu * kept + gain * du * du),
        uy=short(sums.uy * kept + gain * du * dy),
        uz=short(sums.uz * kept + gain * du * dz),
        yy=short(sums.yy * kept + gain * dy * dy),
        yz=short(sums.yz * kept + gain * dy * dz),
        zz=short(sums.zz * kept + gain * dz * dz),
        template=point.template or sums.template,
    )


def sound(sums: NodeSums) -> bool:
    """Check restored sums: a record may hold any number that its schema allows."""
    means = (sums.mean_x, sums.mean_u, sums.mean_y, sums.mean_z)
    products = (sums.xx, sums.xy, sums.xz, sums.uu, sums.uy, sums.uz, sums.yy, sums.yz, sums.zz)
    return (
        0 < sums.mean_minutes <= sums.minutes <= SUM_MAX
        and all(abs(one) <= MEAN_MAX for one in means)
        and all(abs(one) <= SUM_MAX for one in products)
        and min(sums.xx, sums.uu, sums.yy, sums.zz) >= 0
    )


def short(number: float) -> float:
    """Round to nine digits, which halves a profile's record. The fold goes on from the rounded numbers."""
    return float(f"{number:.9g}")
