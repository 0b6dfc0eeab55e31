"""The transport driver of Faust apps: whole fetches in, commits of what is answered out.

Faust's own path costs about 100 us per record. Here, one message is a turn, a part of a whole fetch of all partitions.
Commits follow what Kafka has acknowledged, not what an agent has seen. The driver implements Faust's interface of a
consumer with aiokafka, on the event loop of the app. Three methods replace what faust-streaming 0.15.3, pinned exactly,
has for all drivers; ``tests/pipeline/test_topology.py`` shows what each is for:

* ``_drain_messages``: one message per turn and topic, without Faust's read offsets and gaps. Records that arrive during
  a rebalance are dropped and fetched again from the commit, because another member may own them. It waits while enough
  turns are ahead. Stock Faust pauses a partition at a full buffer until that is empty, which never happens under steady
  load, and makes five tasks per message.
* ``force_commit``: commits answered offsets. Faust acks an event also when its agent fails.
* ``on_partitions_revoked``: Faust first commits offsets answered until then; they, and turns fetched ahead, are dropped
  afterwards.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaError
from faust import Service
from faust.transport.consumer import Consumer as FaustConsumer
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.columns.batches import Turns
from slacktide.streams.engine.quarantine import Marked
from slacktide.streams.kafka import ASSIGNORS, METADATA_MS, committed, leave, notes, partition_of
from slacktide.streams.kafka.connecting import client
from slacktide.streams.kafka.fetched import at_once
from slacktide.streams.records import Place, text_of
from slacktide.streams.taken import Taken

WHOLE_BYTES_MAX = 512 << 10
"""Per partition of whole fetches. A broker returns a larger batch only for a fetch's first partition."""
POLL_S = 0.3
IDLE_S = 0.02
GROUP_ERRORS_S = 1.0
TURNS_AHEAD_MAX = 2
"""Includes the turn that is being answered."""

Fetched: TypeAlias = Mapping[TopicPartition, Sequence[Any]]
Turn: TypeAlias = Mapping[Place, Taken]


class Owner(Protocol):
    """Who answers the turns of an app."""

    @property
    def failed(self) -> bool:
        """Check whether it answers, and commits, nothing more."""

    @property
    def positions(self) -> dict[Place, int]:
        """Return the next offset to answer, by place."""

    def marked(self, offsets: Mapping[Place, int]) -> Marked:
        """Return offsets to commit, each with its note."""

    def fail(self, error: BaseException) -> None:
        """End because of an error."""


