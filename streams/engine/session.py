"""A session between worker and Kafka, on Faust and on aiokafka alike: from a fetched batch to acknowledged answers.

A session ends when the log gives up on it, and a new one begins a second later, from the committed
offsets: within the process, so that a broker that restarts costs neither the policy nor a start-up.
Any other error is a fault of the program and ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec

from slacktide.schemas.access import STREAM_GROUP
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, failure
from slacktide.schemas.health import Health
from slacktide.schemas.topics import (
    INVENTORY,
    POLICY,
    SAMPLE,
    SAMPLES,
)
from slacktide.streams.engine import metrics
from slacktide.streams.engine.forecasting import Forecasting
from slacktide.streams.engine.forked_trial import survives
from slacktide.streams.engine.lists import read_lists
from slacktide.streams.engine.partitions import checked_partitions
from slacktide.streams.engine.quarantine import Quarantine
from slacktide.streams.engine.sending import sent
from slacktide.streams.engine.shadowing import ShadowDoor
from slacktide.streams.engine.takeover import Rebuilding
from slacktide.streams.engine.ticking import Ticking
from slacktide.streams.isolated import alone
from slacktide.streams.kafka import WHOLE, History, Refused, Sender, Tail, last_of_each_key, places_of
from slacktide.streams.records import Out, Place, Record
from slacktide.streams.rendering import RenderedAnswers
from slacktide.streams.taken import Records
from slacktide.streams.worker import Worker

log = logging.getLogger(__name__)

FOLLOW_WAIT_MS = 200
"""Policy and inventory change by hand: a fetch for them may be held longer than one for samples."""
READ_BACK_MS = 20_000
"""Read back into the live windows before the first answer: so that figures of the last seconds are in them."""
READ_BACK_RECORDS_MAX = 50_000
"""And at most so many: 20 s of 2,500 nodes in one partition. What is read back is held at once."""
KEPT_MS = SAMPLE.retention_ms or 0
READ_BACK_WAIT_MS = 20
"""A fetch that is held would hold up what is asked next on its connection, at each partition that is taken over."""
RETRY_S, RETRY_MAX_S = 1.0, 3.0
SEND_S = 3.0
"""For a request to write; a write that is not acknowledged within twice this has failed."""
FRESH_S = 5.0
BEAT_S = 0.25
JOIN_SESSIONS = 5
"""A group is shared out within a session timeout or two. After so many the worker connects anew."""
FIGURES_S = 1.0
"""What was answered is in the windows, and published, so often, and with each tick, which comes half of that later."""
COPY_S = 10.0
"""For a copy of this process to answer what is suspected. Heartbeats to the group go on meanwhile."""
FINISH_S = 2.0
"""What was at hand when the worker began to stop has so long to be answered; whoever comes next answers it, too."""
FIGURES_AT_ONCE = 128
"""Samples that do not wait for others any longer. Of two thousand together a worker at 1,000 nodes needs a hundred
megabytes more, and a backlog is answered no faster."""
UNSENT_MAX = 1_000
"""Records of figures that do not wait for others any longer: of 300 nodes, 3 MB. A batch of each partition and topic
costs as much as its records, if these are few."""
_OWNER = f"{os.getpid()}-{os.urandom(6).hex()}"
"""This process, in notes on committed offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """How a worker is connected."""

    bootstrap: Cluster
    """The Kafka cluster."""
    group: str = STREAM_GROUP
    """Workers of one group share the nodes out."""
    session_timeout_ms: int = 6_000
    """A worker silent for this long has lost its partitions. On the embedded broker a join waits half of it."""
    fetch_wait_ms: int = 100
    """How long the broker may hold a fetch. Kafka answers as soon as there is a record: a short wait only makes it be
    asked more often. The embedded one holds each so long, which delays an answer by half."""


