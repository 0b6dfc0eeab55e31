"""The queue's topics in memory, a decider that can be killed at each write, and a cluster that does as it is told."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.headers import Headers
from slacktide.schemas.message import Message
from slacktide.schemas.queue import (
    PodsReadySettings,
    QueueBooking,
    QueueDecision,
    QueueOutcome,
    QueueState,
    QueueWorkload,
    Result,
    spec_key,
    spec_of,
)
from slacktide.schemas.queue_objects import (
    ClusterQueueObject,
    ClusterQueueSpec,
    ContainerSpec,
    FlavorQuotas,
    LabelSelector,
    LocalQueueObject,
    LocalQueueSpec,
    Metadata,
    PodSpec,
    PodTemplate,
    PreemptionSpec,
    QueueObject,
    ResourceDemand,
    ResourceFlavorObject,
    ResourceGroup,
    ResourceQuota,
    WorkloadObject,
    WorkloadPodSet,
    WorkloadSpec,
)
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.engine.queueing import Term
from slacktide.streams.kafka import Placed
from slacktide.streams.queue.ledger import last_of_each
from slacktide.streams.queue.replay import replay
from slacktide.streams.records import Out, Record
from testbed.history.queue import complaints

NAMES = tuple(one.name for one in (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_OUTCOME, QUEUE_STATE, QUEUE_DECISION))
STEP_MS = 1_000
EVERYTHING: Mapping[tuple[str, int], int] = MappingProxyType({})
BEGUN_MS = 1_772_366_400_000
RECLAIM = PreemptionSpec(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


class KilledError(Exception):
    """The process is gone."""


class Log:
    """Topics of one partition each; others are written to and not looked at."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Record]] = {name: [] for name in NAMES}
        self.now_ms = BEGUN_MS

    @property
    def records(self) -> list[Record]:
        """All that a replay reads."""
        return [one for records in self.topics.values() for one in records]

    def append(self, topic: str, key: str, value: bytes | None, headers: Headers = ()) -> int:
        records = self.topics.setdefault(topic, [])
        records.append(
            Record(
                topic=topic,
                partition=0,
                offset=len(records),
                timestamp_ms=self.now_ms,
                key=key.encode(),
                value=value,
                headers=headers,
            )
        )
        return len(records) - 1

    def say(self, topic: str, key: str, message: Message | None) -> int:
        return self.append(topic, key, None if message is None else encode(message))

    def put(self, *objects: QueueObject) -> None:
        """Publish objects."""
        for one in objects:
            if isinstance(one, WorkloadObject):
                self.say(QUEUE_WORKLOAD.name, one.metadata.uid, QueueWorkload(uid=one.metadata.uid, workload=one))
            else:
                self.say(QUEUE_SPEC.name, spec_key(one), spec_of(one))

    def decisions(self) -> list[QueueDecision]:
        return [decode(one.value, QueueDecision) for one in self.topics[QUEUE_DECISION.name]]


class Found(NamedTuple):
    records: list[Record]


