"""Explains the queue's reasons for Events and ``slacktide explain job``: cause and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


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
    return MEANINGS.get(reason, UNKNOWN)
