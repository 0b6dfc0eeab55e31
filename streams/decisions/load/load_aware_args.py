"""Settings of load-aware scheduling as the operator writes them, and the pairs its arithmetic is done on.

Reading: koordinator a7a1b76b, pkg/scheduler/apis/config/types.go, LoadAwareSchedulingArgs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Resource(NamedTuple):
    """What a resource is called in figures."""

    name: str
    unit: str


RESOURCES = (Resource("cpu", "milli"), Resource("memory", "bytes"))
"""The order of every pair here."""


class Amounts(NamedTuple):
    """So much of each resource."""

    cpu_milli: int = 0
    mem_bytes: int = 0


NOTHING = Amounts()


class Percents(NamedTuple):
    """A percent per resource; as a threshold, 0 is not checked."""

    cpu_pct: int
    mem_pct: int


class Factors(NamedTuple):
    """How many percent of what a pod asks for it is expected to use, at least 0; None: not set."""

    cpu_pct: int | None = None
    mem_pct: int | None = None


UNSET = Factors()


class Weights(NamedTuple):
    """How much a resource counts in the score, at least 0."""

    cpu: int = 0
    mem: int = 0


class Aggregation(NamedTuple):
    """A statistic of the node's usage, e.g. p95 over 300 s."""

    kind: str
    duration_s: int = 0
    """0: the longest that was recorded."""


View = Literal["node", "prod"] | Aggregation
"""By which of its figures a node's load is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Usage above which a node takes no more pods, by kind; None: that kind is not set.

    The cluster has such settings, and a node may have its own.
    """

    usage: Percents | None = None
    prod: Percents | None = None
    aggregated: Percents | None = None
    aggregation: Aggregation | None = None
    """What ``aggregated`` is compared with: neither counts without the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAwareArgs:
    """The cluster's settings."""

    thresholds: Thresholds = Thresholds()
    filter_expired: bool = True
    """Whether the filter looks at the age of a report."""
    schedule_when_expired: bool = False
    """Whether a node whose report is too old still takes pods."""
    expiration_s: int = 180
    """Age at which a report is too old; 0 or less: only one without a time is."""

    weights: Weights | None = None
    """None: equal, unless the dominant resource has a weight."""
    dominant_weight: int = 0
    """Weight of the scarcest resource's score, at least 0."""
    score_prod: bool = False
    """Production pods are scored by what production pods use."""
    score_aggregation: Aggregation | None = None

    prod_include_system: bool = False
    """What the system uses counts as use of production."""
    factors: Factors = UNSET
    allow_customize: bool = False
    """A pod's annotations may set how it is estimated, and for how long."""
    after_scheduled_s: int = 0
    """How long after it was scheduled a pod that uses less than its estimate counts as its estimate.

    0 or less: no longer than until it is measured.
    """
    after_initialized_s: int = 0
    """The same, from when its init containers ended; stands instead of the above where that is known."""
    free_class_enable: bool = False
    """Slacktide's own: koord-free pods are estimated by the free resources they ask for."""
