"""Settings of load-aware scheduling, and the resource pairs that it computes with.

Reading: koordinator a7a1b76b, pkg/scheduler/apis/config/types.go, LoadAwareSchedulingArgs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Resource(NamedTuple):
    """A resource's name and unit in terms."""

    name: str
    unit: str


RESOURCES = (Resource("cpu", "milli"), Resource("memory", "bytes"))
"""The resource order of every pair."""


class Amounts(NamedTuple):
    """An amount per resource."""

    cpu_milli: int = 0
    mem_bytes: int = 0


NOTHING = Amounts()


class Percents(NamedTuple):
    """A percentage per resource. A threshold of 0 is not checked."""

    cpu_pct: int
    mem_pct: int


class Factors(NamedTuple):
    """Expected usage in percent of the larger of request and limit, at least 0; None: not set."""

    cpu_pct: int | None = None
    mem_pct: int | None = None


UNSET = Factors()


class Weights(NamedTuple):
    """The weight of each resource in the score, at least 0."""

    cpu: int = 0
    mem: int = 0


class Aggregation(NamedTuple):
    """A statistic of node usage, such as p95 over 300 s."""

    kind: str
    duration_s: int = 0
    """0: the longest recorded duration."""


View = Literal["node", "prod"] | Aggregation


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Usage above which the cluster's nodes, or one node, accept no more pods; None: not set."""

    usage: Percents | None = None
    prod: Percents | None = None
    aggregated: Percents | None = None
    aggregation: Aggregation | None = None
    """The statistic that ``aggregated`` limits. Neither counts without the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAwareArgs:
    """The cluster's settings."""

    thresholds: Thresholds = Thresholds()
    filter_expired: bool = True
    schedule_when_expired: bool = False
    expiration_s: int = 180
    """Age at which a report expires; 0 or less: only a report without a time is expired."""

    weights: Weights | None = None
    """None: equal, or 0 if the dominant resource has a weight."""
    dominant_weight: int = 0
    """Weight of the scarcest resource's score, at least 0."""
    score_prod: bool = False
    """Score production pods by production usage alone."""
    score_aggregation: Aggregation | None = None

    prod_include_system: bool = False
    factors: Factors = UNSET
    allow_customize: bool = False
    """Pod annotations may override the estimation factors and durations."""
    after_scheduled_s: int = 0
    """How long after scheduling a pod counts at least as its estimate; 0 or less: until it is measured."""
    after_initialized_s: int = 0
    """The same from the end of its init containers. Overrides ``after_scheduled_s`` if that time is known."""
    free_class_enable: bool = False
    """Slacktide's own: estimate koord-free pods by their free resources."""
