"""Computes the quota that a pending workload lacks, on the flavor that lacks least, and estimates its wait.

The wait is an interval, from the position and recent admissions. Admissions are assumed to be independent, at an
unchanged rate. Both ends are bounds at 90%, of the rate and of the arrival of the admission. Quantiles of the gamma
distribution are approximated after Wilson and Hilferty (1931).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.assign import Cluster, PodSet
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, matches
from slacktide.streams.decisions.queue.queue_order import STOPPED
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, minus, plus


class Missing(NamedTuple):
    """Quota that a workload lacks."""

    amounts: Mapping[FlavorResource, int]
    uncovered: tuple[str, ...]
    """Resources without quota in its ClusterQueue."""
    unmatched: tuple[str, ...]


def missing(pod_sets: Sequence[PodSet], cluster: Cluster) -> Missing:
    """Return what all pods lack without preemption. Process pod sets in order, each on the flavor that lacks least."""
    used: dict[FlavorResource, int] = {}
    lacking: dict[FlavorResource, int] = {}
    uncovered: set[str] = set()
    unmatched: list[str] = []
    for one in pod_sets:
        requests = {resource: amount * one.pods for resource, amount in one.requests.items()}
        if any("pods" in group.resources for group in cluster.groups):
            requests["pods"] = one.pods
        covered = {resource for group in cluster.groups for resource in group.resources}
        uncovered |= {resource for resource, amount in requests.items() if amount and resource not in covered}
        for group in cluster.groups:
            part = {resource: amount for resource, amount in requests.items() if resource in group.resources}
            if not part:
                continue
            flavors = [name for name in group.flavors if matches(one.nodes, cluster.flavors.get(name, NodeFlavor()))]
            if not flavors:
                unmatched.append(one.name)
                continue
            tried = [_lacks(name, part, used, cluster) for name in flavors]
            lacks = min(tried, key=partial(_worst, part=part))
            lacking |= {of: amount for of, amount in lacks.items() if amount > 0}
            for of in lacks:
                used[of] = plus(used.get(of, 0), part[of.resource])
    return Missing(lacking, tuple(sorted(uncovered)), tuple(dict.fromkeys(unmatched)))


def _lacks(
    flavor: str, part: Mapping[str, int], used: Mapping[FlavorResource, int], cluster: Cluster
) -> dict[FlavorResource, int]:
    of_flavor = {FlavorResource(flavor, resource): amount for resource, amount in part.items()}
    return {
        of: max(0, minus(plus(used.get(of, 0), amount), max(0, cluster.usage.available(cluster.queue, of))))
        for of, amount in of_flavor.items()
    }


def _worst(lacks: Mapping[FlavorResource, int], part: Mapping[str, int]) -> float:
    return max(amount / max(1, part[of.resource]) for of, amount in lacks.items())


WINDOW_S = 3_600
Z_90 = 1.2816
"""Quantile of the normal distribution: 10% are above it."""
State = Literal["interval", "unknown", "never"]


class Wait(NamedTuple):
    """The estimated wait."""

    state: State
    reason: str = ""
    least_s: int = 0
    most_s: int = 0


def wait(position: int, admitted_count: int, *, blocked_by: str = "", window_s: int = WINDOW_S) -> Wait:
    """Estimate the wait at a position (1: next) by the admissions in the window.

    ``blocked_by``: why the last try failed; "": it was not tried, or may be retried immediately.
    """
    if blocked_by == "ExceedsMaxQuota":
        return Wait("never", "it requests more than its ClusterQueue could ever use")
    if blocked_by in STOPPED:
        return Wait("unknown", f"its queue is stopped: {blocked_by}")
    if blocked_by:
        return Wait("unknown", f"it waits for quota: {blocked_by}")
    if not admitted_count:
        return Wait("unknown", f"nothing was admitted in the last {window_s} s")
    fast = _quantile(admitted_count + 1, Z_90) / window_s
    slow = _quantile(admitted_count, -Z_90) / window_s
    return Wait("interval", "", int(_quantile(position, -Z_90) / fast), math.ceil(_quantile(position, Z_90) / slow))


def _quantile(shape: int, z: float) -> float:
    """Return a quantile of a gamma distribution with a scale of 1; above 0."""
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return shape * max(root, 0.01) ** 3
