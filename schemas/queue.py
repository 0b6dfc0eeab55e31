"""The job queue in the log: what it decides on, what it decided, and what came of it. Each topic has one partition."""

from typing import Literal

import msgspec

from slacktide.schemas.bounds import Count, Int32, Int64, Measured, Name, TimeMs
from slacktide.schemas.message import Message
from slacktide.schemas.queue_objects import (
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    NamespaceObject,
    Part,
    QueueObject,
    ResourceFlavorObject,
    WorkloadObject,
)


class NodeSize(Part, frozen=True, kw_only=True):
    """The batch resources of one node."""

    cpu_milli: Int64 = 0
    memory_bytes: Int64 = 0


class OfferedSpec(NodeSize, frozen=True, kw_only=True):
    """The batch resources of a flavor's nodes, damped."""

    nodes: list[NodeSize] = []
    """The batch resources of each node at the time of this record, not damped. Empty: unknown."""


class OfferedObject(QueueObject, frozen=True, kw_only=True):
    """Not of Kubernetes: the figure that quotas are a share of. Its name is the flavor's."""

    spec: OfferedSpec = OfferedSpec()


Phase = Literal["pending", "reserved", "evicting", "finished", "gone"]
Result = Literal["started", "ready", "unready", "stopped", "finished", "conflict", "refused"]
OFFERED_KEY = "Sold"
"""What the keys of records call it, since 0.2."""
REQUEUING_LIMIT = "RequeuingLimitExceeded"
"""Reason of a state: its pods were not ready in time too often, and it is to be set inactive."""


class QueueSpec(Message, frozen=True, kw_only=True):
    """One object that the queue uses; exactly one field is set. Null value: it was deleted."""

    cluster_queue: ClusterQueueObject | None = None
    cohort: CohortObject | None = None
    resource_flavor: ResourceFlavorObject | None = None
    local_queue: LocalQueueObject | None = None
    namespace: NamespaceObject | None = None
    offered: OfferedObject | None = msgspec.field(name="sold", default=None)
    """Written by the decider: the batch resources of a flavor's nodes."""

    @property
    def objects(self) -> list[QueueObject]:
        """All that are set."""
        given = [getattr(self, field) for field in FIELDS.values()]
        return [one for one in given if one is not None]


FIELDS: dict[type[QueueObject], str] = {
    ClusterQueueObject: "cluster_queue",
    CohortObject: "cohort",
    ResourceFlavorObject: "resource_flavor",
    LocalQueueObject: "local_queue",
    NamespaceObject: "namespace",
    OfferedObject: "offered",
}


def spec_of(one: QueueObject) -> QueueSpec | None:
    """The record of an object; None: the queue does not use this kind."""
    field = FIELDS.get(type(one))
    return None if field is None else msgspec.structs.replace(QueueSpec(), **{field: one})


def spec_key(one: QueueObject) -> str:
    """Kind/NAME, or LocalQueue/NAMESPACE/NAME."""
    kind, name = type(one).__name__.removesuffix("Object"), one.metadata.name
    kind = OFFERED_KEY if isinstance(one, OfferedObject) else kind
    return (
        f"{kind}/{one.metadata.namespace or 'default'}/{name}"
        if isinstance(one, LocalQueueObject)
        else f"{kind}/{name}"
    )


class QueueWorkload(Message, frozen=True, kw_only=True):
    """A workload as it is wanted. Null value: it was deleted, and holds no quota."""

    uid: Name
    workload: WorkloadObject


class QueueOutcome(Message, frozen=True, kw_only=True):
    """What came of an admission."""

    uid: Name
    result: Result
    """``started``. ``ready``: all its pods are ready or done. ``unready``: they were, and one is not any more.
    ``stopped``: no pod of it runs any more. ``finished``: it is done. ``conflict``, ``refused``: it was
    not started."""
    epoch: Count
    turn: Count
    """With the epoch: of the admission that it answers. An answer to an earlier one changes nothing."""
    why: str = ""
    acted_ms: TimeMs = 0
    """UTC epoch: evidence, never order."""


