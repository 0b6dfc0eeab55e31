"""The worker on Faust, which manages the group, rebalances, flow control and supervision. A turn is one event.

Faust's own path costs about 100 us per record. Here, one message to Faust is a part of a whole fetch of all partitions.
Commits follow what Kafka has acknowledged, not what an agent has seen. This overrides internals of faust-streaming
0.15.3, pinned exactly:

* ``Consumer._drain_messages``: one message per turn, without Faust's read offsets and gaps. Records that arrive during
  a rebalance are dropped and fetched again from the commit, because another member may own them. It waits while enough
  turns are ahead. Stock Faust pauses a partition at a full buffer until that is empty, which never happens under steady
  load, and makes five tasks per message.
* ``AIOKafkaConsumerThread.getmany``: stock Faust makes three tasks for each call of its thread, and cancels them.
* ``Consumer.on_partitions_assigned``: drops turns fetched ahead.
* ``Consumer._wait_next_records``: stock Faust sleeps a second while no partition is active, as after a join.
* ``Consumer.force_commit``: commits answered offsets. Faust acks an event also when its agent fails.
* ``Consumer.on_partitions_revoked``: Faust first commits offsets answered until then; they are dropped afterwards.
* ``Consumer.verify_event_path``: warns of partitions that never come first in a fetch.
* ``AIOKafkaConsumerThread._create_worker_consumer``: stock Faust holds each fetch for 1.5 s.
* ``AIOKafkaConsumerThread._commit``: stock Faust crashes where a commit must only wait.
* ``AIOKafkaConsumerThread.seek_to_committed``: without a commit, the client keeps its position.
* ``AIOKafkaConsumerThread``, a task: after a group error, such as a missing right, the client stops until its error is
  fetched. Stock Faust never fetches it, and the worker would wait forever.
* ``Consumer._new_consumer_thread``: stock Faust gives its thread asyncio's loop even if the process has uvloop.
* ``AIOKafkaConsumerThread.on_thread_stop``: stock Faust never ends if the client's stop is interrupted.
* ``Schema.compile``: keeps a fetch as it is.
* ``App._create_directories``: stock Faust makes a folder for tables, which are not used here.
* ``TableManager.on_start``: stock Faust waits a second for tables to be declared.

A crashed Faust app is not repaired: the session ends, and the next one has a new app.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from faust.app.base import BootStrategy
from faust.events import Event
from faust.exceptions import ConsumerNotStarted
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.columns.batches import Turns
from slacktide.streams.engine.quarantine import Marked
from slacktide.streams.engine.session import Session, WorkerSettings, keep_connected
from slacktide.streams.kafka import ASSIGNORS, METADATA_MS, committed, leave, notes
from slacktide.streams.kafka.connecting import client
from slacktide.streams.kafka.fetched import at_once
from slacktide.streams.records import Place
from slacktide.streams.taken import Taken
from slacktide.streams.tasks import given_up, unwatched
from slacktide.streams.worker import Worker

log = logging.getLogger(__name__)

WHOLE_BYTES_MAX = 512 << 10
"""Per partition of whole fetches. A broker returns a larger batch only for a fetch's first partition."""
COMMIT_EVERY_S = 1.0
STOP_S = 8.0
POLL_S = 0.3
IDLE_S = 0.02
GROUP_ERRORS_S = 1.0
TURNS_AHEAD_MAX = 2
"""Includes the turn that is being answered."""
BUFFER_MAX = 1_000
"""Never full: Faust would pause partitions."""


async def run(
    worker: Worker, settings: WorkerSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]
) -> None:
    """Answer samples until ``stop`` is set, then finish the batch, commit, and leave the group.

    Raises Exception for a programming error; Kafka outages are waited out.
    """
    await keep_connected(
        lambda session: _run_app(_app(session, settings), session, stop), worker, settings, stop, health, now_ms
    )


async def _run_app(app: _App, session: Session, stop: asyncio.Event) -> None:
    watching = asyncio.create_task(_watch(app, session))
    try:
        if await session.until(stop, app.start()):
            await session.until(stop)
            await cast("_Consumer", app.consumer).give_back()
    finally:
        given_up(watching)
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.wait({stopping}, timeout=STOP_S)  # Faust's stop goes on after a cancel
        if not stopping.done():
            unwatched(stopping)
            raise RuntimeError(f"Faust did not stop within {STOP_S:g} s")
        stopping.result()


async def _watch(app: _App, session: Session) -> None:
    """End the session when Faust crashes; Kafka errors count as outages."""
    await app._crashed.wait()  # noqa: SLF001 - mode has no public way to wait for it
    reason = app.crash_reason
    if isinstance(reason, KafkaError | OSError | TimeoutError | ConsumerNotStarted):
        session.fail(LogError(f"Faust gave up: {reason or type(reason).__name__}"))
    else:
        session.fail(reason or RuntimeError("Faust crashed without a reason"))


