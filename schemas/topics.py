"""The table of topics: content, producers, consumers and retention.

A node's latest state (metric, allocatable, score) is published again within 30 s. Heartbeats cover it in between. A
reader freezes a node that was neither published nor covered for 15 s: nothing is placed there, nothing withdrawn.
docs/silence.md has the rule.
"""

from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.job_pod import JobEvent
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.missed_pod import MissedPod, RefusedPod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.pod_admission import PodAdmission
from slacktide.schemas.policy import Policy
from slacktide.schemas.queue import QueueDecision, QueueOutcome, QueueSpec, QueueState, QueueWorkload
from slacktide.schemas.reservation import ReservationOpen
from slacktide.schemas.sample_columns import SampleColumns
from slacktide.schemas.score import NodeScore
from slacktide.schemas.service import ServiceMinute, ServiceProfile, ServiceSli, ServiceSlope
from slacktide.schemas.tick import WorkerTick
from slacktide.schemas.window import NodeWindowSegment
from slacktide.schemas.zones import NodeZones

HOUR_MS = 3_600_000
TIMESTAMP_TYPE = "message.timestamp.type"
STAMPED = "LogAppendTime"
"""Records have the broker's time, so that wrong client clocks do no harm."""
NODE_PARTITIONS = 12
"""Of all topics keyed by node, so that joins need no repartition. 20 to 100 nodes per partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One row of the table."""

    name: str
    message: type[Message]
    key: str
    partitions: int = NODE_PARTITIONS
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int | None = None
    """Time retention of facts: the replay window. None for compacted topics."""
    segment_ms: int | None = None
    """For a compacted topic that is read from its beginning. The active segment is not compacted."""
    compaction_lag_ms: int | None = None
    """For a compacted topic: younger records are all kept, for replays."""
    compression: Literal["zstd"] | None = None
    """Codec of the brokers (docs/sizing.md#compression); None: as producers send it."""
    replication: int = 3
    min_insync_replicas: int = 2
    acks: Literal["all", "1"] = "all"
    producers: tuple[str, ...]
    consumers: tuple[str, ...]

    def config(self, replication: int) -> dict[str, str]:
        """Broker settings for this replication factor."""
        config = {
            "cleanup.policy": self.cleanup,
            TIMESTAMP_TYPE: STAMPED,
            "min.insync.replicas": str(min(self.min_insync_replicas, replication)),
        }
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        if self.segment_ms is not None:
            config["segment.ms"] = str(self.segment_ms)
        if self.compaction_lag_ms is not None:
            config["min.compaction.lag.ms"] = str(self.compaction_lag_ms)
        if self.compression is not None:
            config["compression.type"] = self.compression
        return config


SAMPLE = Topic(name="slacktide.node.sample.v2", message=SampleColumns, key="node", retention_ms=48 * HOUR_MS, acks="1",
               producers=("agent",), consumers=("stream",))  # fmt: skip
BACKFILL = Topic(name="slacktide.node.sample.backfill.v2", message=SampleColumns, key="node",
                 retention_ms=48 * HOUR_MS, acks="1", producers=("agent",), consumers=("stream",))  # fmt: skip
INVENTORY = Topic(name="slacktide.node.inventory.v1", message=NodeInventory, key="node", cleanup="compact",
                  producers=("publisher", "bridge"),
                  consumers=("stream", "agent", "bridge", "scheduler", "queue"))  # fmt: skip
POLICY = Topic(name="slacktide.policy.v1", message=Policy, key="policy", partitions=1, cleanup="compact",
               producers=("publisher", "bridge"),
               consumers=("stream", "agent", "governor", "publisher", "bridge", "scheduler"))  # fmt: skip
METRIC = Topic(name="slacktide.node.metric.v1", message=NodeMetric, key="node", compression="zstd", cleanup="compact",
               producers=("stream",), consumers=("stream", "governor", "bridge", "scheduler", "operator"))  # fmt: skip
ALLOCATABLE = Topic(name="slacktide.node.allocatable.v1", message=NodeAllocatable, key="node",
                    compression="zstd", cleanup="compact", producers=("stream",),
                    consumers=("stream", "bridge", "scheduler", "queue", "operator"))  # fmt: skip
SCORE = Topic(name="slacktide.node.score.v1", message=NodeScore, key="node", compression="zstd", cleanup="compact",
              producers=("stream",), consumers=("stream", "scheduler", "operator"))  # fmt: skip
