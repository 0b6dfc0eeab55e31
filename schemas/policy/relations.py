"""Relations between a strategy's fields that must hold.

Reading: koordinator a7a1b76b, apis/slo/v1alpha1/nodeslo_types.go (gtfield, ltfield), where it holds within one layer;
here it holds for what comes of all layers, which is what acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slacktide.schemas.message import Message
from slacktide.schemas.policy.budget import EvictionBudget
from slacktide.schemas.policy.descheduling import Descheduling
from slacktide.schemas.policy.fields import value_at
from slacktide.schemas.policy.lacks import MID_PRIORITY_MAX
from slacktide.schemas.policy.names import name_of
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.policy.strategies import ResourceThreshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A field whose value does not go with another's."""

    field: str
    value: object
    accepted: str
    beside: str = ""
    """The other field; "": none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Below:
    lower: str
    upper: str
    or_equal: bool = False


_BELOW: Mapping[type[Message], tuple[_Below, ...]] = {
    ResourceThreshold: (
        _Below(lower="mem_evict_lower_pct", upper="mem_evict_threshold_pct"),
        _Below(lower="cpu_evict_lower_pct", upper="cpu_evict_threshold_pct"),
        _Below(lower="cpu_evict_be_satisfaction_lower_pct", upper="cpu_evict_be_satisfaction_upper_pct", or_equal=True),
        _Below(lower="mem_allocatable_evict_lower_pct", upper="mem_allocatable_evict_threshold_pct"),
        _Below(lower="cpu_allocatable_evict_lower_pct", upper="cpu_allocatable_evict_threshold_pct"),
    ),
    EvictionBudget: (
        _Below(lower="node_max", upper="cluster_max", or_equal=True),
        _Below(lower="namespace_max", upper="cluster_max", or_equal=True),
    ),
    ResourceQos: tuple(
        _Below(lower=f"{name}.resctrl.cat_range_start_pct", upper=f"{name}.resctrl.cat_range_end_pct")
        for name in ("lsr", "ls", "be", "system", "root")
    ),
}


def conflicts(strategy: Message, given: Mapping[str, object]) -> Iterator[Conflict]:
    """Conflicting fields, reported at a field of this layer. Inherited conflicts were reported before.

    Args:
        strategy: what comes of this layer and those below it.
        given: this layer's own fields.
    """
    for below in _BELOW.get(type(strategy), ()):
        lower: Any = value_at(strategy, below.lower)
        upper: Any = value_at(strategy, below.upper)
        if lower is None or upper is None or lower < upper or (below.or_equal and lower == upper):
            continue
        if below.lower in given:
            words = "at most" if below.or_equal else "below"
            accepted = f"{words} {name_of(type(strategy), below.upper)}, which is {upper}"
            yield Conflict(field=below.lower, beside=below.upper, value=lower, accepted=accepted)
        elif below.upper in given:
            words = "at least" if below.or_equal else "above"
            accepted = f"{words} {name_of(type(strategy), below.lower)}, which is {lower}"
            yield Conflict(field=below.upper, beside=below.lower, value=upper, accepted=accepted)
    if isinstance(strategy, Descheduling):
        yield from _bands(strategy)
    priority: Any = given.get("allocatable_evict_priority_threshold")
    if priority is not None and priority > MID_PRIORITY_MAX:
        accepted = f"at most {MID_PRIORITY_MAX}, the maximum of koord-mid"
        yield Conflict(field="allocatable_evict_priority_threshold", value=priority, accepted=accepted)


def _bands(strategy: Descheduling) -> Iterator[Conflict]:
    """A threshold without its other would be 0, or count for nothing; distances to a mean go in any order."""
    for field in (f"{view}{{}}.{resource}" for view in ("", "prod_") for resource in ("cpu_pct", "mem_pct")):
        low, high = field.format("low"), field.format("high")
        lower: Any = value_at(strategy, low)
        upper: Any = value_at(strategy, high)
        if (lower is None) != (upper is None):
            one, other, value = (high, low, upper) if lower is None else (low, high, lower)
            accepted = f"{name_of(Descheduling, other)} beside it, or neither"
            yield Conflict(field=one, beside=other, value=value, accepted=accepted)
        elif lower is not None and lower > upper and not strategy.use_deviation:
            accepted = f"at most {name_of(Descheduling, high)}, which is {upper}"
            yield Conflict(field=low, beside=high, value=lower, accepted=accepted)