def _app(session: Session, settings: WorkerSettings) -> _App:
    session_timeout_s = settings.session_timeout_ms / 1_000
    app = _App(
        settings.group,
        broker=";".join(f"kafka://{place.strip()}" for place in settings.bootstrap.addresses.split(",")),
        autodiscover=False,
        broker_commit_interval=COMMIT_EVERY_S,
        broker_heartbeat_interval=session_timeout_s / 6,
        broker_rebalance_timeout=session_timeout_s,
        broker_session_timeout=session_timeout_s,
        TableManager=_Tables,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=WHOLE_BYTES_MAX,
        store="memory://",
        stream_buffer_maxsize=BUFFER_MAX,
        table_standby_replicas=0,  # otherwise Faust's assignor, which other members may lack
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
    )
    app.session = session
    transport = _Transport([*app.conf.broker_consumer], app)
    transport.bootstrap, transport.fetch_wait_ms = settings.bootstrap, settings.fetch_wait_ms
    app.transport = transport

    async def assigned(_: Any, /, *places: Any, signal: Any, **__: Any) -> None:  # noqa: ARG001 - Faust's signature
        session.assigned(frozenset(Place(*place) for place in places[0]), app.consumer_generation_id)

    async def revoked(_: Any, /, *__: Any, signal: Any, **___: Any) -> None:  # noqa: ARG001
        session.revoked()

    app.on_partitions_assigned.connect(assigned, weak=False)
    app.on_partitions_revoked.connect(revoked, weak=False)
    samples = app.topic(SAMPLE.name, schema=_Raw(key_type=bytes, value_type=bytes))
    app.agent(samples, name="answer")(_answer(app, session))
    return app


def _answer(app: _App, session: Session) -> Callable[[faust.StreamT[Any]], Any]:
    async def answer(stream: faust.StreamT[Any]) -> None:
        async for turn in stream:
            consumer = cast("_Consumer", app.consumer)
            session.quarantine.offsets = consumer
            if not session.failed:  # otherwise the next session fetches the turn, which is not committed
                try:
                    batches = {place: taken.records(*place) for place, taken in turn.items()}
                    ends = {place: consumer.highwater(TP(*place)) for place in turn}
                    done = await session.answer(batches, ends)
                except Exception as exc:  # noqa: BLE001 - Faust would drop the batch and answer the next
                    session.fail(exc)
                else:
                    consumer.answered |= {TP(*place): offset for place, offset in done.items()}
            consumer.make_room(turn)

    return answer


class _Raw(faust.Schema[Any, Any]):
    def compile(self, app: Any, **_: Any) -> Any:
        async def decode(message: Any, *, propagate: bool = False) -> Any:  # noqa: ARG001 - Faust's signature
            return Event(app, None, message.value, message.headers, message)

        return decode


class _Thread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        conf = self.app.conf
        return AIOKafkaConsumer(
            **client(cast("_Transport", transport).bootstrap),
            client_id=conf.broker_client_id,
            group_id=conf.id,
            partition_assignment_strategy=ASSIGNORS,
            enable_auto_commit=False,
            auto_offset_reset=conf.consumer_auto_offset_reset,
            metadata_max_age_ms=METADATA_MS,
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            fetch_max_wait_ms=cast("_Transport", transport).fetch_wait_ms,
            session_timeout_ms=int(conf.broker_session_timeout * 1_000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1_000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1_000),
            value_deserializer=at_once,
        )

    async def getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        consumer = self._ensure_consumer()
        fetch = self._fetch_records(
            consumer,
            cast("set[TP]", active_partitions),
            timeout=timeout,
            max_records=consumer._max_poll_records,  # noqa: SLF001
        )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fetch, self.thread_loop))

    async def notes(self, places: Collection[TP]) -> dict[TopicPartition, tuple[int, str]]:
        found: dict[TopicPartition, tuple[int, str]] = await self.call_thread(
            notes, self._ensure_consumer(), [TopicPartition(place.topic, place.partition) for place in places]
        )
        return found

    async def _commit(self, offsets: Mapping[TP, Any]) -> bool:
        places = {TopicPartition(place.topic, place.partition): offset for place, offset in offsets.items()}
        return await committed(self._ensure_consumer(), places)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        offsets = await super().seek_to_committed()
        for place, offset in offsets.items():
            if not offset:
                await self.call_thread(self._ensure_consumer().seek, place, 0)
        return offsets

    @faust.Service.task
    async def _take_group_errors(self) -> None:
        session = cast("_App", self.app).session
        async for _ in self.itertimer(GROUP_ERRORS_S, name="group errors"):
            try:
                self._ensure_consumer()._coordinator.check_errors()  # noqa: SLF001 - it has no public method
            except KafkaError as exc:
                error = LogError(f"cannot be a member of the group {self.app.conf.id}: {exc}")
                self.parent_loop.call_soon_threadsafe(session.fail, error)

    async def on_thread_stop(self) -> None:
        await super(driver.AIOKafkaConsumerThread, self).on_thread_stop()
        if self._consumer is not None:
            await leave(self._consumer)


