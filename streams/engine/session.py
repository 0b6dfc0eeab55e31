"""A session between worker and Kafka: from a fetched turn to acknowledged answers.

A session ends when Kafka fails. A new one begins a second later in the same process, from the committed offsets, so a
broker's restart does not restart the worker. Any other error is a programming error and ends the process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Self

from slacktide.schemas.access import STREAM_GROUP
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.topics import (
    ALLOCATABLE,
    BACKFILL,
    COMMAND,
    DEAD_LETTER,
    FORECAST,
    INVENTORY,
    METRIC,
    POLICY,
    SAMPLE,
    SCORE,
    TICK,
    WINDOW,
)
from slacktide.streams.engine import metrics
from slacktide.streams.engine.answering import Answering
from slacktide.streams.engine.inputs import Forecasting, OperatorRecords
from slacktide.streams.engine.lifetime import Lifetime
from slacktide.streams.engine.rebuilding import Rebuilding
from slacktide.streams.engine.ticking import Liveness, Ticking
from slacktide.streams.engine.transport import Consumer, Turn
from slacktide.streams.engine.writing import Figures, ShadowDoor, Writing
from slacktide.streams.kafka import History, present
from slacktide.streams.records import Place
from slacktide.streams.tasks import ended
from slacktide.streams.worker import Worker

log = logging.getLogger(__name__)

READ_BACK_WAIT_MS = 20
"""A long fetch would delay the next request on its connection, at each partition that is taken over."""
RETRY_S, RETRY_MAX_S = 1.0, 3.0
FINISH_S = 2.0
"""Time to finish the current work after a stop; otherwise the next owner answers it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Connection of a worker."""

    bootstrap: Cluster
    group: str = STREAM_GROUP
    """Workers of one group share the nodes."""
    session_timeout_ms: int = 6_000
    """A worker silent for this long loses its partitions. On the embedded broker a join waits half of it."""
    fetch_wait_ms: int = 100
    """How long the broker may hold a fetch. The embedded one always does, which delays an answer by half of it."""


class Session(Lifetime):
    """One connection of a worker to Kafka: all but fetches and commits, which are its app's.

    The app runs ``operator_records``, ``ticking``, ``figures``, ``forecasting`` and ``rebuilding``.
    """

    def __init__(
        self,
        worker: Worker,
        settings: WorkerSettings,
        stop: asyncio.Event,
        health: Health,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__()
        self._worker, self._stop, self._health = worker, stop, health
        self._bootstrap = settings.bootstrap
        self._history = History(settings.bootstrap, min(settings.fetch_wait_ms, READ_BACK_WAIT_MS))
        self._shadow = ShadowDoor(worker.shadow, settings.bootstrap, now_ms) if worker.shadow else None
        self._writing = Writing(worker, settings.bootstrap, self.failure, now_ms)
        write = self._writing.write
        self.forecasting = Forecasting(worker, settings.bootstrap, self._history, write, now_ms)
        self.rebuilding = Rebuilding(worker, settings.bootstrap, write)
        self.ticking = Ticking(
            worker,
            bootstrap=settings.bootstrap,
            group=settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            now_ms=now_ms,
            write=write,
        )
        self.operator_records = OperatorRecords(worker, self.ticking, settings.bootstrap, write)
        self._liveness = Liveness(worker, self.ticking, health, settings.session_timeout_ms / 1_000)
        self.figures = Figures(worker, self._writing, self._liveness, self._shadow, now_ms)
        self._answering = Answering(
            worker,
            history=self._history,
            rebuilding=self.rebuilding,
            ticking=self.ticking,
            writing=self._writing,
            figures=self.figures,
            liveness=self._liveness,
            now_ms=now_ms,
        )
        self.marked = self._answering.quarantine.marked
        """Returns offsets to commit, each with its note."""
        self._doors = contextlib.AsyncExitStack()
        self._partitions = 0
        """Of the topic of samples, when it was last checked."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Begin; ``connect`` follows."""
        return self

    async def connect(self) -> None:
        """Connect, and read policy and inventory completely.

        Raises LogError if Kafka is unavailable, or topics do not match the table of topics.
        """
        metrics.SESSIONS.inc()
        self._health.not_ready = "connecting to Kafka"
        async with contextlib.AsyncExitStack() as doors:
            partitions = await checked_partitions(self._bootstrap)
            self._partitions = partitions[SAMPLE.name]
            for door in (
                self.operator_records.tail,
                self._history,
                self._writing.sender,
                self.ticking,
                self.rebuilding,
                self.forecasting.door,
            ):
                await doors.enter_async_context(door)
            self._health.not_ready = "reading policy and inventory"
            await self.operator_records.read(partitions)
            if self._shadow is not None:
                await doors.enter_async_context(self._shadow)
            self._doors = doors.pop_all()
        self._health.not_ready = "joining the group"
        self._liveness.begin()
        self._tasks = [
            asyncio.create_task(self._guarded(work))
            for work in (self._liveness.beat, self._liveness.watch, self._finish)
        ]

    async def decide(self, turn: Turn, member: Consumer) -> None:
        """Answer a turn of samples, and let ``member`` commit it once Kafka has acknowledged all answers.

        Raises LogError if Kafka is unavailable, or the process paused so long that it may have lost its partitions.
        """
        self._answering.quarantine.offsets, done = member, dict[Place, int]()
        try:
            batches = {place: taken.records(*place) for place, taken in turn.items()}
            done = await self._answering.answer(batches, member.ends(turn))
        finally:
            member.answered(turn, done)

    async def __aexit__(self, _: object, exc: BaseException | None, __: object) -> None:
        """Disconnect; the worker forgets its nodes, because the next owner of their partitions knows more."""
        await ended(*self._tasks)
        if exc is None and self._tasks:
            with contextlib.suppress(LogError):  # answered samples are read back by the next owner
                await self.figures.publish()
        self.forget_failure()
        self._share(frozenset())
        await self._doors.aclose()

    def fail(self, error: BaseException) -> None:
        """End the session because of an error in one of its tasks."""
        if not self.failed:
            self._health.not_ready = str(error)
        super().fail(error)

    def assigned(self, places: frozenset[Place], generation: int) -> None:
        """Set the worker's places in this generation of the group."""
        metrics.REBALANCES.inc()
        self._share(places, generation)
        self._liveness.assigned(owns=bool(places))
        # A rebalance may follow the recreation of a topic.
        self.operator_records.tail.again()
        self._health.not_ready = ""
        partitions = {place.partition for place in places}
        if not partitions or max(partitions) >= self._partitions:
            self._tasks.append(asyncio.create_task(self._guarded(self._check_topics)))
        log.info("partitions assigned", extra={"partitions": sorted(partitions)})

    def revoked(self) -> None:
        """Note a rebalance; ``assigned`` follows."""
        self._health.not_ready = "the consumer group is rebalancing"
        self._liveness.joining()

    @property
    def positions(self) -> dict[Place, int]:
        """Return the next offset to answer, by place."""
        return self._answering.positions

    def _share(self, places: frozenset[Place], generation: int = 0) -> None:
        partitions = {place.partition for place in places}
        self._answering.keep(places)
        self._writing.keep(partitions)
        self.forecasting.hold(partitions)
        self.ticking.hold(places, max(0, generation))
        metrics.PARTITIONS.set(len(partitions))

    async def _check_topics(self) -> None:
        """Check for added partitions, or partitions that this worker lacks. Raises LogError if counts differ."""
        self._partitions = (await checked_partitions(self._bootstrap))[SAMPLE.name]

    async def _finish(self) -> None:
        await self._stop.wait()
        await asyncio.sleep(FINISH_S)
        raise LogError(f"asked to stop, and not done within {FINISH_S:g} s")

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as exc:  # noqa: BLE001 - passed to the waiter for the session's end
            self.fail(exc)