class Session:
    """One connection of a worker to the log. The two engines differ only in how batches come and offsets go."""

    def __init__(
        self,
        worker: Worker,
        settings: ShellSettings,
        stop: asyncio.Event,
        health: Health,
        now_ms: Callable[[], int],
    ) -> None:
        self._worker = worker
        self._stop = stop
        self._health = health
        self._now_ms = now_ms
        self._bootstrap = settings.bootstrap
        self._session_timeout_s = settings.session_timeout_ms / 1_000
        self._beat_s = 0.0
        self._sender = Sender(settings.bootstrap, client_id="slacktide-stream", timeout_s=SEND_S)
        self._latest = Tail(settings.bootstrap, FOLLOW_WAIT_MS)
        self._history = History(settings.bootstrap, min(settings.fetch_wait_ms, READ_BACK_WAIT_MS))
        self._shadow = ShadowDoor(worker.shadow, settings.bootstrap, now_ms) if worker.shadow else None
        self._forecasting = Forecasting(worker, settings.bootstrap, self._write, now_ms)
        self._rebuilding = Rebuilding(worker, settings.bootstrap, self._write)
        self._ticking = Ticking(
            worker,
            bootstrap=settings.bootstrap,
            group=settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            now_ms=now_ms,
            write=self._write,
        )
        self._doors = contextlib.AsyncExitStack()
        self._partitions = 0
        """Of the topic of samples, when it was looked at."""
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsent: list[Out] = []
        """Figures that wait for others."""
        self._next: dict[Place, int] = {}
        self.quarantine = Quarantine(_OWNER, _log_crash)
        """The shell gives it the group's offsets."""
        self._held: frozenset[Place] | None = None
        self._joining_since_s: float | None = None
        """Since when the group owes this worker its partitions."""
        self._answered_at_s: float | None = None
        self._unknown_samples = worker.unknown_samples

    async def __aenter__(self) -> Self:
        """Begin; ``connect`` comes next."""
        return self

    async def connect(self) -> None:
        """Connect, and read policy and inventory whole.

        Raises:
            LogError: nobody answers, or the topics are not as the table of topics has them.

        """
        metrics.SESSIONS.inc()
        self._health.not_ready = "connecting to Kafka"
        async with contextlib.AsyncExitStack() as doors:
            partitions = await checked_partitions(self._bootstrap)
            self._partitions = partitions[SAMPLE.name]
            for door in (
                self._latest,
                self._history,
                self._sender,
                self._ticking,
                self._rebuilding,
                self._forecasting.door,
            ):
                await doors.enter_async_context(door)
            self._health.not_ready = "reading policy and inventory"
            logged = (
                await self._latest.read(places_of(partitions, {POLICY.name: WHOLE, INVENTORY.name: WHOLE}))
            ).records
            await self._take(last_of_each_key(logged), older=[one for one in logged if one.topic == POLICY.name])
            if self._shadow is not None:
                await doors.enter_async_context(self._shadow)
            self._doors = doors.pop_all()
        self._health.not_ready = "joining the group"
        self._beat_s = self._joining_since_s = asyncio.get_running_loop().time()
        self._tasks = [
            asyncio.create_task(self._guarded(work))
            for work in (
                self._beat,
                self._follow,
                self._watch,
                self._publish,
                self._finish,
                self._ticking.run,
                self._rebuilding.run,
                self._forecasting.run,
            )
        ]

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect; the worker forgets its nodes, for the next owner of their partitions knows more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if exc is None and self._tasks:
            with contextlib.suppress(LogError):  # answered it is; the next owner reads it back
                await self._figures()
        if not self._failed.cancel():
            self._failed.exception()  # reported already, or overtaken by another
        self._share(frozenset())
        await self._doors.aclose()

    @property
    def failed(self) -> bool:
        """Whether it ends, and answers nothing any more."""
        return self._failed.done()

    def fail(self, error: BaseException) -> None:
        """Something that runs beside has failed: end the session."""
        if not self._failed.done():
            self._health.not_ready = str(error)
            self._failed.set_exception(error)

    async def until(self, stop: asyncio.Event, work: Coroutine[Any, Any, None] | None = None) -> bool:
        """Wait for the end of ``work``, whichever comes first of that and the session's end.

        Args:
            stop: set: all shall end.
            work: what to do meanwhile; cancelled where the end comes first. None: only wait.

        Returns:
            Whether ``work`` is done.

        Raises:
            LogError: the log has given up; or whatever ``work`` raised.

        """
        stopped = asyncio.ensure_future(stop.wait())
        working = asyncio.ensure_future(work) if work else None
        waited = [task for task in (stopped, working, self._failed) if task]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if working and not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
        if self._failed.done():
            self._failed.result()
        if working and working.done() and not working.cancelled():
            working.result()
            return True
        return False

    def assigned(self, places: frozenset[Place], generation: int) -> None:
        """These are the worker's places now, and no others, in this generation of the group."""
        metrics.REBALANCES.inc()
        self._share(places, generation)
        self._joining_since_s = None
        # The group may have been shared out anew because the log was made anew.
        self._latest.again()
        self._health.not_ready = ""
        partitions = {place.partition for place in places}
        whole = all(Place(topic.name, partition) in places for topic in SAMPLES for partition in partitions)
        if not partitions or not whole or max(partitions) >= self._partitions:
            self._tasks.append(asyncio.create_task(self._guarded(self._check_topics)))
        log.info("partitions assigned", extra={"partitions": sorted(partitions)})

    def revoked(self) -> None:
        """The group is being shared out anew; ``assigned`` names what stays."""
        self._health.not_ready = "the consumer group is rebalancing"
        self._joining_since_s = asyncio.get_running_loop().time()

    async def answer(
        self, batches: Mapping[Place, Sequence[Record]], ends: Mapping[Place, int | None]
    ) -> dict[Place, int]:
        """Answer fetched samples; returns with the next offset of each place, once the log has all answers.

        Args:
            batches: by place, in order.
            ends: by place the offset at which it ends, where that is known.

        Raises:
            LogError: a write failed, a partition that was taken over could not be read back, or the process stood
                still for so long that the partitions may be another's.

        """
        self._check_awake()
        some = {place: records for place, records in batches.items() if records}
        if fresh := {place: records[0] for place, records in some.items() if place not in self._next}:
            await self.quarantine.take_over(fresh)
        for place, records in some.items():
            await self._take_over(place, records)
        together: dict[Place, Sequence[Record]] = {}
        alone = await self._alone(some)
        for place, records in some.items():
            await self._answer_alone(records[: alone[place]])
            together[place] = records[alone[place] :]
        # All at once: what a sample costs beside its own figures is shared by those that come together.
        await self._answer_together(together)
        if self._worker.unpublished >= FIGURES_AT_ONCE:
            self._unsent += self._worker.figures(self._now_ms())
            if len(self._unsent) >= UNSENT_MAX:
                await self._figures()
        done = {place: records[-1].offset + 1 for place, records in some.items()}
        metrics.SAMPLES.inc(sum(len(records) for records in batches.values()))
        metrics.LATE_SAMPLES.set(self._worker.late_samples)
        metrics.UNKNOWN_SAMPLES.inc(self._worker.unknown_samples - self._unknown_samples)
        self._unknown_samples = self._worker.unknown_samples
        for place, position in done.items():
            self._report_lag(place, (ends.get(place) or position) - position, batches[place][-1])
        if done:
            self._answered_at_s = asyncio.get_running_loop().time()
            self._health.not_fresh = self._late()
        return done

    async def _answer_together(self, batches: Mapping[Place, Sequence[Record]]) -> None:
        outs = self._answers(Records.joined(batches.values()))
        # A sample that anybody may have sent does not show that its node lives.
        nodes = (
            outs.nodes
            if isinstance(outs, RenderedAnswers)
            else {out.key for out in outs if out.answer and not out.unproven}
        )
        for place, records in batches.items():
            if records:
                self._ticking.answered(place, records, nodes)
                self.quarantine.answered(records[-1])
                self._next[place] = records[-1].offset + 1
        self._check_awake()
        await self._written(outs)

    async def _alone(self, batches: Mapping[Place, Sequence[Record]]) -> dict[Place, int]:
        """Return of each place how many of its first records are to be answered one by one.

        Each of those costs a commit, and there may be a thousand. So at a first crash a copy of this process answers
        all that is suspected: if it survives, the records are no longer suspected.
        """
        found = {place: self.quarantine.suspects(place, records) for place, records in batches.items()}
        first = {place: count for place, count in found.items() if count and not self.quarantine.again(place)}
        suspects = [record for place, count in first.items() for record in batches[place][:count]]
        if suspects:
            if await survives(lambda: self._answer_in_copy(suspects), COPY_S):
                return found | dict.fromkeys(first, 0)
            log.error("a copy of this process died on records of a crashed owner: they are answered one by one",
                      extra={"records": len(suspects)})  # fmt: skip
        return found

    def _answer_in_copy(self, records: Sequence[Record]) -> None:
        self._answers(records)
        self._worker.figures(self._now_ms())

    async def _answer_alone(self, suspects: Sequence[Record]) -> None:
        """Answer one by one what the partition's last owner may have crashed on."""
        for record in suspects:
            self._check_awake()
            if self.quarantine.condemned(record):
                log.error("a record has crashed two workers; it becomes a dead letter", extra=_place(record))
                await self._write([self._worker.crashed(record, self._now_ms())])
                self._next[record.place] = record.offset + 1
                continue
            await self.quarantine.trying(record)
            await self._answer_together({record.place: [record]})
            await self._figures()
        if suspects:
            await self.quarantine.settle({suspects[-1].place: suspects[-1].offset + 1})

    def _answers(self, records: Sequence[Record]) -> Sequence[Out]:
        """Answer them; one that raises for a second time, alone, becomes a dead letter."""
        now_ms = self._now_ms()

        def failed(record: Record, error: Exception) -> list[Out]:
            log.error("a record cannot be answered: %r", error, extra=_place(record))
            return [self._worker.crashed(record, now_ms, failure("answer", error))]

        def work(some: Sequence[Record]) -> Sequence[Out]:
            return self._worker.answers(some, now_ms)

        try:
            return work(records)
        except Exception:  # noqa: BLE001 - it must not cost the other records
            return [out for record in records for out in alone(work, record, failed)]

    @property
    def positions(self) -> dict[Place, int]:
        """By place, the next offset to be answered."""
        return dict(self._next)

    async def _publish(self) -> None:
        """Figures may wait for others: what a wave costs beside its samples is spent twice a second."""
        await asyncio.sleep(FIGURES_S / 2)
        while True:
            await asyncio.sleep(FIGURES_S)
            if self._worker.unpublished or self._unsent:
                await self._figures()
            elif self._shadow is not None:
                self._shadow.go_on()

    async def _figures(self) -> None:
        self._check_awake()
        await self._write(self._worker.figures(self._now_ms()))
        if self._shadow is not None:
            self._shadow.go_on()

    async def _take_over(self, place: Place, coming: Sequence[Record]) -> None:
        """Learn what stands before records that do not follow on what was read last, and see to their windows."""
        first, before = coming[0], list[Record]()
        if self.quarantine.bare(place):
            if place not in self._next:
                log.error("owners of a partition crash again and again: it is taken over without history",
                          extra=_place(first))  # fmt: skip
            return
        now_ms = self._now_ms()
        if not now_ms - KEPT_MS <= first.timestamp_ms <= now_ms:
            # Its topic has CreateTime, and its producer's clock is wrong: nothing can be read back from that time.
            first = msgspec.structs.replace(first, timestamp_ms=now_ms)
        if first.offset > self._next.get(place, 0):
            before = await self._history.span(
                *place,
                before=first.offset,
                since_ms=first.timestamp_ms - READ_BACK_MS,
                most=READ_BACK_RECORDS_MAX,
            )
            await read_lists(self._history, self._worker.lists, place, before, [first, *coming[1:]])
            self._ticking.learned(place, self._worker.learn(before))
            metrics.READ_BACK.inc(len(before))
            log.info("partition read back", extra={**place._asdict(), "samples": len(before)})
        if place not in self._next:
            self._rebuilding.take_over(place, first, before)

    async def _write(self, outs: Sequence[Out]) -> None:
        """Write records behind the figures that wait, which they may follow."""
        unsent, self._unsent = self._unsent, []
        await self._written([*unsent, *outs] if unsent else outs)

    async def _written(self, outs: Sequence[Out]) -> None:
        refusals = await self._sent(outs)
        if not refusals:
            metrics.count_written(outs)
            return
        refused = [refusal.out for refusal in refusals]
        metrics.count_written([out for out in outs if out not in refused])
        instead = [out for r in refusals for out in self._worker.refused(r.out, r.why, self._now_ms())]
        for refusal in refusals:
            log.warning("Kafka rejected a record", extra={"topic": refusal.out.topic, "why": refusal.why})
        lost = [refusal.out for refusal in await self._sent(instead)]
        metrics.count_written([out for out in instead if out not in lost])
        for out in lost:  # silence is trouble, and the guard acts on it; the next record is read all the same
            log.error("Kafka also rejects the replacement of a rejected record", extra={"topic": out.topic})

    async def _sent(self, outs: Sequence[Out]) -> list[Refused]:
        """Write; a session that has failed waits for no acknowledgement any more, or its end would wait for them all.

        Raises:
            LogError: a write failed, this one or the one that ends the session.

        """
        sending = asyncio.ensure_future(sent(self._sender, outs))
        try:
            await asyncio.wait((sending, self._failed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            unsent = sending.cancel()
        if unsent:
            raise LogError("the session has ended")
        return sending.result()

    def _report_lag(self, place: Place, records: int, last: Record) -> None:
        age_s = max(0.0, (self._now_ms() - last.timestamp_ms) / 1_000)
        metrics.lag(place, max(0, records), age_s if records > 0 else 0.0)

    def _share(self, places: frozenset[Place], generation: int = 0) -> None:
        partitions = {place.partition for place in places}
        for place in self._next.keys() - places:
            del self._next[place]
            self.quarantine.forget(place)
            self._rebuilding.forget(place)
            if place.partition not in partitions:
                self._worker.forget(place.partition)
            metrics.gone(place)
        self._unsent = [out for out in self._unsent if out.partition is None or out.partition in partitions]
        self._held = places
        self._forecasting.hold(partitions)
        self._ticking.hold(places, max(0, generation))
        metrics.PARTITIONS.set(len(partitions))

    async def _take(self, records: Sequence[Record], older: Sequence[Record] = ()) -> None:
        """Take in what operators publish.

        Args:
            records: in order.
            older: policies that were published before: the last good one of the highest epoch may be one. What is
                bad of them was laid aside when it came.

        """
        outs: list[Out] = []
        before, refused = self._worker.in_force.version, self._worker.policies.refused
        for record in older:
            self._worker.policy(record)
        for record in records:
            if record.topic == POLICY.name:
                outs += self._worker.policy(record)
            else:
                outs += self._worker.inventory(record)
                self._ticking.inventory(record)
        if self._worker.in_force.version != before:
            log.info("another policy is in force", extra={"version": self._worker.in_force.version})
        self._report_refused(refused)
        await self._write(outs)

    def _report_refused(self, before: str) -> None:
        """Report a policy that is refused; ``before``: what was reported last."""
        refused = self._worker.policies.refused
        metrics.POLICY_REFUSED.set(bool(refused))
        if refused and refused != before:
            log.error("a policy is refused", extra={"why": refused})

    async def _follow(self) -> None:
        while True:
            await self._take(await self._latest.more())

    async def _beat(self) -> None:
        while True:
            self._check_awake()
            self._beat_s = asyncio.get_running_loop().time()
            await asyncio.sleep(BEAT_S)

    async def _check_topics(self) -> None:
        """The topics of samples have more partitions than at the start, or this worker lacks some of one of them.

        Raises:
            LogError: a topic is missing, or the others have fewer partitions.

        """
        self._partitions = (await checked_partitions(self._bootstrap))[SAMPLE.name]

    async def _finish(self) -> None:
        await self._stop.wait()
        await asyncio.sleep(FINISH_S)
        raise LogError(f"asked to stop, and not done within {FINISH_S:g} s")

    def _check_awake(self) -> None:
        """A process that stood still for a session has lost its partitions, and is the last to learn of it.

        Raises:
            LogError: it did: what it has fetched others have answered, and it must join anew.

        """
        still_s = asyncio.get_running_loop().time() - self._beat_s
        if still_s > self._session_timeout_s:
            raise LogError(f"the worker stood still for {still_s:.1f} s; others may have its partitions by now")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._health.not_fresh = self._late()
            self._check_joined()

    def _check_joined(self) -> None:
        """Begin anew where the group gives no partitions, not even none, for much longer than it may take.

        Raises:
            LogError: it does not.

        """
        since_s, most_s = self._joining_since_s, JOIN_SESSIONS * self._session_timeout_s
        if since_s is not None and asyncio.get_running_loop().time() - since_s > most_s:
            raise LogError(f"the group assigned no partitions within {most_s:g} s")

    def _late(self) -> str:
        """Why what this worker publishes may be out of date; "": it is not."""
        if self._worker.policies.refused:
            return f"a policy is refused: {self._worker.policies.refused}"
        if self._held is not None and not self._held:
            return ""  # others have all partitions: nothing is late here
        if self._ticking.alarm:
            return self._ticking.alarm
        if self._answered_at_s is None:
            return "no sample answered yet"
        silent_s = asyncio.get_running_loop().time() - self._answered_at_s
        return f"no sample answered for {silent_s:.0f} s" if silent_s > FRESH_S else ""

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as exc:  # noqa: BLE001 - handed on to whoever waits for the session's end
            self.fail(exc)


def _place(record: Record) -> dict[str, object]:
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}


def _log_crash(place: Place, offset: int, strikes: int) -> None:
    log.warning(
        "a partition's last owner has crashed; the records that it may have worked on are suspected",
        extra={**place._asdict(), "offset": offset, "crashes": strikes},
    )


async def keep_connected(
    begin: Callable[[], Session], work: Callable[[Session], Awaitable[None]], stop: asyncio.Event, health: Health
) -> None:
    """Run sessions, one after the other, until all shall end.

    Args:
        begin: makes one that is not connected yet.
        work: answers samples in one that is, until it shall stop.
        stop: set: all shall end.
        health: filled here.

    Raises:
        Exception: whatever is not the log's doing.

    """
    logged, backoff = "", Backoff(RETRY_S, RETRY_MAX_S)
    while not stop.is_set():
        try:
            async with begin() as session:
                if await session.until(stop, session.connect()):
                    backoff.reset()
                    await work(session)
        except LogError as exc:
            health.not_ready = str(exc)
            if logged != str(exc):  # not once a second while a broker is away
                logged = str(exc)
                log.warning("%s%s", exc, "" if stop.is_set() else "; connecting again until it works")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), backoff.next_s())
        except Exception as exc:
            health.not_live = f"the worker has failed: {exc!r}"
            raise
    health.not_ready = "stopped"
