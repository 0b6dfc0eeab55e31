"""Computes the quota that a pending workload lacks, on the flavor that lacks least; estimates and explains its wait.

The wait is an interval, from the position and recent admissions. Admissions are assumed to be independent, at an
unchanged rate. Both ends are bounds at 90%, of the rate and of the arrival of the admission. Quantiles of the gamma
distribution are approximated after Wilson and Hilferty (1931).
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.assign import Cluster, PodSet
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, matches
from slacktide.streams.decisions.queue.queue_order import CHECK, STOPPED
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
            tried = []
            for name in flavors:
                of_flavor = {FlavorResource(name, resource): amount for resource, amount in part.items()}
                left = {of: max(0, cluster.usage.available(cluster.queue, of)) for of in of_flavor}
                needs = {of: plus(used.get(of, 0), amount) for of, amount in of_flavor.items()}
                tried.append({of: max(0, minus(needs[of], left[of])) for of in of_flavor})
            shares = [max(lack / max(1, part[of.resource]) for of, lack in lacks.items()) for lacks in tried]
            lacks = tried[shares.index(min(shares))]
            lacking |= {of: amount for of, amount in lacks.items() if amount > 0}
            for of in lacks:
                used[of] = plus(used.get(of, 0), part[of.resource])
    return Missing(lacking, tuple(sorted(uncovered)), tuple(dict.fromkeys(unmatched)))


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
    if blocked_by.startswith(CHECK):
        return Wait("unknown", f"its queue needs an admission check: {blocked_by.removeprefix(CHECK)}")
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


class Meaning(NamedTuple):
    """The explanation of a reason."""

    why: str
    remedy: str = ""
    """What would admit the workload; "": the quota that it lacks."""


_IN_USE = "The quota that it needs is in use."
MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {
        "NoFit": Meaning("The quota that it needs is in use, or no flavor fits it."),
        "PreemptionNoCandidates": Meaning(f"{_IN_USE} No workload may be preempted for it."),
        "PendingPreemption": Meaning("Workloads that use its quota are being stopped."),
        "PreemptionRepeats": Meaning(
            "It preempted the same workload before, and that took the quota back. Again would repeat without end.",
            "quota, when a workload of its cohort finishes: it and another one would preempt each other without end",
        ),
        "FailedAfterNomination": Meaning("Another workload took its quota first, or it could not be started."),
        "ExceedsMaxQuota": Meaning(
            "It requests more than its ClusterQueue can ever use.",
            "a larger quota, or a smaller Job: it requests more than its ClusterQueue could ever use",
        ),
        "NamespaceMismatch": Meaning(
            "Its ClusterQueue does not admit workloads of this namespace.",
            "a namespaceSelector of its ClusterQueue that selects its namespace",
        ),
        "ClusterQueueStopped": Meaning(
            "Its ClusterQueue is stopped by its stopPolicy.", "stopPolicy None of its ClusterQueue"
        ),
        "LocalQueueStopped": Meaning(
            "Its LocalQueue is stopped by its stopPolicy.", "stopPolicy None of its LocalQueue"
        ),
        "WaitingForPodsReady": Meaning(
            "Pods of other admitted workloads are not ready yet.",
            "the pods of admitted workloads, when they are ready",
        ),
        "NoRoomForAllPods": Meaning(
            "Its quota suffices, but the nodes do not have room for all of its pods at once.",
            "nodes with room for all of its pods at once",
        ),
        "PodsReadyTimeout": Meaning("Its pods were not ready in time, so it was stopped."),
        "RequeuingLimitExceeded": Meaning(
            "Its pods were not ready in time too often. It is not retried.",
            "spec.active false and then true again: its pods were not ready in time too often",
        ),
        "QuotaShrank": Meaning("It was stopped, because the batch resources of its nodes fell below its quota."),
        "Deactivated": Meaning("It was set inactive.", "spec.active true"),
        "Adopted": Meaning("It had quota before the queue read it."),
        "Stopped": Meaning("It was stopped, and is pending again."),
        "InClusterQueue": Meaning("It was preempted by a workload of its own ClusterQueue."),
        "InCohortReclamation": Meaning("It was preempted: its ClusterQueue borrowed quota that another one took back."),
        "InCohortFairSharing": Meaning("It was preempted: its ClusterQueue had the larger share of its cohort."),
        "InCohortReclaimWhileBorrowing": Meaning(
            "It was preempted by a workload of its cohort that borrows and has a higher priority."
        ),
    }
)
UNKNOWN = Meaning("The queue has not admitted it.")
"""Of a reason from another version."""


def meaning(reason: str) -> Meaning:
    """Return the explanation; of an unknown reason, that the workload was not admitted."""
    if reason.startswith(CHECK):
        check = f"the admission check {reason.removeprefix(CHECK)}"
        return Meaning(
            f"Its ClusterQueue needs {check}, which Slacktide does not execute.", f"a ClusterQueue without {check}"
        )
    return MEANINGS.get(reason, UNKNOWN)