class Consumer(FaustConsumer):
    """A member of a consumer group that takes whole fetches, and commits answered offsets with notes."""

    consumer_stopped_errors = (ConsumerStoppedError,)

    def on_init(self) -> None:
        """Create the client."""
        conf, transport = self.app.conf, cast("Transport", self.transport)
        self.owner = transport.owner
        self._client: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
            **client(transport.bootstrap),
            client_id=conf.broker_client_id,
            group_id=conf.id,
            partition_assignment_strategy=ASSIGNORS,
            enable_auto_commit=False,
            auto_offset_reset=conf.consumer_auto_offset_reset,
            metadata_max_age_ms=METADATA_MS,
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            fetch_max_wait_ms=transport.fetch_wait_ms,
            session_timeout_ms=int(conf.broker_session_timeout * 1_000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1_000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1_000),
            value_deserializer=at_once,
        )
        self._answered: dict[Place, int] = {}
        self._marked: dict[Place, int] = {}
        self._turns = Turns()
        self._of_topics: list[Turn] = []
        """What is left of a turn over several topics: each has an agent of its own."""
        self._ahead: list[Turn] = []
        self._room = asyncio.Event()
        self._ended = False

    async def on_start(self) -> None:
        """Connect. Raises KafkaError if Kafka is unavailable."""
        await self._client.start()

    async def on_stop(self) -> None:
        """Commit, and leave the group."""
        await super().on_stop()
        await leave(self._client)

    # What is taken, and what is committed.

    async def _drain_messages(self, fetcher: Any) -> None:
        ended: tuple[type[BaseException], ...] = (asyncio.CancelledError, *self.consumer_stopped_errors)
        try:
            while not (self.should_stop or fetcher.should_stop):
                await asyncio.sleep(0)
                if (message := await self._next_message()) is not None:
                    await self.callback(message)
        except ended:
            if not self.app.should_stop:
                raise

    async def _next_message(self) -> ConsumerMessage | None:
        """Return one turn; None: no records, or they are dropped."""
        if not await self._has_room():
            return None
        generation, records = self.app.consumer_generation_id, None
        if not self._of_topics and not self._turns:
            records = await self._fetched()
            if not records or self.should_stop:
                return None
        if not self.flow_active or self.app.consumer_generation_id != generation:
            self._turns.clear()
            self._of_topics.clear()
            if self.assignment():
                await self.perform_seek()  # dropped records are fetched again
            return None
        if records:
            self._turns.add({Place(*place): batch for place, batch in records.items()})
        if not self._of_topics:
            self._of_topics = by_topic(self._turns.next())
        if not self._of_topics:
            return None
        turn = self._of_topics.pop(0)
        self._ahead.append(turn)
        return self._to_message(TP(*next(iter(turn))), turn)

    async def _fetched(self) -> Fetched:
        if not self.flow_active:
            await self.can_resume_flow.wait()
        if active := self._get_active_partitions():
            found: Fetched = await self._getmany(active, POLL_S)
            return found
        await self.sleep(IDLE_S)
        return {}

    @Service.task
    async def _take_group_errors(self) -> None:
        """End the session at a group error, such as a missing right: the client stops until its error is fetched."""
        while not self.should_stop:
            await self.sleep(GROUP_ERRORS_S)
            try:
                self._client._coordinator.check_errors()  # noqa: SLF001 - it has no public method
            except KafkaError as exc:
                self.owner.fail(LogError(f"cannot be a member of the group {self.app.conf.id}: {exc}"))

    async def _has_room(self) -> bool:
        """Check whether more may be fetched; wait a moment if not."""
        if len(self._ahead) >= TURNS_AHEAD_MAX:
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._room.wait()
        return len(self._ahead) < TURNS_AHEAD_MAX

    def ends(self, turn: Turn) -> dict[Place, int | None]:
        """Return the ends of a turn's partitions as of the last fetch; None: not known."""
        return {place: self.highwater(TP(*place)) for place in turn}

    def answered(self, turn: Turn, offsets: Mapping[Place, int]) -> None:
        """Remove an answered turn, and commit these offsets soon."""
        self._answered |= offsets
        self._ahead = [one for one in self._ahead if one is not turn]
        self._room.set()

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002
        """Commit what is answered; False: there is nothing, or not now."""
        self._acked.clear()
        self._acked_index.clear()
        due = {place: offset for place, offset in self._answered.items() if self._marked.get(place) != offset}
        # The next session starts at the last commit, so a failed session does not wait for another.
        if not due or self.owner.failed or self._ended:
            return False
        if not await self.commit_marked(self.owner.marked(due)):
            return False
        self._marked |= due
        return True

    async def commit_marked(self, offsets: Marked) -> bool:
        """Commit offsets with their notes; False: not now."""
        return await committed(self._client, {TopicPartition(*place): marked for place, marked in offsets.items()})

    async def notes(self, places: Collection[Place]) -> Marked:
        """Return the committed offsets of these places, with notes."""
        found = await notes(self._client, [TopicPartition(*place) for place in places])
        return {Place(*place): one for place, one in found.items()}

    async def give_back(self) -> None:
        """Commit without notes, so that the next owner sees a clean handover."""
        self._ended = not self.owner.failed
        if self._ended:
            await self.commit_marked({place: (at, "") for place, at in self.owner.positions.items()})

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Wait for what is being answered, and give these partitions back."""
        await super().on_partitions_revoked(revoked)
        await self.give_back()
        self._ended = False
        for kept in (self._answered, self._marked, self._ahead, self._turns, self._of_topics):
            kept.clear()
        self._room.set()

    # Faust's interface of a driver, by the client's.

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        return await committed(self._client, {TopicPartition(*place): offset for place, offset in offsets.items()})

    async def _getmany(self, active_partitions: Collection[TP] | None, timeout: float) -> Any:
        places = [TopicPartition(*place) for place in active_partitions or ()]
        found: Fetched = await self._client.getmany(*places, timeout_ms=int(timeout * 1_000))
        return found

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        taken: Taken = next(iter(record.values()))
        return ConsumerMessage(
            *tp,
            offset=taken.offsets[-1],
            timestamp=taken.times_ms[-1] / 1_000,
            timestamp_type=0,
            headers=[],
            key=None,
            value=record,
            checksum=None,
            serialized_key_size=0,
            serialized_value_size=0,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group."""
        self._client.subscribe(list(topics), listener=_Listener(self))

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek to the committed offsets, and return them; a partition without one begins at 0."""
        if not self.assignment():
            return {}
        offsets = await self._client.seek_to_committed()
        for place, offset in offsets.items():
            if not offset:  # without a commit, the client keeps its position
                self._client.seek(place, 0)
        return {TP(*place): offset for place, offset in offsets.items()}

    async def _seek(self, partition: TP, offset: int) -> None:
        self._client.seek(TopicPartition(*partition), offset)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Seek, and wait until each position is known."""
        for place, offset in partitions.items():
            await self.seek(place, offset)
            await self.position(place)

    async def position(self, tp: TP) -> int | None:
        """Return the offset of the next fetch."""
        at: int = await self._client.position(TopicPartition(*tp))
        return at

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Return the first offset of each partition."""
        found = await self._client.beginning_offsets([TopicPartition(*place) for place in partitions])
        return {TP(*place): offset for place, offset in found.items()}

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Ask for the end of each partition."""
        found = await self._client.end_offsets([TopicPartition(*place) for place in partitions])
        return {TP(*place): offset for place, offset in found.items()}

    def highwater(self, tp: TP) -> int:
        """Return the end of a partition as of the last fetch."""
        end: int | None = self._client.highwater(TopicPartition(*tp))
        return end  # type: ignore[return-value]  # Faust, too, may return None

    def assignment(self) -> set[TP]:
        """Return this member's partitions."""
        return {TP(*place) for place in self._client.assignment()}

    def topic_partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic has; None: not known yet."""
        return len(self._client.partitions_for_topic(topic) or ()) or None

    def key_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> int | None:
        """Return the partition of a key."""
        count = self.topic_partitions(topic)
        return partition if partition is not None or not key or not count else partition_of(text_of(key), count)

    async def create_topic(self, topic: str, *_: Any, **__: Any) -> None:
        """Refuse: Faust asks for it where an app may declare topics. Raises LogError."""
        raise LogError(f"{topic}: no app creates topics; run: slacktide topics apply")


def by_topic(turn: Turn) -> list[Turn]:
    """Split a turn by topic."""
    topics = dict.fromkeys(place.topic for place in turn)
    if len(topics) < 2:
        return [turn] if turn else []
    return [{place: taken for place, taken in turn.items() if place.topic == topic} for topic in topics]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._consumer.app.on_rebalance_start()
        await self._consumer.on_partitions_revoked({TP(*place) for place in revoked})

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        consumer = self._consumer
        generation = consumer._client._coordinator.generation  # noqa: SLF001 - it has no public property
        consumer.app.consumer_generation_id = generation
        await consumer.on_partitions_assigned({TP(*place) for place in assigned}, generation)


class Transport(driver.Transport):
    """Connects one app; ``owner`` answers its turns, and the broker may hold a fetch for ``fetch_wait_ms``."""

    Consumer = Consumer

    def __init__(self, app: Any, owner: Owner, bootstrap: Cluster, fetch_wait_ms: int) -> None:
        super().__init__([*app.conf.broker_consumer], app)
        self.owner, self.bootstrap, self.fetch_wait_ms = owner, bootstrap, fetch_wait_ms
