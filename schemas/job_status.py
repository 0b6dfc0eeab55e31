"""Where a Job stands. Topic slacktide.job.status.v1, key: the Job's uid. Stream to operators; also the fold's state."""

from typing import Annotated, Literal

from msgspec import Meta

from slacktide.schemas.bounds import Count, Int64, Name, TimeMs, Total, WriterEpoch
from slacktide.schemas.job_pod import ContainerExit, ControllerStatus, Indexes, JobCondition, JobEviction, JobSpec, Text
from slacktide.schemas.message import Message

RECENT_MAX = 20
EVICTIONS_MAX = 10
PROGRESS_MAX = 64


class PodEnd(Message, frozen=True, kw_only=True):
    """How one pod failed."""

    pod: Name
    node: Name = ""
    index: Count | None = None
    result: Literal["failed", "ignored"]
    """``failed``; ``ignored``: a rule of the Job has it that it does not count."""
    why: Text = ""
    """Which rule matched, or how it ended."""
    exits: list[ContainerExit] = []
    seen_ms: TimeMs
    lost_core_ms: Total = 0


class EvictedPod(Message, frozen=True, kw_only=True):
    """A pod that Slacktide evicted."""

    pod: Name
    index: Count | None = None
    eviction: JobEviction


class Progress(Message, frozen=True, kw_only=True):
    """How far it was at a time."""

    seen_ms: TimeMs
    succeeded: Count
    failed: Count


class FailureCount(Message, frozen=True, kw_only=True):
    """How many pods failed, or were ignored, by one rule."""

    why: Text
    """The rule that matched, else how they ended."""
    pods: Count


class JobStatus(Message, frozen=True, kw_only=True):
    """As the Job controller writes it, from the pods alone, and what follows from them besides."""

    uid: Name
    namespace: Name
    name: Name
    writer_epoch: WriterEpoch = 0
    folded_to: Int64
    """Offset of the last event that is in it, in the same partition of slacktide.job.pod.v1."""
    observed_ms: TimeMs
    spec: JobSpec | None = None
    counted: ControllerStatus | None = None
    """What the Job controller last showed."""
    active: Count = 0
    ready: Count = 0
    terminating: Count = 0
    succeeded: Count = 0
    failed: Count = 0
    completed_indexes: Indexes = ""
    failed_indexes: Indexes | None = None
    """None: no backoffLimitPerIndex."""
    conditions: list[JobCondition] = []
    decided: JobCondition | None = None
    """The condition that ends it, by its pods: FailureTarget or SuccessCriteriaMet."""
    was_suspended: bool = False
    unseen_succeeded: Count = 0
    """Of ``succeeded``: those that the controller counted, and no event showed."""
    unseen_failed: Count = 0
    unseen_indexes: Indexes = ""
    unseen_failed_indexes: Indexes = ""
    failures: Annotated[list[FailureCount], Meta(max_length=1_000)] = []
    """The most frequent first."""
    evictions: Count = 0
    lost_core_ms: Total = 0
    """CPU requested times running time, of pods that did not succeed. 1,000 are a core-second."""
    recent: Annotated[list[PodEnd], Meta(max_length=RECENT_MAX)] = []
    """Pods that failed, the newest last."""
    evicted: Annotated[list[EvictedPod], Meta(max_length=EVICTIONS_MAX)] = []
    progress: Annotated[list[Progress], Meta(max_length=PROGRESS_MAX)] = []