async def keep_connected(
    work: Callable[[Session], Awaitable[None]],
    worker: Worker,
    settings: WorkerSettings,
    stop: asyncio.Event,
    health: Health,
    now_ms: Callable[[], int],
) -> None:
    """Run ``work`` in sessions one after the other until ``stop`` is set.

    Raises Exception for any error that Kafka did not cause.
    """
    logged, backoff = "", Backoff(RETRY_S, RETRY_MAX_S)
    while not stop.is_set():
        try:
            async with Session(worker, settings, stop, health, now_ms) as session:
                if await session.until(stop, session.connect()):
                    backoff.reset()
                    await work(session)
        except LogError as exc:
            health.not_ready = str(exc)
            if logged != str(exc):  # once per outage
                logged = str(exc)
                log.warning("%s%s", exc, "" if stop.is_set() else "; connecting again until it works")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await stop.wait()
        except Exception as exc:
            health.not_live = f"the worker has failed: {exc!r}"
            raise
    health.not_ready = "stopped"


KEYED_BY_NODE = (SAMPLE, INVENTORY, FORECAST, METRIC, ALLOCATABLE, SCORE, WINDOW, BACKFILL, COMMAND)


async def checked_partitions(bootstrap: Cluster) -> dict[str, int]:
    """Return the partition counts of the topics that a worker uses.

    Raises LogError if a topic is missing, or partition counts of topics keyed by node differ.
    """
    there = await present(bootstrap, [topic.name for topic in (*KEYED_BY_NODE, POLICY, TICK, DEAD_LETTER)])
    if trouble := unequal({topic.name: there[topic.name] for topic in KEYED_BY_NODE}, str(bootstrap)):
        raise LogError(trouble)
    return there


def unequal(counts: Mapping[str, int], bootstrap: str) -> str:
    """Name the topics with too few partitions, and the command that adds them; "": counts are equal."""
    most = max(counts.values())
    few = {name: count for name, count in counts.items() if count < most}
    if not few:
        return ""
    most_of = ", ".join(name for name, count in counts.items() if count == most)
    texts = ", ".join(f"{name} has {count}" for name, count in few.items())
    commands = "; ".join(
        f"kafka-topics --bootstrap-server {bootstrap} --alter --topic {name} --partitions {most}" for name in few
    )
    return f"{most_of}: {most} partitions, but {texts}, and a node has one number in all of them: {commands}"
