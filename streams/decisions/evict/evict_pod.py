"""A pod as eviction sees it: how important it is and what its end would free.

Reading: koordinator a7a1b76b, apis/extension/priority_utils.go, GetPodPriorityValueWithDefault;
pkg/koordlet/qosmanager/plugins/util/evict_utils.go, GetRequestTypeAndValueFromPod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.qos import BANDS, effective_priority_class

Amounts = dict[str, int]
"""Millicores and bytes, by the names of the fields of ``Resources``."""
Measure = Literal["cpu_milli", "mem_bytes"]
"""What a decision is about; also the native resource of that name."""

_DEFAULT_PRIORITY = {name: low + 500 for name, (low, _) in BANDS.items()}
_OWN_PREFIX = {"koord-batch": "batch_", "koord-mid": "mid_"}
_FREE_PREFIX = "free_"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictPod:
    """A pod and what decides over its eviction. Two entries are two pods, whatever their names."""

    pod: Pod
    used: int | None = None
    """Millicores or bytes of the decision's measure, as last measured; None: no metric."""
    already_evicted: bool = False
    """Evicted in an earlier run and still there."""
    kept: bool = False
    """It could not be evicted a moment ago."""
    spared: bool = False
    """It counts for what was requested, and may not go whatever its own labels are."""


def priority_with_default(pod: Pod) -> int:
    """The pod's number; where it has none or 0, the middle of its class's band."""
    return pod.priority or _DEFAULT_PRIORITY[effective_priority_class(pod)]


def own_resource(pod: Pod, measure: Measure) -> str:
    """The resource a pod counts for: its class's own, the native one for prod.

    So for koord-free, too, as in the reference, unless the pod asks for what Slacktide sells to that class.
    """
    band = effective_priority_class(pod)
    sold_to_free = _FREE_PREFIX + measure
    if band == "koord-free" and getattr(pod.requests, sold_to_free) is not None:
        return sold_to_free
    return _OWN_PREFIX.get(band, "") + measure


def own_resources(measure: Measure) -> tuple[str, ...]:
    """All that ``own_resource`` can give, in a fixed order."""
    return tuple(prefix + measure for prefix in ("", *_OWN_PREFIX.values(), _FREE_PREFIX))


def amount_of(resources: Resources, name: str) -> int:
    """One amount by its name; one that is not declared is 0."""
    amount: int | None = getattr(resources, name)
    return amount or 0
