"""Computes the usage of an admitted workload, without pods that will not run again.

Reading: kueue v0.19.2, pkg/workload/workload.go, totalRequestsFromAdmission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slacktide.streams.decisions.queue.quota_tree import FlavorResource, plus


class AdmittedPodSet(NamedTuple):
    """A pod set and its admission."""

    name: str
    spec_count: int
    reclaimable: int
    """Finished pods whose quota is released."""
    admitted_count: int | None
    usage: Mapping[FlavorResource, int]
    """Total of all admitted pods. Flavor "": none was assigned."""


class PodSetUsage(NamedTuple):
    """The current usage of a pod set."""

    name: str
    pods: int
    admitted_pods: int
    usage: Mapping[FlavorResource, int]


def pod_set_usage(one: AdmittedPodSet) -> PodSetUsage:
    """Release the part of each finished pod once fewer pods remain than were admitted."""
    admitted = one.spec_count if one.admitted_count is None else one.admitted_count
    left = one.spec_count - min(one.reclaimable, one.spec_count)
    if left >= admitted:
        return PodSetUsage(one.name, admitted, admitted, one.usage)
    return PodSetUsage(one.name, left, admitted, {of: total // admitted * left for of, total in one.usage.items()})


def admitted_usage(pod_sets: Iterable[PodSetUsage]) -> dict[FlavorResource, int]:
    """Return the sum over the pod sets."""
    usage: dict[FlavorResource, int] = {}
    for one in pod_sets:
        for of, amount in one.usage.items():
            usage[of] = plus(usage.get(of, 0), amount)
    return usage