class _Consumer(driver.Consumer):
    """Faust's consumer: takes whole fetches, and commits answered offsets."""

    def on_init(self) -> None:
        self.answered: dict[TP, int] = {}
        self._marked: dict[TP, int] = {}
        self._turns = Turns()
        self._ahead: list[Mapping[Place, Taken]] = []
        self._room = asyncio.Event()
        self._ended = False

    def _new_consumer_thread(self) -> _Thread:
        thread = _Thread(self, loop=self.loop, beacon=self.beacon, thread_loop=type(self.loop)())
        thread._close_thread_loop_on_stop = True  # noqa: SLF001 - as for a loop of its own
        return thread

    async def _wait_next_records(self, timeout: float) -> Any:
        if self.flow_active and not self._get_active_partitions():
            await self.sleep(IDLE_S)
            return {}, set()
        return await super()._wait_next_records(timeout)

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
        if not self._turns:
            records, _ = await self._wait_next_records(POLL_S)
            if not records or self.should_stop:
                return None
        if not self.flow_active or self.app.consumer_generation_id != generation:
            self._turns.clear()
            if self.assignment():
                await self.perform_seek()  # dropped records are fetched again
            return None
        if records:
            self._turns.add({Place(*place): batch for place, batch in records.items()})
        turn = self._turns.next()
        if not turn:
            return None
        self._ahead.append(turn)
        place, taken = next(iter(turn.items()))
        return ConsumerMessage(
            *place,
            offset=taken.offsets[-1],
            timestamp=taken.times_ms[-1] / 1_000,
            timestamp_type=0,
            headers=[],
            key=None,
            value=cast("bytes", turn),
            checksum=None,
            serialized_key_size=0,
            serialized_value_size=0,
            tp=TP(*place),
            generation_id=self.app.consumer_generation_id,
        )

    def make_room(self, turn: Mapping[Place, Taken]) -> None:
        """Remove an answered turn."""
        self._ahead = [one for one in self._ahead if one is not turn]
        self._room.set()

    async def _has_room(self) -> bool:
        """Check whether more may be fetched; wait a moment if not."""
        if len(self._ahead) >= TURNS_AHEAD_MAX:
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), POLL_S)
        return len(self._ahead) < TURNS_AHEAD_MAX

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self._ahead.clear()  # Faust has dropped them
        self._turns.clear()
        self._room.set()
        await super().on_partitions_assigned(assigned, generation_id)

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002
        self._acked.clear()
        self._acked_index.clear()
        due = {place: offset for place, offset in self.answered.items() if self._marked.get(place) != offset}
        # The next session starts at the last commit, so a failed session does not wait for another.
        session = cast("_App", self.app).session
        if not due or session.failed or self._ended:
            return False
        if not await self.commit_marked(session.quarantine.marked({Place(*at): offset for at, offset in due.items()})):
            return False
        self._marked |= due
        return True

    async def commit_marked(self, offsets: Marked) -> bool:
        """Commit offsets with their notes; False: not now."""
        places = {TP(*place): marked for place, marked in offsets.items()}
        return await self._commit(cast("Mapping[TP, int]", places))

    async def notes(self, places: Collection[Place]) -> Marked:
        """Return the committed offsets of these places, with notes."""
        thread = cast("_Thread", self._thread)
        found = await thread.notes([TP(*place) for place in places])
        return {Place(*place): one for place, one in found.items()}

    async def give_back(self) -> None:
        """Commit without notes, so that the next owner sees a clean handover."""
        session = cast("_App", self.app).session
        self._ended = not session.failed
        if self._ended:
            await self.commit_marked({place: (at, "") for place, at in session.positions.items()})

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await super().on_partitions_revoked(revoked)
        await self.give_back()
        self._ended = False
        self.answered.clear()
        self._marked.clear()

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: the session reports health."""


class _Transport(driver.Transport):
    Consumer = _Consumer
    bootstrap: Cluster
    fetch_wait_ms = 0


class _Tables(TableManager):
    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()


class _Boot(BootStrategy):
    enable_kafka_producer = False  # all streams share one sender for answers


class _App(faust.App):
    BootStrategy = _Boot
    session: Session

    def _create_directories(self) -> None:
        """Create none."""


for _service in (_App, _Consumer, _Tables, _Thread):
    _service.logger = logging.getLogger("faust")
logging.getLogger("faust").setLevel(logging.WARNING)
logging.getLogger("mode").setLevel(logging.WARNING)
