"""Computes the quota that a pending workload lacks, on the flavor that lacks least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from slacktide.streams.decisions.queue.amount import FlavorResource, minus, plus
from slacktide.streams.decisions.queue.assign import Cluster, PodSet
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, matches


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
