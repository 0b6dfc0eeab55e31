"""A stream worker on a real broker: run in this process or as one of its own, fed and read by a plain client."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.health import Health
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import BY_NAME, COMMAND, DEAD_LETTER, POLICY, SAMPLE
from slacktide.streams import topology
from slacktide.streams.engine.session import WorkerSettings
from slacktide.streams.kafka import each_answer
from slacktide.streams.proofs import Judge
from slacktide.streams.records import FIGURES, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.one_by_one import Shadow
from testbed.parts import Part
from testbed.samples import body_of
from testbed.waiting import soon

TESTS = Path(__file__).parents[1]
PARTITIONS = 4
SESSION_MS = 3_000
"""Short, for the embedded broker makes each join wait half of it, and a dead member's successor twice."""
PATIENCE_S = 60.0

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it repeats itself while a broker is away


async def until(true: Callable[[], bool], what: str, part: Part | None = None) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not true():
        assert part is None or part.running, f"{what}: {part.name} ended:\n{part.last_words()}"
        assert time.monotonic() < until_s, f"{what}: not within {PATIENCE_S:g} s"
        await asyncio.sleep(0.02)


@dataclass(slots=True)
class Running:
    worker: Worker
    health: Health
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def ready(self) -> None:
        await until(lambda: self.task.done() or not self.health.not_ready, "the worker is ready")
        if self.task.done():
            self.task.result()

    async def stopped(self) -> None:
        self.stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await self.task


@dataclass(slots=True)
class Rig:
    """A broker's topics and one group of workers."""

    bootstrap: str
    group: str = field(default_factory=lambda: f"group-{uuid.uuid4().hex[:8]}")
    republish_ms: int = 5_000
    commands: list[Record] = field(default_factory=list)
    """All answers read so far, in the order of each partition."""
    answers: dict[tuple[str, str, int], list[NodeCommand]] = field(default_factory=dict)
    """The same by node, boot and seq: several where a sample was answered several times."""
    _producer: AIOKafkaProducer | None = None
    _clients: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap)

    async def __aenter__(self) -> Self:
        self._producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all", max_batch_size=1 << 19)
        await self._producer.start()
        self._clients.push_async_callback(self._producer.stop)
        listening = asyncio.create_task(self._listen())
        self._clients.push_async_callback(_cancelled, listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.aclose()

    async def _listen(self) -> None:
        consumer = _reader(self.bootstrap)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(COMMAND.name, number) for number in range(PARTITIONS)])
            await consumer.seek_to_beginning()
            while True:
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    answers = list(each_answer(batch))
                    self.commands += answers
                    for command in (decode(record.value, NodeCommand) for record in answers):
                        self.answers.setdefault((command.node, command.boot_id, command.seq), []).append(command)
        finally:
            await consumer.stop()

    async def send(self, samples: Iterable[NodeSample], partition: Callable[[str], int] | None = None) -> list[int]:
        """Send samples; returns each one's partition."""
        where = partition or partition_of
        await self.put(SAMPLE.name, [(s.node.encode(), body_of(s), where(s.node)) for s in samples])
        return [where(s.node) for s in samples]

    async def put(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None, int]], at_ms: int | None = None
    ) -> None:
        assert self._producer is not None
        sent = [
            await self._producer.send(topic, value, key=key, partition=number, timestamp_ms=at_ms)
            for key, value, number in records
        ]
        await asyncio.gather(*sent)

    async def publish(self, policy: Policy) -> None:
        await self.put(POLICY.name, [(KEY.encode(), encode(policy), 0)])

    async def read(self, topic: str) -> list[ConsumerRecord]:
        return [one for one in await self._all(topic) if topic not in FIGURES or not is_heartbeat(one.key)]

    async def beats(self, topic: str) -> list[ConsumerRecord]:
        return [one for one in await self._all(topic) if is_heartbeat(one.key)]

    async def _all(self, topic: str) -> list[ConsumerRecord]:
        consumer = _reader(self.bootstrap)
        await consumer.start()
        try:
            count = 1 if BY_NAME[topic].partitions == 1 else PARTITIONS
            places = [TopicPartition(topic, number) for number in range(count)]
            consumer.assign(places)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(places)
            found: list[ConsumerRecord] = []
            while any([await consumer.position(place) < ends[place] for place in places]):
                found += [record for batch in (await consumer.getmany(timeout_ms=100)).values() for record in batch]
            return found
        finally:
            await consumer.stop()

    async def dead_letters(self, count: int = 1) -> list[DeadLetter]:
        """All, as soon as there are so many."""

        async def letters() -> list[DeadLetter]:
            return [decode(record.value, DeadLetter) for record in await self.read(DEAD_LETTER.name)]

        return await soon(letters, f"{count} dead letters", PATIENCE_S, enough=lambda found: len(found) >= count)

    async def committed(self, topic: str = SAMPLE.name) -> dict[int, int]:
        """How far the group says that all is done, where it says so."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            told = await admin.list_consumer_group_offsets(self.group, partitions=places)
            return {place.partition: offset.offset for place, offset in told.items() if offset.offset >= 0}
        finally:
            await admin.close()

    async def commit(self, offsets: dict[int, int], topic: str = SAMPLE.name) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=self.group, enable_auto_commit=False)
        await consumer.start()
        try:
            places = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)
        finally:
            await consumer.stop()

    async def answered(self, samples: Iterable[NodeSample], part: Part | None = None) -> list[NodeCommand]:
        """Wait until each was answered, for as long as the part lives that answers; the first answer of each."""
        keys = {(sample.node, sample.boot_id, sample.seq): None for sample in samples}
        try:
            await until(lambda: self.answers.keys() >= keys.keys(), f"{len(keys)} samples are answered", part)
        except AssertionError as exc:
            lacking = sorted(keys.keys() - self.answers.keys())
            raise AssertionError(f"{exc}; {len(lacking)} are not, from {lacking[0]} to {lacking[-1]}") from exc
        return [self.answers[key][0] for key in keys]

    @contextlib.asynccontextmanager
    async def worker(
        self, name: str = "w", shadow: Shadow | None = None, judge: Judge | None = None
    ) -> AsyncIterator[Running]:
        running = self.start(name, shadow, judge)
        try:
            await running.ready()
            yield running
        finally:
            if not running.task.done():
                await running.stopped()

    def start(self, name: str = "w", shadow: Shadow | None = None, judge: Judge | None = None) -> Running:
        settings = WorkerSettings(bootstrap=self.cluster, group=self.group, session_timeout_ms=SESSION_MS)
        worker, health, stop = Worker(name, judge, republish_ms=self.republish_ms), Health(), asyncio.Event()
        worker.shadow = shadow
        running = topology.decide_samples(worker, settings, stop, health, lambda: time.time_ns() // 1_000_000)
        return Running(worker=worker, health=health, stop=stop, task=asyncio.create_task(running))

    def process(self, name: str) -> subprocess.Popen[bytes]:
        arguments = [name, self.bootstrap, self.group, str(SESSION_MS), str(self.republish_ms)]
        module = "testbed.worker_process"
        return subprocess.Popen([sys.executable, "-m", module, *arguments], stdin=subprocess.DEVNULL, cwd=TESTS)


def partition_of(node: str) -> int:
    """Where a test's node lives: by the number at the end of its name."""
    return int(node.rpartition("-")[2]) % PARTITIONS


def _reader(bootstrap: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
        max_partition_fetch_bytes=8 << 20,
    )


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
