"""Who may do what in the log: its parts, each with the least rights that do, from the table of topics.

A part is what connects as one: a worker and the governor beside it are one process, with one principal.
Nobody may create or alter topics but the one who is there for that; a deletion of a topic or a group is nobody's.
"""

from __future__ import annotations

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
    SAMPLES,
    SCORE,
    SHADOW_ALLOCATABLE,
    TICK,
    TOPICS,
    Topic,
)

STREAM_GROUP = "slacktide-stream"
"""Shares the nodes out among workers."""
GOVERNOR_GROUP = "slacktide-governor"
"""Whose member has the one partition of the credit governs."""
JOBS_GROUP = "slacktide-jobs"
"""Shares the Jobs out among workers."""

QUEUE_GROUP = "slacktide-queue"
"""Whose member has the one partition of the queue's decisions decides."""

Operation = Literal["Read", "Write", "Describe", "DescribeConfigs", "Create", "AlterConfigs", "IdempotentWrite"]
Resource = Literal["topic", "group", "cluster"]
CLUSTER = "kafka-cluster"
"""The one name that a cluster has as a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One right. Read and Write each bring Describe along, as Kafka has it."""

    operation: Operation
    resource: Resource
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What connects to the log as one."""

    name: str
    what: str
    roles: tuple[str, ...] = ()
    """As the table of topics names producers and consumers."""
    reads: tuple[Topic, ...] = ()
    """The roles' topics, and what else it reads."""
    writes: tuple[Topic, ...] = ()
    joins: tuple[str, ...] = ()
    """Groups of which it is a member, and whose offsets it commits."""
    besides: tuple[Acl, ...] = ()

    @property
    def principal(self) -> str:
        """As Kafka knows it."""
        return f"User:slacktide-{self.name}"

    @property
    def acls(self) -> tuple[Acl, ...]:
        """Its rights, and of those besides no Describe that another brings along."""
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
    """A part with the rights of its roles; ``reads``: what it reads besides."""
    return Part(
        name=name,
        what=what,
        roles=roles,
        reads=tuple(topic for topic in TOPICS if topic in reads or not set(roles).isdisjoint(topic.consumers)),
        writes=tuple(topic for topic in TOPICS if not set(roles).isdisjoint(topic.producers)),
        joins=joins,
        besides=besides,
    )


REPLAYABLE = (*SAMPLES, BACKFILL, OUTCOME)
"""Topics to which a dead-lettered record may be written again: facts, ordered by boot and seq, that their readers take
once. All else is published again by itself (policy, inventory, figures, credit) or is of one second (commands), and
writing an old one again would act: a lease would be good anew."""

AGENT = _in_the_loop("agent", "slacktide agent, on each node", "agent")
STREAM = _in_the_loop(
    "stream",
    "slacktide stream: a worker, and a candidate for governor beside it",
    "stream",
    "governor",
    joins=(STREAM_GROUP, GOVERNOR_GROUP, JOBS_GROUP),
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
)  # it looks whether all are there
WEBHOOK = _in_the_loop("webhook", "slacktide webhook: lists pods that came past it", "webhook")
SCHEDULER = _in_the_loop(
    "scheduler", "slacktide scheduler, beside each kube-scheduler", "scheduler", reads=(PLACEMENT,)
)  # the other replicas' answers, before it reports that nobody was asked
QUEUE = _in_the_loop("queue", "slacktide queue run: either of its replicas", "queue", joins=(QUEUE_GROUP,))
IN_THE_LOOP = (AGENT, STREAM, PUBLISHER, BRIDGE, WEBHOOK, SCHEDULER, QUEUE)
"""Who writes and reads in the loop itself. Everybody else reads along, or is there for a while."""

READER = Part(
    name="reader",
    what="explain, nodes, top, queue status and simulate, replay, doctor, policy compare, dead-letter list and show, "
    "topics list, tail, lag and export; kcat",
    reads=TOPICS,
    besides=(
        *_on("DescribeConfigs", TOPICS),
        Acl(operation="Describe", resource="group", name=STREAM_GROUP),
        # doctor asks for a producer's id, to know whether the cluster gives any; without a topic that leads nowhere.
        Acl(operation="IdempotentWrite", resource="cluster", name=CLUSTER),
    ),
)
SHOWN = (
    *(POLICY, INVENTORY, METRIC, ALLOCATABLE, SCORE, SHADOW_ALLOCATABLE, *SAMPLES, COMMAND, OUTCOME, PLACEMENT),
    *(MISSED_POD, DESCHEDULING, DEAD_LETTER, TICK, JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE, CREDIT),
)
CONSOLE = Part(
    name="console", what="slacktide console: reads, and joins no group", reads=tuple(t for t in TOPICS if t in SHOWN)
)
ADMINISTRATOR = Part(
    name="topics",
    what="topics plan and apply",
    reads=TOPICS,  # a broker shows for certain where a topic ends only to who fetches
    besides=(*_on("Create", TOPICS), *_on("DescribeConfigs", TOPICS), *_on("AlterConfigs", TOPICS)),
)
REPLAYER = Part(
    name="replayer",
    what="dead-letter replay: writes refused samples and outcomes again; for the hour in which it is needed",
    reads=TOPICS,
    writes=REPLAYABLE,
)

PARTS = (*IN_THE_LOOP, READER, CONSOLE, ADMINISTRATOR, REPLAYER)