ZONES = Topic(name="slacktide.node.zones.v1", message=NodeZones, key="node", cleanup="compact",
              producers=("agent",), consumers=("bridge", "scheduler", "operator"))  # fmt: skip
FORECAST = Topic(name="slacktide.node.forecast.v1", message=NodeForecast, key="node", cleanup="compact",
                 compaction_lag_ms=48 * HOUR_MS,
                 producers=("agent",), consumers=("stream", "agent", "operator"))  # fmt: skip
WINDOW = Topic(name="slacktide.node.window.v1", message=NodeWindowSegment, key="node",
               compression="zstd", retention_ms=HOUR_MS, producers=("stream",), consumers=("stream",))  # fmt: skip
TICK = Topic(name="slacktide.stream.tick.v1", message=WorkerTick, key="worker", partitions=1, retention_ms=48 * HOUR_MS,
             acks="1", producers=("stream",), consumers=("operator",))  # fmt: skip
COMMAND = Topic(name="slacktide.node.command.v1", message=NodeCommand, key="node", compression="zstd",
                retention_ms=48 * HOUR_MS, producers=("stream",), consumers=("agent",))  # fmt: skip
SHADOW_COMMAND = Topic(name="slacktide.node.command.shadow.v1", message=NodeCommand, key="node", compression="zstd",
                       retention_ms=48 * HOUR_MS, producers=("stream",), consumers=("operator",))  # fmt: skip
SHADOW_ALLOCATABLE = Topic(name="slacktide.node.allocatable.shadow.v1", message=NodeAllocatable, key="node",
                           compression="zstd", cleanup="compact",
                           producers=("stream",), consumers=("operator",))  # fmt: skip
OUTCOME = Topic(name="slacktide.node.outcome.v1", message=NodeOutcome, key="node",
                compression="zstd", retention_ms=7 * 24 * HOUR_MS,
                producers=("agent", "bridge", "queue"), consumers=("governor", "operator"))  # fmt: skip
AUDIT = Topic(name="slacktide.audit.v1", message=NodeOutcome, key="node", compression="zstd", partitions=1,
              retention_ms=30 * 24 * HOUR_MS,
              producers=("agent", "bridge"), consumers=("bridge", "operator"))  # fmt: skip
CREDIT = Topic(name="slacktide.eviction.credit.v1", message=EvictionCredit, key="node", partitions=1,
               cleanup="compact", segment_ms=HOUR_MS,
               producers=("governor",), consumers=("agent", "governor", "bridge", "queue"))  # fmt: skip
MISSED_POD = Topic(name="slacktide.pod.missed.v1", message=MissedPod, key="the pod's uid", partitions=1,
                   retention_ms=7 * 24 * HOUR_MS, producers=("webhook",), consumers=("operator",))  # fmt: skip
REFUSED_POD = Topic(name="slacktide.pod.refused.v1", message=RefusedPod, key="the namespace", partitions=1,
                    retention_ms=7 * 24 * HOUR_MS, producers=("webhook",), consumers=("operator",))  # fmt: skip
POD_ADMISSION = Topic(name="slacktide.pod.admission.v1", message=PodAdmission, key="the namespace", partitions=1,
                      compression="zstd", retention_ms=30 * 24 * HOUR_MS,
                      producers=("webhook",), consumers=("operator",))  # fmt: skip
PLACEMENT = Topic(name="slacktide.pod.placement.v1", message=PodPlacement, key="the pod's uid", partitions=1,
                  retention_ms=7 * 24 * HOUR_MS, acks="1",
                  producers=("scheduler",), consumers=("operator",))  # fmt: skip
GANG_PLAN = Topic(name="slacktide.gang.plan.v1", message=GangPlan, key="the group", partitions=1, cleanup="compact",
                  segment_ms=24 * HOUR_MS, compaction_lag_ms=HOUR_MS,
                  producers=("scheduler",), consumers=("scheduler", "operator"))  # fmt: skip
RESERVATION_OPEN = Topic(name="slacktide.reservation.open.v1", message=ReservationOpen, key="the Reservation's uid",
                         partitions=1, cleanup="compact", segment_ms=24 * HOUR_MS, compaction_lag_ms=HOUR_MS,
                         producers=("scheduler", "bridge"),
                         consumers=("scheduler", "bridge", "operator"))  # fmt: skip
DESCHEDULING = Topic(name="slacktide.cluster.descheduling.v1", message=DeschedulingPass, key="the pass", partitions=1,
                     retention_ms=7 * 24 * HOUR_MS, producers=("bridge",), consumers=("operator",))  # fmt: skip
