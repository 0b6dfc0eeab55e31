"""The kinds that the queue reads, in the newest version that the API server serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from slacktide.agents.kubernetes import NAMESPACES, PRIORITY_CLASSES, ApiRefusedError, ApiServer, Resource
from slacktide.schemas.queue_objects import (
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    NamespaceObject,
    PriorityClassObject,
    QueueObject,
    ResourceFlavorObject,
    WorkloadPriorityClassObject,
)

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
NOT_FOUND = 404


class Spec(NamedTuple):
    """A kind that the queue's decisions depend on."""

    type: type[QueueObject]
    plural: str


SPECS = {
    "ClusterQueue": Spec(ClusterQueueObject, "clusterqueues"),
    "Cohort": Spec(CohortObject, "cohorts"),
    "ResourceFlavor": Spec(ResourceFlavorObject, "resourceflavors"),
    "LocalQueue": Spec(LocalQueueObject, "localqueues"),
    "WorkloadPriorityClass": Spec(WorkloadPriorityClassObject, "workloadpriorityclasses"),
    "Namespace": Spec(NamespaceObject, "namespaces"),
    "PriorityClass": Spec(PriorityClassObject, "priorityclasses"),
}
NEEDED = {"ClusterQueue", "ResourceFlavor", "LocalQueue"}


class _Served(msgspec.Struct, frozen=True):
    name: str


class _List(msgspec.Struct, frozen=True):
    resources: list[_Served] = []


def workloads_of(plurals: Mapping[str, str]) -> Resource | None:
    """Return the kind Workload; None if the API server does not serve it."""
    version = plurals.get("workloads")
    return None if version is None else Resource(group=GROUP, version=version, plural="workloads")


async def served(api: ApiServer) -> tuple[dict[str, Resource], dict[str, str]]:
    """Return the served kinds, and all plurals of Kueue's group with their versions.

    Return no kinds if a required one is missing. Raises ApiError if the API server cannot be queried.
    """
    plurals: dict[str, str] = {}
    for version in VERSIONS:
        try:
            text = await api.text(f"/apis/{GROUP}/{version}")
        except ApiRefusedError as exc:
            if exc.status != NOT_FOUND:
                raise
            continue
        for one in msgspec.json.decode(text, type=_List).resources:
            plurals.setdefault(one.name, version)
    found = {
        kind: Resource(group=GROUP, version=plurals[one.plural], plural=one.plural)
        for kind, one in SPECS.items()
        if one.plural in plurals
    }
    if not found.keys() >= NEEDED:
        return {}, plurals
    return {**found, "Namespace": NAMESPACES, "PriorityClass": PRIORITY_CLASSES}, plurals