class QueuePodSet(Message, frozen=True, kw_only=True):
    """A pod set as it was admitted."""

    name: Name
    count: Int32
    flavors: dict[str, str]
    """By resource."""
    usage: dict[str, Int64]
    """By resource, of all its pods: CPU in millicores, memory in bytes, others in whole units."""


class QueueBooking(Message, frozen=True, kw_only=True):
    """Quota that a workload holds. It is booked when it is decided, whatever Kubernetes answers."""

    epoch: Count
    turn: Count
    """With the epoch: of the decision that admitted it. Outcomes name it."""
    cluster_queue: Name
    reserved_ms: TimeMs
    pod_sets: list[QueuePodSet]


class QueueState(Message, frozen=True, kw_only=True):
    """Where a workload stands. One without a record waits and was not tried yet."""

    uid: Name
    phase: Phase
    """``pending``: it holds no quota. ``reserved``: it holds some. ``evicting``: it is to stop, and holds it until it
    has. ``finished``. ``gone``: it was deleted."""
    epoch: Count
    turn: Count
    """With the epoch: of the decision that made it so. The highest holds."""
    reason: str = ""
    """Why it waits or is to stop."""
    booking: QueueBooking | None = None
    started: bool = False
    preemptor: Name = ""
    """Uid of the workload for which it is to stop."""
    evicted_ms: TimeMs = 0
    """When it last was to stop."""
    evicted_reason: str = ""
    """Why, if it was not preempted: ``PodsReadyTimeout``, ``Deactivated``."""
    ready_reason: Literal["", "Started", "WaitForRecovery", "Recovered"] = ""
    """Reason of the condition PodsReady of its booking. "": its pods were never ready."""
    ready_ms: TimeMs = 0
    """Since when."""
    requeue_count: Count = 0
    """How often it was evicted because its pods were not ready, since it was last set active."""
    retry_ms: TimeMs = 0
    """It is not tried before then."""

    @property
    def pods_ready(self) -> bool:
        """Whether all its pods are ready."""
        return self.ready_reason in {"Started", "Recovered"}


class QueueParty(Message, frozen=True, kw_only=True):
    """A workload that preempts or is preempted."""

    uid: Name
    cluster_queue: Name
    priority: Int32
    share_before: Measured
    """How much its ClusterQueue borrows, by its weight."""
    share_after: Measured


class QueueEviction(Message, frozen=True, kw_only=True):
    """A preemption: the preemptor, the victim, and the reason."""

    cycle: Count
    preemptor: QueueParty
    victim: QueueParty
    reason: str


class QueueRead(Message, frozen=True, kw_only=True):
    """Offsets up to which a decision knows its inputs; the record at an offset is not read yet."""

    spec: Count
    workload: Count
    outcome: Count


class PodsReadySettings(Message, frozen=True, kw_only=True):
    """Kueue's ``waitForPodsReady``."""

    timeout_s: Count
    recovery_timeout_s: Count = 0
    """0: a workload whose pods were ready once is not evicted."""
    backoff_base_s: Count = 60
    backoff_max_s: Count = 3_600
    backoff_limit: Count | None = None
    """So many evictions; the next one deactivates the workload. None: without a limit."""
    block_admission: bool = False
    """Admit nothing while a workload with quota waits for its pods."""


class QueueDecision(Message, frozen=True, kw_only=True):
    """One turn of the decider, and the commit of what it has read: inputs, time and result are one record.

    Turn 0 begins a term. From there on no record of a lower epoch counts, nor one of the same epoch by another process.
    """

    epoch: Count
    turn: Count
    process: Name
    decided_ms: TimeMs
    """The only time that the decision went by."""
    read: QueueRead
    fair_sharing: bool = False
    """Of the term."""
    pods_ready: PodsReadySettings | None = None
    """Of the term. None: pods are not waited for."""
    allowed: list[str] = []
    """Uids of workloads for which there was eviction credit: they stop if they exceed a quota that shrank."""
    tried: Count = 0
    """Workloads that were tried, each as often as it was."""
    changes: list[QueueState] = []
    """Of each workload that changed: where it stands now."""
    evictions: list[QueueEviction] = []