QUEUE_SPEC = Topic(name="slacktide.queue.spec.v1", message=QueueSpec, key="the object's kind and name", partitions=1,
                   cleanup="compact", segment_ms=24 * HOUR_MS,
                   producers=("publisher", "bridge", "queue"),
                   consumers=("queue", "bridge", "operator"))  # fmt: skip
QUEUE_WORKLOAD = Topic(name="slacktide.queue.workload.v1", message=QueueWorkload, key="the workload's uid",
                       partitions=1, cleanup="compact", segment_ms=24 * HOUR_MS,
                       producers=("publisher", "bridge"),
                       consumers=("queue", "publisher", "bridge", "operator"))  # fmt: skip
QUEUE_OUTCOME = Topic(name="slacktide.queue.outcome.v1", message=QueueOutcome, key="the workload's uid", partitions=1,
                      retention_ms=7 * 24 * HOUR_MS,
                      producers=("publisher", "bridge"), consumers=("queue", "operator"))  # fmt: skip
QUEUE_DECISION = Topic(name="slacktide.queue.decision.v1", message=QueueDecision, key="the decider", partitions=1,
                       retention_ms=7 * 24 * HOUR_MS,
                       producers=("queue",), consumers=("queue", "operator"))  # fmt: skip
QUEUE_STATE = Topic(name="slacktide.queue.state.v1", message=QueueState, key="the workload's uid", partitions=1,
                    cleanup="compact", segment_ms=24 * HOUR_MS,
                    producers=("queue",), consumers=("queue", "publisher", "bridge", "operator"))  # fmt: skip
JOB_POD = Topic(name="slacktide.job.pod.v1", message=JobEvent, key="the Job's uid", retention_ms=7 * 24 * HOUR_MS,
                producers=("bridge",), consumers=("stream",))  # fmt: skip
JOB_STATUS = Topic(name="slacktide.job.status.v1", message=JobStatus, key="the Job's uid", cleanup="compact",
                   segment_ms=HOUR_MS, producers=("stream",), consumers=("stream", "bridge", "operator"))  # fmt: skip
"""It has as many partitions as ``JOB_POD``, so that a worker reads both of the same number."""
SERVICE_MINUTE = Topic(name="slacktide.service.minute.v1", message=ServiceMinute, key="namespace/owner",
                       compression="zstd", retention_ms=48 * HOUR_MS, acks="1",
                       producers=("agent",), consumers=("stream",))  # fmt: skip
SERVICE_SLI = Topic(name="slacktide.service.sli.v1", message=ServiceSli, key="namespace/owner",
                    compression="zstd", retention_ms=48 * HOUR_MS, acks="1",
                    producers=("sli",), consumers=("stream",))  # fmt: skip
"""It has as many partitions as ``SERVICE_MINUTE``: one worker folds both."""
SERVICE_PROFILE = Topic(name="slacktide.service.profile.v1", message=ServiceProfile, key="namespace/owner",
                        compression="zstd", cleanup="compact", segment_ms=HOUR_MS,
                        producers=("stream",), consumers=("stream", "operator"))  # fmt: skip
"""It has as many partitions as ``SERVICE_MINUTE``, so that a worker reads both of the same number."""
SERVICE_SLOPE = Topic(name="slacktide.service.slope.v1", message=ServiceSlope, key="namespace/owner", partitions=1,
                      cleanup="compact", segment_ms=24 * HOUR_MS,
                      producers=("stream",), consumers=("agent", "operator"))  # fmt: skip
DEAD_LETTER = Topic(name="slacktide.dead-letter.v1", message=DeadLetter, key="the bad record's key", partitions=1,
                    retention_ms=7 * 24 * HOUR_MS,
                    producers=("stream", "agent", "governor", "publisher", "bridge", "scheduler", "queue"),
                    consumers=("operator",))  # fmt: skip

TOPICS = tuple(row for row in list(vars().values()) if isinstance(row, Topic))
"""All of them, in the order above."""
BY_NAME = {topic.name: topic for topic in TOPICS}


def written_by(role: str) -> tuple[Topic, ...]:
    """Topics that the role produces."""
    return tuple(topic for topic in TOPICS if role in topic.producers)


def read_by(role: str) -> tuple[Topic, ...]:
    """Topics that the role consumes."""
    return tuple(topic for topic in TOPICS if role in topic.consumers)
