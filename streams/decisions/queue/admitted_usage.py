"""What an admitted workload uses: less once pods are done that nobody runs again.

Reading: kueue v0.19.2, pkg/workload/workload.go, totalRequestsFromAdmission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource, plus


class AdmittedPodSet(NamedTuple):
    """A pod set with what was admitted of it."""

    name: str
    spec_count: int
    """Pods that it asks for."""
    reclaimable: int
    """Pods that are done and free their quota."""
    admitted_count: int | None
    """Pods that were admitted; None: all."""
    usage: Mapping[FlavorResource, int]
    """In total, of all pods that were admitted. Flavor "": none was assigned."""


class PodSetUsage(NamedTuple):
    """What a pod set uses now."""

    name: str
    pods: int
    admitted_pods: int
    usage: Mapping[FlavorResource, int]


def pod_set_usage(one: AdmittedPodSet) -> PodSetUsage:
    """Each pod that is done frees its part, once fewer are left than were admitted."""
    admitted = one.spec_count if one.admitted_count is None else one.admitted_count
    left = one.spec_count - min(one.reclaimable, one.spec_count)
    if left >= admitted:
        return PodSetUsage(one.name, admitted, admitted, one.usage)
    return PodSetUsage(one.name, left, admitted, {of: total // admitted * left for of, total in one.usage.items()})


def admitted_usage(pod_sets: Iterable[PodSetUsage]) -> dict[FlavorResource, int]:
    """The sum over the pod sets."""
    usage: dict[FlavorResource, int] = {}
    for one in pod_sets:
        for of, amount in one.usage.items():
            usage[of] = plus(usage.get(of, 0), amount)
    return usage