class Reading:
    """As ``Tail`` reads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._at: dict[str, int] = {}

    async def read(
        self, since_ms: Mapping[tuple[str, int], int | None], *, offsets: Mapping[tuple[str, int], int] = EVERYTHING
    ) -> Found:
        self._at = {topic: offsets.get((topic, number), 0) for topic, number in since_ms}
        return Found(await self.more())

    async def more(self) -> list[Record]:
        await asyncio.sleep(0)
        found = []
        for topic, at in self._at.items():
            records = self._log.topics.setdefault(topic, [])
            found += records[at:]
            self._at[topic] = len(records)
        return found


class Writing:
    """As ``Sender`` writes; the process may be killed with so many more records written."""

    def __init__(self, log: Log, records_left: int | None = None) -> None:
        self._log = log
        self.left = records_left
        self.written = 0

    async def send_each(self, records: Sequence[Out]) -> list[Placed]:
        placed = []
        for out in records:
            if self.left is not None and self.left <= self.written:
                raise KilledError
            self.written += 1
            placed.append(Placed(0, self._log.append(out.topic, (out.key or b"").decode(), out.value, out.headers)))
        if self.left is not None and self.left <= self.written:
            raise KilledError  # all is in the log, and nobody learns of it
        return placed


def term(
    log: Log,
    process: str,
    *,
    records_left: int | None = None,
    pods_ready: PodsReadySettings | None = None,
    fair_sharing: bool = False,
) -> Term:
    """A term of a process that is killed once it has written so many records."""
    writing, fair = Writing(log, records_left), fair_sharing
    return Term(process, Reading(log), writing, lambda: log.now_ms, pods_ready=pods_ready, fair_sharing=fair)


@dataclass
class Cluster:
    """What carries decisions out, by the topic of states alone; what it answers may be lost, repeated or late."""

    log: Log
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    faults: float = 0.0
    running: dict[str, QueueBooking] = field(default_factory=dict)
    """By uid what runs, and by which admission."""
    ended: dict[str, tuple[QueueBooking, Result]] = field(default_factory=dict)
    """By uid which admission was answered for good, and how: nothing is started on it any more."""
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    late: list[tuple[str, QueueOutcome]] = field(default_factory=list)
    at: int = 0

    def step(self) -> None:
        """Read states, start and stop."""
        for out in self._due():
            self.log.say(QUEUE_OUTCOME.name, *out)
        states = self.log.topics[QUEUE_STATE.name]
        for record in last_of_each(states[self.at :]):
            if record.value is not None:
                self._state(decode(record.value, QueueState))
        self.at = len(states)

    def finish(self, uid: str) -> None:
        """A workload is done."""
        self._end(uid, self.running.pop(uid), "finished")

    def repeat(self) -> None:
        """What was answered is answered again."""
        for record in self.log.topics[QUEUE_OUTCOME.name][-4:]:
            self.log.append(record.topic, (record.key or b"").decode(), record.value)

    def settle(self) -> None:
        """Whoever carries out looks again, and answers what was lost."""
        self.faults = 0.0
        for uid, booking in self.running.items():
            self._answer(uid, booking, "started")
        for uid, (booking, result) in self.ended.items():
            self._answer(uid, booking, result)
        self.at = 0

    def _due(self) -> list[tuple[str, QueueOutcome]]:
        due = [one for one in self.late if not self.faults or self.chance.random() < 0.3]
        self.late = [one for one in self.late if one not in due]
        return due

    def _state(self, one: QueueState) -> None:
        stamp = (one.epoch, one.turn)
        if stamp < self.seen.get(one.uid, (0, 0)):
            return
        self.seen[one.uid] = stamp
        booking, runs = one.booking, self.running.get(one.uid)
        if booking is None or (one.uid in self.ended and self.ended[one.uid][0] == booking):
            return
        if one.phase == "reserved" and not one.started:
            if runs is None and self.faults and self.chance.random() < 0.1:
                self._end(one.uid, booking, "conflict")
            else:
                assert runs is None or runs == booking, f"{one.uid} is started twice"
                self.running[one.uid] = booking
                self._answer(one.uid, booking, "started")
        elif one.phase == "evicting":
            self.running.pop(one.uid, None)
            self._end(one.uid, booking, "stopped")

    def _end(self, uid: str, booking: QueueBooking, result: Result) -> None:
        self.ended[uid] = booking, result
        self._answer(uid, booking, result)

    def _answer(self, uid: str, booking: QueueBooking, result: Result) -> None:
        out = uid, QueueOutcome(uid=uid, result=result, epoch=booking.epoch, turn=booking.turn)
        if not self.faults or self.chance.random() >= self.faults:
            self.log.say(QUEUE_OUTCOME.name, *out)
        else:
            self.late.append(out)


def queue(
    name: str, cpu: str, *, cohort: str = "all", preemption: PreemptionSpec | None = RECLAIM
) -> ClusterQueueObject:
    """A ClusterQueue with CPU of one flavor."""
    quota = FlavorQuotas(name="default", resources=[ResourceQuota(name="cpu", nominal_quota=cpu)])
    spec = ClusterQueueSpec(
        cohort_name=cohort,
        resource_groups=[ResourceGroup(covered_resources=["cpu"], flavors=[quota])],
        preemption=preemption,
        namespace_selector=LabelSelector(),
    )
    return ClusterQueueObject(metadata=Metadata(name=name), spec=spec)


def local(name: str) -> LocalQueueObject:
    """The LocalQueue of that ClusterQueue, with its name."""
    return LocalQueueObject(metadata=Metadata(name=name, namespace="jobs"), spec=LocalQueueSpec(cluster_queue=name))


FLAVOR = ResourceFlavorObject(metadata=Metadata(name="default"))


def workload(
    number: int,
    of: str,
    cpu: str = "1",
    *,
    priority: int = 0,
    pods: int = 1,
    active: bool = True,
    created_s: int | None = None,
) -> WorkloadObject:
    """A workload of that LocalQueue; later numbers are newer, unless it is said when they were created."""
    container = ContainerSpec(name="main", resources=ResourceDemand(requests={"cpu": cpu}))
    after_s = number if created_s is None else created_s
    created = datetime.fromtimestamp(BEGUN_MS // 1_000 + after_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return WorkloadObject(
        metadata=Metadata(name=f"w{number}", namespace="jobs", uid=f"uid-{number:05}", creation_timestamp=created),
        spec=WorkloadSpec(
            queue_name=of,
            priority=priority,
            active=active,
            pod_sets=[WorkloadPodSet(count=pods, template=PodTemplate(spec=PodSpec(containers=[container])))],
        ),
    )


def standing(log: Log) -> dict[str, tuple]:
    """Where each workload stands by the topic of states, but for when it came to it."""
    last: dict[bytes | None, bytes | None] = {one.key: one.value for one in log.topics[QUEUE_STATE.name]}
    states = [decode(value, QueueState) for value in last.values() if value is not None]
    return {
        one.uid: (one.phase, one.booking and (one.booking.cluster_queue, one.booking.pod_sets), one.started)
        for one in states
    }


def lawful(log: Log) -> None:
    """Nothing was done against the law, and all of it can be done again."""
    assert list(complaints(log.topics, log.decisions())) == []
    again = list(replay(log.records))
    assert again
    assert all(one.equal for one in again)


async def turns(one: Term, cluster: Cluster, count: int) -> None:
    """So many turns, one in each second, and what is carried out after each."""
    for _ in range(count):
        cluster.log.now_ms += STEP_MS
        await one.listen()
        await one.act()
        cluster.step()
