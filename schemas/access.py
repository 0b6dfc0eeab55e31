"""Kafka ACLs of each part, with least privilege, from the table of topics.

A part is one process with one principal: a worker and its governor are one part. Only the part ``topics`` may create
or alter topics. No part may delete topics or groups.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.topics import (
    ALLOCATABLE,
    BACKFILL,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    DESCHEDULING,
    INVENTORY,
    JOB_STATUS,
    METRIC,
    MISSED_POD,
    OUTCOME,
    PLACEMENT,
    POLICY,
    QUEUE_SPEC,
    QUEUE_STATE,
    QUEUE_WORKLOAD,
    SAMPLE,
    SCORE,
    SERVICE_PROFILE,
    SHADOW_ALLOCATABLE,
    TICK,
    TOPICS,
    Topic,
)

STREAM_GROUP = "slacktide-stream"
"""Distributes nodes over workers."""
GOVERNOR_GROUP = "slacktide-governor"
"""Its member with the one partition of the credit topic is the governor."""
FOLDS_GROUP = "slacktide-folds"
"""Distributes Jobs and services over workers."""

QUEUE_GROUP = "slacktide-queue"
"""Its member with the one partition of the queue's decisions is the decider."""

Operation = Literal["Read", "Write", "Describe", "DescribeConfigs", "Create", "AlterConfigs", "IdempotentWrite"]
Resource = Literal["topic", "group", "cluster"]
CLUSTER = "kafka-cluster"
"""Name of the cluster resource in ACLs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One ACL. Read and Write imply Describe, as in Kafka."""

    operation: Operation
    resource: Resource
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process that connects to Kafka as one principal."""

    name: str
    what: str
    roles: tuple[str, ...] = ()
    """Producers and consumers in the table of topics."""
    reads: tuple[Topic, ...] = ()
    """The roles' topics, and what else it reads."""
    writes: tuple[Topic, ...] = ()
    joins: tuple[str, ...] = ()
    """Consumer groups that it joins and commits offsets for."""
    besides: tuple[Acl, ...] = ()

    @property
    def principal(self) -> str:
        """Its Kafka principal."""
        return f"User:slacktide-{self.name}"

    @property
    def acls(self) -> tuple[Acl, ...]:
        """Its ACLs, without a Describe that another ACL implies."""
        rights = [*_on("Read", self.reads), *_on("Write", self.writes)]
        rights += [Acl(operation="Read", resource="group", name=group) for group in self.joins]
        seen = {(acl.resource, acl.name) for acl in rights}
        return (
            *rights,
            *(one for one in self.besides if one.operation != "Describe" or (one.resource, one.name) not in seen),
        )


def _on(operation: Operation, topics: Iterable[Topic]) -> tuple[Acl, ...]:
    return tuple(Acl(operation=operation, resource="topic", name=topic.name) for topic in topics)


def _in_the_loop(
    name: str,
    what: str,
    *roles: str,
    joins: tuple[str, ...] = (),
    reads: tuple[Topic, ...] = (),
    besides: tuple[Acl, ...] = (),
) -> Part:
    """A part with the rights of its roles; ``reads``: further topics."""
    return Part(
        name=name,
        what=what,
        roles=roles,
        reads=tuple(topic for topic in TOPICS if topic in reads or not set(roles).isdisjoint(topic.consumers)),
        writes=tuple(topic for topic in TOPICS if not set(roles).isdisjoint(topic.producers)),
        joins=joins,
        besides=besides,
    )


REPLAYABLE = (SAMPLE, BACKFILL, OUTCOME)
"""Topics to which a dead-lettered record may be published again: facts, ordered by boot and seq, used once by readers.
All other topics are republished anyway (policy, inventory, figures, credit) or valid for a second (commands).
Republishing an old record would have effects: a lease would be valid again."""

AGENT = _in_the_loop("agent", "slacktide agent, on each node", "agent")
STREAM = _in_the_loop(
    "stream",
    "slacktide stream: a worker, and a candidate for governor beside it",
    "stream",
    "governor",
    joins=(STREAM_GROUP, GOVERNOR_GROUP, FOLDS_GROUP),
)
PUBLISHER = _in_the_loop(
    "publisher",
    "slacktide publish, slacktide queue publish and outcome, and the process of slacktide up, which also reads the "
    "first outcomes",
    "publisher",
    reads=(OUTCOME,),
    besides=_on("Describe", TOPICS),
)
BRIDGE = _in_the_loop(
    "bridge", "slacktide bridge: either of its replicas", "bridge", besides=_on("Describe", TOPICS)
)  # to check that all topics exist
WEBHOOK = _in_the_loop("webhook", "slacktide webhook: lists pods that came past it", "webhook")
SCHEDULER = _in_the_loop(
    "scheduler", "slacktide scheduler, beside each kube-scheduler", "scheduler", reads=(PLACEMENT,)
)  # the other replicas' placements, before it reports a pod without one
SLI = _in_the_loop("sli", "slacktide sli, or another program that publishes latencies of services", "sli")
QUEUE = _in_the_loop("queue", "slacktide queue run: either of its replicas", "queue", joins=(QUEUE_GROUP,))
IN_THE_LOOP = (AGENT, STREAM, PUBLISHER, BRIDGE, WEBHOOK, SCHEDULER, QUEUE, SLI)
"""Parts of the control loop itself. The others only observe, or run for a while."""

READER = Part(
    name="reader",
    what="explain, nodes, top, queue status and simulate, replay, doctor, policy compare, dead-letter list and show, "
    "topics list, tail, lag and export; kcat",
    reads=TOPICS,
    besides=(
        *_on("DescribeConfigs", TOPICS),
        Acl(operation="Describe", resource="group", name=STREAM_GROUP),
        # doctor requests a producer id, to check that the cluster issues them.
        Acl(operation="IdempotentWrite", resource="cluster", name=CLUSTER),
    ),
)
SHOWN = (
    *(POLICY, INVENTORY, METRIC, ALLOCATABLE, SCORE, SHADOW_ALLOCATABLE, SAMPLE, COMMAND, OUTCOME, PLACEMENT),
    *(MISSED_POD, DESCHEDULING, DEAD_LETTER, TICK, JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE, CREDIT),
    SERVICE_PROFILE,
)
CONSOLE = Part(
    name="console", what="slacktide console: reads, and joins no group", reads=tuple(t for t in TOPICS if t in SHOWN)
)
ADMINISTRATOR = Part(
    name="topics",
    what="topics plan and apply",
    reads=TOPICS,  # only a fetch shows the end offset for certain
    besides=(*_on("Create", TOPICS), *_on("DescribeConfigs", TOPICS), *_on("AlterConfigs", TOPICS)),
)
REPLAYER = Part(
    name="replayer",
    what="dead-letter replay: writes refused samples and outcomes again; for the hour in which it is needed",
    reads=TOPICS,
    writes=REPLAYABLE,
)

PARTS = (*IN_THE_LOOP, READER, CONSOLE, ADMINISTRATOR, REPLAYER)
