"""What Kubernetes shows of a Job and of its pods. Topic slacktide.job.pod.v1, key: the Job's uid. Bridge to stream."""

from typing import Annotated, Literal

from msgspec import Meta

from slacktide.schemas.bounds import Amount, Count, Int32, Name, TimeMs, WriterEpoch
from slacktide.schemas.inventory import Ignored
from slacktide.schemas.message import Message

INDEXES_MAX = 100_000
"""Kubernetes' own limit for the completions of an Indexed Job with a parallelism above 10,000."""
CHARS_MAX = 1_024
EXITS_MAX, CONDITIONS_MAX = 50, 21
"""Of one pod. Kubernetes has no such limits: a pod may have hundreds of containers."""
Text = Annotated[str, Meta(max_length=CHARS_MAX)]
Indexes = Annotated[str, Meta(max_length=700_000)]
"""As Kubernetes writes them: ``0-9,12``. 100,000 indexes with a gap behind each fit."""
Action = Literal["FailJob", "FailIndex", "Ignore", "Count"]
ConditionStatus = Literal["True", "False", "Unknown"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


class FailureRule(Message, frozen=True, kw_only=True):
    """One rule of a podFailurePolicy: by exit codes where ``operator`` is set, else by conditions of the pod."""

    action: Action
    operator: Literal["", "In", "NotIn"] = ""
    values: Annotated[list[Int32], Meta(max_length=255)] = []
    container: Name | None = None
    """None: any."""
    pod_conditions: Annotated[dict[str, str], Meta(max_length=20)] = {}
    """Status by type; one of them suffices."""


class SuccessRule(Message, frozen=True, kw_only=True):
    """One rule of a successPolicy. ``count`` without indexes is of any indexes."""

    indexes: Indexes = ""
    count: Count | None = None


class JobSpec(Message, frozen=True, kw_only=True):
    """What of a Job's spec decides on its status."""

    completions: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    parallelism: Count = 1
    indexed: bool = False
    suspend: bool = False
    backoff_limit: Count = 6
    backoff_limit_per_index: Count | None = None
    max_failed_indexes: Count | None = None
    replaces_failed_only: bool = False
    """A pod that is being deleted has not failed yet: podReplacementPolicy ``Failed``, or a podFailurePolicy."""
    restarts_on_failure: bool = False
    """The pods' restartPolicy is ``OnFailure``."""
    failure_rules: Annotated[list[FailureRule], Meta(max_length=20)] | None = None
    """None: no podFailurePolicy."""
    success_rules: Annotated[list[SuccessRule], Meta(max_length=20)] | None = None
    ignored: Ignored = []
    """What users wrote into the Job and its pod template, and no rule can read."""


class JobCondition(Message, frozen=True, kw_only=True):
    """One condition, without its times."""

    type: Name
    status: ConditionStatus = "True"
    reason: Text = ""
    message: Text = ""


class ControllerStatus(Message, frozen=True, kw_only=True):
    """What the Job controller has counted, as the Job shows it."""

    succeeded: Count = 0
    failed: Count = 0
    completed_indexes: Indexes = ""
    failed_indexes: Indexes = ""
    conditions: Annotated[list[JobCondition], Meta(max_length=50)] = []


class ContainerExit(Message, frozen=True, kw_only=True):
    """How a container ended; containers before init containers, as a podFailurePolicy reads them."""

    name: Name
    exit_code: Int32


class JobEviction(Message, frozen=True, kw_only=True):
    """Why Slacktide evicted a pod, from its outcome."""

    node: Name
    rule: Name
    bound: Name = ""
    threshold: Text = ""
    """Terms of the rule, such as ``threshold_pct 70``."""
    acted_ms: TimeMs


class JobPodFacts(Message, frozen=True, kw_only=True):
    """One pod of a Job."""

    uid: Name
    name: Name
    node: Name = ""
    index: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    phase: Phase
    reason: Text = ""
    """Why it failed, as the pod or its disruption states, such as ``Evicted``, ``DeletionByPodGC`` or ``NodeLost``."""
    ready: bool = False
    deleting: bool = False
    tracked: bool = False
    """It has, or ended with, the finalizer by which the Job controller knows that it has not counted this pod yet."""
    last: bool = False
    """No more follows: the pod is gone, or has ended and is counted."""
    exits: Annotated[list[ContainerExit], Meta(max_length=EXITS_MAX)] = []
    """Of containers that failed."""
    pod_conditions: Annotated[dict[str, str], Meta(max_length=CONDITIONS_MAX)] = {}
    """Status by type, in the pod's order: those that rules of the Job name, and DisruptionTarget."""
    restarts: Count = 0
    index_failures: Count = 0
    """Failures of this index before this pod, by its annotation."""
    cpu_milli: Amount = 0
    """CPU that it requests, batch or native."""
    started_ms: TimeMs = 0
    """0: not started."""
    ended_ms: TimeMs = 0
    """When its last container ended; 0: unknown."""
    eviction: JobEviction | None = None


class JobEvent(Message, frozen=True, kw_only=True):
    """One change: of the Job (``spec``), of one of its pods (``pod``), or of what there is."""

    uid: Name
    namespace: Name
    name: Name
    writer_epoch: WriterEpoch = 0
    observed_ms: TimeMs
    """When the bridge saw it."""
    spec: JobSpec | None = None
    counted: ControllerStatus | None = None
    """With ``spec``."""
    pod: JobPodFacts | None = None
    listed: bool = False
    """This bridge has named all pods of the Job: those that only an earlier one named are gone."""
    gone: bool = False
    """The Job is gone."""
