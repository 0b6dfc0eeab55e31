"""What best-effort work does to a latency-sensitive service, as its nodes measure it and as it is learned of them.

Four topics with the key ``namespace/owner``, where owner is the Deployment, StatefulSet or other controller of the
pods. Agents publish a minute of each service on their node, and whoever knows its latency may publish that, too; a
stream job folds these into a profile and, once the slope is known, publishes the slope for the nodes that run the
service.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from slacktide.schemas.bounds import CPUS_MAX, Count, Int64, Measured, Name, Term, TimeMs
from slacktide.schemas.message import Message

SERVICE_CHARS_MAX = 317
"""A namespace, which is a label of 63 characters, a slash and a name."""
NODES_MAX = 256
"""Nodes whose sums a profile keeps, so that its record stays below Kafka's usual limit of 1 MB."""
BINS = 10
"""Tenths of a node's CPU, by which a profile shows what was measured."""
Service = Annotated[str, Meta(max_length=SERVICE_CHARS_MAX)]
Permille = Annotated[int, Meta(ge=0, le=1_000_000)]
Shape: TypeAlias = Literal["straight", "bent"]
"""How the logarithm of a slowdown grows with the share of a node's CPU that best-effort pods use."""


class ServiceMinute(Message, frozen=True, kw_only=True):
    """One minute of a service on a node. Topic slacktide.service.minute.v1. Agent to streams."""

    service: Service
    node: Name
    observed_ms: TimeMs
    """End of the minute, UTC epoch."""
    span_ms: TimeMs
    """How long it was, by the node's monotonic clock."""
    pods: Count
    """Pods of the service that ran on the node for the whole time."""
    template: Name = ""
    """Hash of the template of these pods; "": they have none, or several, as during a rollout."""
    run_us: Count
    """CPU time of these pods."""
    wait_us: Count
    """PSI ``some`` for CPU of these pods, each counted alone, without the time for which their own limits throttled
    them."""
    mem_wait_us: Count = 0
    """PSI ``some`` for memory, likewise."""
    be_cpu_us: Count
    """CPU time of all best-effort pods of the node."""
    ls_cpu_us: Count
    """CPU time of all other pods of the node."""
    cpus: Annotated[int, Meta(ge=1, le=CPUS_MAX)]
    """Of the node."""


class ServiceSli(Message, frozen=True, kw_only=True):
    """The latency of a service as its users see it. Topic slacktide.service.sli.v1. Any exporter to streams."""

    service: Service
    node: Name = ""
    """The node whose pods served the requests; "": all nodes together."""
    observed_ms: TimeMs
    """End of the span, UTC epoch."""
    span_ms: TimeMs
    """How long requests were counted."""
    p99_us: Count
    """99th percentile of the latency of requests that ended in the span."""
    target_us: Count | None = None
    """What the 99th percentile shall not exceed; null: unknown."""


class NodeSums(Message, frozen=True, kw_only=True, array_like=True):
    """Decayed sums over the minutes of a service on one node.

    x is the share of the node's CPU that best-effort pods used, u the part of a bent growth that x has, y the logarithm
    of the slowdown, and z the share that other pods used.
    """

    node: Name
    until_ms: TimeMs
    """End of the newest minute in it; older ones are ignored."""
    minutes: Measured
    """Their weight."""
    mean_minutes: Measured
    """The part of it since the last release: what the means are of."""
    mean_x: Term
    mean_u: Term
    mean_y: Term
    mean_z: Term
    xx: Term
    """Sums of products of the deviations from the means."""
    xy: Term
    xz: Term
    uu: Term
    uy: Term
    uz: Term
    yy: Term
    yz: Term
    zz: Term
    template: Name = ""
    """Of the newest minute that had one. Another one is a release: the service may bear more or less since."""


class Bin(Message, frozen=True, kw_only=True):
    """What was measured while best-effort pods used this tenth of a node's CPU."""

    minutes: Measured
    """Decayed."""
    mean_permille: Term
    """Logarithm of the slowdown, in thousandths, less what the service's nodes have without best-effort work."""


class LatencyFit(Message, frozen=True, kw_only=True):
    """What was learned of a service's latency, as far as it is published."""

    status: Literal["learning", "learned", "insensitive"]
    slope_permille: Int64
    """Growth of the logarithm of the 99th percentile from no best-effort work to a node full of it, in thousandths."""
    low_permille: Int64
    high_permille: Int64
    shape: Shape = "straight"
    """As in the profile."""
    alone_us: Measured
    """99th percentile without best-effort work."""
    target_us: Count | None = None
    """The newest target; null: none was published."""
    node_hours: Measured
    nodes: Count
    """Nodes with a latency of their own; 1 also for that of all nodes together."""
    sums: Annotated[list[NodeSums], Meta(max_length=NODES_MAX)] = []
    """y is the logarithm of the percentile in ms."""


class ServiceProfile(Message, frozen=True, kw_only=True):
    """What was learned of a service. Topic slacktide.service.profile.v1, compacted. Also the learner's state."""

    service: Service
    observed_ms: TimeMs
    """Event time of the newest minute in it."""
    folded_to: Int64
    """Offset of the last minute that is in it, in the same partition of slacktide.service.minute.v1."""
    folded_from: Int64
    """Offset of the first minute that is in it."""
    status: Literal["learning", "learned", "insensitive"]
    """``learning``: too few node-hours, or too wide an interval; ``insensitive``: even by the upper end of the
    interval, a node full of best-effort work slows it down by less than 25%."""
    slope_permille: Int64 = 0
    """Growth of the logarithm of the slowdown from no best-effort work to a node full of it, in thousandths: the
    median over nodes."""
    low_permille: Int64 = 0
    """Lower end of the slope's interval, which holds the true one 9 times of 10."""
    high_permille: Int64 = 0
    """Upper end."""
    shape: Shape = "straight"
    """``bent``: most of the growth comes with the first percent."""
    alone_permille: Permille = 1_000
    """Slowdown without best-effort work: CPU time plus waiting, by CPU time."""
    node_hours: Measured = 0.0
    """Decayed weight of the minutes behind the slope."""
    nodes: Count = 0
    """Nodes that have some."""
    latency: LatencyFit | None = None
    """The same of the service's latency; null: none was published."""
    signal: Literal["pressure", "latency"] = "pressure"
    """Which of both gives the published slope: the latency as soon as its slope is learned."""
    confirmed_ms: TimeMs = 0
    """Event time of the last minute at which the estimate was good enough to confirm the slope, or to change it."""
    published: ServiceSlope | None = None
    """The slope that the service's nodes got last."""
    bins: Annotated[list[Bin], Meta(max_length=BINS)] = []
    sums: Annotated[list[NodeSums], Meta(max_length=NODES_MAX)] = []


class ServiceSlope(Message, frozen=True, kw_only=True):
    """The slope that nodes use. Topic slacktide.service.slope.v1, compacted. A null value: not learned, or no more."""

    service: Service
    slope_permille: Permille
    """As in the profile, but changed in steps. Of a bent growth it is that of the straight line to a slowdown of
    25%."""
    observed_ms: TimeMs
    """Of the profile behind it."""
    partition: Count
    """Partition of slacktide.service.minute.v1 with the minutes behind it."""
    folded_to: Int64
    """Offset of the last of these minutes."""
