"""A candidate for eviction: its priority, and the resources that its eviction frees.

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
    """A candidate for eviction. Candidates compare by identity, not by name."""

    pod: Pod
    used: int | None = None
    """Millicores or bytes of the decision's measure, as last measured; None: no metric."""
    already_evicted: bool = False
    """Evicted in an earlier run, but still present."""
    kept: bool = False
    """A recent eviction failed."""
    spared: bool = False
    """Its requests count, but it is never evicted."""


def priority_with_default(pod: Pod) -> int:
    """Return the pod's priority. Without one, or for 0, return the middle of its class's band."""
    return pod.priority or _DEFAULT_PRIORITY[effective_priority_class(pod)]


def own_resource(pod: Pod, measure: Measure) -> str:
    """Return the resource of the pod's class: native for prod, and for free pods that request no free resources."""
    band = effective_priority_class(pod)
    sold_to_free = _FREE_PREFIX + measure
    if band == "koord-free" and getattr(pod.requests, sold_to_free) is not None:
        return sold_to_free
    return _OWN_PREFIX.get(band, "") + measure


def own_resources(measure: Measure) -> tuple[str, ...]:
    """Return all results of ``own_resource``, in a fixed order."""
    return tuple(prefix + measure for prefix in ("", *_OWN_PREFIX.values(), _FREE_PREFIX))


def amount_of(resources: Resources, name: str) -> int:
    """Return an amount by its name; 0 if it is not declared."""
    amount: int | None = getattr(resources, name)
    return amount or 0
