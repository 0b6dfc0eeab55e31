"""Estimates a pod's usage before it is measured; the settings of load-aware scheduling, and a node's own thresholds.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/estimator/default_estimator.go, EstimatePod;
pkg/scheduler/apis/config/types.go, LoadAwareSchedulingArgs; apis/extension/load_aware.go, CustomUsageThresholds. The
products are doubles in the reference's order, which determines the last digit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.keys import seconds_of
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.cores.placement import CoresPod
from slacktide.streams.decisions.numa.placement import ZonedPod


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


DEFAULT_FACTORS = Factors(cpu_pct=85, mem_pct=70)
DEFAULT_AMOUNTS = Amounts(cpu_milli=250, mem_bytes=200 * 2**20)
"""The estimate per resource of a production or batch pod without request and limit."""

_FIELDS = {
    "koord-prod": ("cpu_milli", "mem_bytes"),
    "koord-mid": ("mid_cpu_milli", "mid_mem_bytes"),
    "koord-batch": ("batch_cpu_milli", "batch_mem_bytes"),
    "koord-free": ("free_cpu_milli", "free_mem_bytes"),
}
_WITH_DEFAULT = frozenset({"koord-prod", "koord-batch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAwarePod:
    """A pod with the annotations, conditions and owner that load-aware scheduling reads."""

    pod: Pod
    custom_factors: Factors = UNSET
    custom_after_scheduled_s: int | None = None
    """None or negative: the cluster's setting."""
    custom_after_initialized_s: int | None = None
    scheduled_s: float | None = None
    initialized_s: float | None = None
    daemonset: bool = False
    zoned: ZonedPod | None = None
    """Requests to NUMA zones, if any. Load-aware scheduling does not read them."""
    cores: CoresPod | None = None
    """If it gets CPUs for itself, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Millicores and bytes, each with its arithmetic, CPU first."""

    amounts: Amounts
    because: tuple[Because, Because]


def round_half_away(value: float) -> int:
    """Round halves away from zero. Adding 0.5 instead would round 0.49999999999999994 up."""
    whole = int(value)
    if abs(value - whole) < 0.5:
        return whole
    return whole + (1 if value > 0 else -1)


def estimate(asked: LoadAwarePod, args: LoadAwareArgs) -> Estimate:
    """Compute factor x the larger of request and limit, at most the limit, per resource of the pod's class."""
    of_class = effective_priority_class(asked.pod)
    requests = limits = NOTHING  # as those of free pods in the reference
    if of_class != "koord-free" or args.free_class_enable:
        requests, limits = (
            Amounts(*(getattr(given, name) or 0 for name in _FIELDS[of_class]))
            for given in (asked.pod.requests, asked.pod.limits)
        )
    defaults = DEFAULT_AMOUNTS if of_class in _WITH_DEFAULT else NOTHING
    given = (asked.custom_factors if args.allow_customize else UNSET, args.factors, DEFAULT_FACTORS)
    factors = Percents(
        cpu_pct=next(each.cpu_pct for each in given if each.cpu_pct is not None),
        mem_pct=next(each.mem_pct for each in given if each.mem_pct is not None),
    )
    cpu, mem = RESOURCES
    cpu_milli, cpu_because = _estimated(cpu, requests.cpu_milli, limits.cpu_milli, factors.cpu_pct, defaults.cpu_milli)
    mem_bytes, mem_because = _estimated(mem, requests.mem_bytes, limits.mem_bytes, factors.mem_pct, defaults.mem_bytes)
    return Estimate(amounts=Amounts(cpu_milli, mem_bytes), because=(cpu_because, mem_because))


def _estimated(resource: Resource, request: int, limit: int, factor_pct: int, default: int) -> tuple[int, Because]:
    """Estimate one resource; ``bound``: scaled, capped, default (no request) or nothing."""
    of, unit = f"{resource.name}_{resource.unit}", resource.unit
    quantity = max(request, limit)
    terms: Terms = {f"request_{unit}": request, f"limit_{unit}": limit}
    if not quantity:
        terms |= {f"estimate_{unit}": default}
        return default, Because(of=of, bound="default" if default else "nothing", terms=terms)
    scaled = round_half_away(float(quantity) * float(factor_pct) / 100)
    capped = 0 < limit < scaled
    amount = limit if capped else scaled
    terms |= {"factor_pct": factor_pct, f"scaled_{unit}": scaled, f"estimate_{unit}": amount}
    return amount, Because(of=of, bound="capped" if capped else "scaled", terms=terms)


ANNOTATION = "scheduling.koordinator.sh/usage-thresholds"
STATISTICS = ("avg", "p50", "p90", "p95", "p99")
_PerResource = dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class _Aggregated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    usage_thresholds: _PerResource | None = None
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = "0s"


class _Custom(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    usage_thresholds: _PerResource | None = None
    prod_usage_thresholds: _PerResource | None = None
    aggregated_usage: _Aggregated | None = None


def own_thresholds(annotations: Mapping[str, str]) -> Thresholds:
    """Parse the node's annotation; empty without it. Raises BadMessageError if the annotation is invalid."""
    text = annotations.get(ANNOTATION)
    if not text:
        return Thresholds()
    try:
        custom: _Custom = json_of(text, _Custom, where=ANNOTATION)
        aggregated = custom.aggregated_usage or _Aggregated()
        kind, duration = aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration
        if kind and kind not in STATISTICS:
            raise ValueError(f"usageAggregationType is {kind!r}; accepted: {', '.join(STATISTICS)}")  # noqa: TRY301
        return Thresholds(
            usage=_given_percents(custom.usage_thresholds),
            prod=_given_percents(custom.prod_usage_thresholds),
            aggregated=_given_percents(aggregated.usage_thresholds),
            aggregation=Aggregation(kind, 0 if duration == "0s" else seconds_of(duration)) if kind else None,
        )
    except ValueError as exc:
        raise BadMessageError(ANNOTATION, str(exc)) from exc


def _given_percents(given: _PerResource | None) -> Percents | None:
    return Percents(given.get("cpu", 0), given.get("memory", 0)) if given else None
