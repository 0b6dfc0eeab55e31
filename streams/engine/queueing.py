"""The queue's decider on aiokafka. Leader election picks one process; all others stand by.

A term reads the state, begins, then decides, writes, reads back and publishes. A decision counts once it is read back
and no higher epoch precedes it. Then its states are published. Once these are acknowledged, the offset behind the
decision is committed. The next leader reads from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from slacktide.schemas.access import QUEUE_GROUP
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.health import Health
from slacktide.schemas.queue import PodsReadySettings, QueueDecision, QueueState, spec_key, spec_of
from slacktide.schemas.queue_objects import QueueObject
from slacktide.schemas.topics import (
    ALLOCATABLE,
    DEAD_LETTER,
    INVENTORY,
    QUEUE_DECISION,
    QUEUE_OUTCOME,
    QUEUE_SPEC,
    QUEUE_STATE,
    QUEUE_WORKLOAD,
)
from slacktide.streams.decisions.queue.cluster_objects import offered_flavors
from slacktide.streams.engine import queue_metrics as metrics
from slacktide.streams.engine.leader_election import LeaderElection, campaign, mono_ms
from slacktide.streams.kafka import WHOLE, Refused, Sender, Tail, places_of, present
from slacktide.streams.queue.decider import Decider, Exceeding
from slacktide.streams.queue.ledger import Fence, decision_of, inputs_of, last_of_each, ledger_of
from slacktide.streams.queue.offered import FlavorOffers
from slacktide.streams.records import Out, Record, of_queue, text_of

log = logging.getLogger(__name__)

SEND_S = 3.0
FETCH_WAIT_MS = 50
"""A new workload must be decided soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Connection of a candidate."""

    bootstrap: Cluster
    process: str
    group: str = QUEUE_GROUP
    session_timeout_ms: int = 6_000
    """The group elects another decider after this time without a heartbeat."""
    fair_sharing: bool = False
    pods_ready: PodsReadySettings | None = None
    credit: Callable[[Tail, int, Sender], Credit] | None = None
    """Creates the client for eviction credit, from a reader, the term's epoch and a writer."""


async def run(settings: QueueSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]) -> None:
    """Be a candidate until ``stop`` is set, then leave the group; ``health``: ready while it decides or stands by."""

    async def candidate() -> None:
        election = LeaderElection(settings.bootstrap, QUEUE_DECISION, settings.group, settings.session_timeout_ms)
        health.not_ready = "not connected"
        try:
            # Check first: a client that requests a missing topic may create it with another number of partitions.
            counts = await present(settings.bootstrap, [topic.name for topic in (*TOPICS, DEAD_LETTER)])
            for name, count in counts.items():
                if count != 1:
                    raise LogError(f"{name} has {count} partitions: the queue needs one order")
            await election.join()
            while not stop.is_set():
                health.not_ready, health.not_fresh = "", ""
                await election.stay()
                health.turned("queue")
                if election.elected:
                    await _decide(election, settings, stop, health, now_ms)
        finally:
            health.not_ready = "not connected"
            metrics.DECIDES.set(0)
            await election.leave()

    await campaign(candidate, stop, "the queue's decider")


async def _decide(
    election: LeaderElection, settings: QueueSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]
) -> None:
    async with (
        Tail(settings.bootstrap, FETCH_WAIT_MS) as tail,
        Sender(settings.bootstrap, client_id="slacktide-queue", timeout_s=SEND_S, compress=True) as sender,
        AsyncExitStack() as stack,
    ):
        term = Term(
            settings.process,
            tail,
            sender,
            now_ms,
            fair_sharing=settings.fair_sharing,
            pods_ready=settings.pods_ready,
        )
        await term.begin(await election.done())
        metrics.DECIDES.set(1)
        stayed_ms = looked_ms = mono_ms()
        if settings.credit is not None:
            credit = await stack.enter_async_context(Tail(settings.bootstrap, FETCH_WAIT_MS))
            term.credit = settings.credit(credit, term.epoch, sender)
        offering = OfferWriter(settings.bootstrap, settings.process)
        stack.push_async_callback(offering.close)
        while election.elected and not stop.is_set():
            if not term.goes_on:
                await term.listen()
            if mono_ms() - stayed_ms > settings.session_timeout_ms // 6:
                await election.stay(term.done)
                stayed_ms = mono_ms()
                health.turned("queue")
            if mono_ms() - looked_ms > settings.session_timeout_ms:
                await tail.check()
                looked_ms = mono_ms()
            if election.leads:
                election.check()
                await term.act()
                await offering.step(term.objects, sender, now_ms())
    metrics.DECIDES.set(0)
    log.info("no longer the queue's decider", extra={"epoch": term.epoch})


LOOK_MS = 5_000
OFFER_WAIT_MS = 20


class OfferWriter:
    """Belongs to one term of the decider. It reads nodes only while some quota is a share."""

    def __init__(self, bootstrap: Cluster, process: str) -> None:
        self._bootstrap, self._process = bootstrap, process
        self._tail: Tail | None = None
        self._offers = FlavorOffers()
        self._looked_ms: int | None = None

    async def step(self, objects: Iterable[QueueObject], sender: Sender, now_ms: int) -> None:
        """Update the figures if due. While nodes cannot be read, quotas stay unchanged."""
        if self._looked_ms is not None and mono_ms() - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = mono_ms()
        objects = list(objects)
        if not offered_flavors(objects):
            return
        try:
            if self._tail is None:
                counts = await present(self._bootstrap, [INVENTORY.name, ALLOCATABLE.name])
                self._tail = await Tail(self._bootstrap, OFFER_WAIT_MS).__aenter__()
                read = await self._tail.read(places_of(counts, dict.fromkeys(counts, WHOLE)))
                self._offers.receive(read.records)
            else:
                self._offers.receive(await self._tail.more())
        except LogError as exc:
            log.warning("quotas cannot follow the nodes' batch resources", extra={"why": str(exc)})
            await self.close()
            return
        outs: list[Out] = []
        for one in self._offers.due(objects, now_ms):
            key, spec = spec_key(one), spec_of(one)
            value = None if spec is None else encode(spec)
            outs.append(of_queue(QUEUE_SPEC.name, key, value, source=f"queue/{self._process}", event_ms=now_ms))
        if outs:
            await sender.send_each(outs)

    async def close(self) -> None:
        """Stop reading."""
        tail, self._tail = self._tail, None
        if tail is not None:
            await tail.__aexit__(None, None, None)


TOPICS = (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_OUTCOME, QUEUE_STATE, QUEUE_DECISION)
READ_BACK_S = 10.0
"""Fail if an acknowledged decision does not come back within this time."""
RECORDS_MAX = 2_000
"""Per topic and turn; the first turn of a term has no limit."""
REPORT_MS = 1_000


class Credit(Protocol):
    """Eviction credit of the governor, for workloads that exceed a quota that shrank."""

    async def ready(self, victims: Sequence[Exceeding]) -> list[str]:
        """Return the uids of workloads that may be evicted now."""

    async def spend(self, victims: Sequence[Exceeding]) -> None:
        """Spend the credit of these evictions."""


class Term:
    """A term, from the election to the first error.

    ``process``: the name of this candidate in records. ``pods_ready``: how long workloads wait for ready pods; None: no
    limit.
    """

    def __init__(
        self,
        process: str,
        reading: Tail,
        writing: Sender,
        now_ms: Callable[[], int],
        *,
        fair_sharing: bool = False,
        pods_ready: PodsReadySettings | None = None,
    ) -> None:
        self.done = 0
        """The offset up to which the states of all decisions are published."""
        self._process, self._fair_sharing, self._pods_ready = process, fair_sharing, pods_ready
        self._reading, self._writing, self._now_ms = reading, writing, now_ms
        self._fence = Fence()
        self._decider: Decider
        self.credit: Credit | None = None
        """None: a smaller quota evicts nothing."""
        self._begun = False
        self._waiting: list[Record] = []
        self._reported_ms = 0

    @property
    def epoch(self) -> int:
        """Return the epoch of this term."""
        return self._decider.ledger.epoch

    @property
    def objects(self) -> list[QueueObject]:
        """Return all queue objects."""
        return self._decider.objects

    @property
    def goes_on(self) -> bool:
        """Check whether another turn is due immediately."""
        return self._decider.goes_on or bool(self._waiting)

    async def begin(self, done: int | None) -> None:
        """Read the decisions of earlier terms, and begin.

        ``done``: the committed offset; None: unknown, so all decisions are read. Raises LogError if Kafka is
        unavailable, or another process leads.
        """
        self.done = done or 0
        place = {topic.name: (topic.name, 0) for topic in TOPICS}
        state, decision, outcome = place[QUEUE_STATE.name], place[QUEUE_DECISION.name], place[QUEUE_OUTCOME.name]
        begin = max(self.done - 1, 0)
        found = (await self._reading.read({state: WHOLE, decision: WHOLE}, offsets={decision: begin})).records
        states = [one for one in found if one.topic == QUEUE_STATE.name]
        decisions = [one for one in found if one.topic == QUEUE_DECISION.name]
        ledger = ledger_of(states, decisions)
        offsets = {
            decision: decisions[-1].offset + 1 if decisions else begin,
            state: states[-1].offset + 1 if states else 0,
            outcome: ledger.read.outcome,
        }
        self._fence.passed(QueueDecision(epoch=ledger.epoch, turn=ledger.turn, process=ledger.process,
                                         decided_ms=0, read=ledger.read))  # fmt: skip
        rest = (await self._reading.read(dict.fromkeys(place.values(), WHOLE), offsets=offsets)).records
        now_ms = self._now_ms()
        # The clock is in the epoch, so that it is higher even after the topic was lost.
        epoch = max(ledger.epoch_max + 1, now_ms // 1_000)
        self._decider = Decider(self._process, ledger, fair_sharing=self._fair_sharing, pods_ready=self._pods_ready)
        self._decider.changed |= unpublished(states, ledger.states)
        begins = self._decider.begin(epoch, now_ms)
        self._take_in(rest)
        await self._write_down(begins)
        self._begun = True
        log.info("elected as the queue's decider", extra={"epoch": epoch, "workloads": len(ledger.states)})

    async def listen(self) -> None:
        """Wait briefly for records. Raises LogError if Kafka is unavailable, or another process leads."""
        self._take_in(await self._reading.more())

    async def act(self) -> None:
        """Decide if there is anything to decide. Raises LogError if Kafka is unavailable, or another process leads."""
        decider, now_ms = self._decider, self._now_ms()
        due_ms = decider.due_ms
        allowed = await self.credit.ready(decider.exceeding) if self.credit is not None and decider.exceeding else []
        if self._begun or self._waiting or allowed or (due_ms is not None and due_ms <= now_ms):
            began_ms = mono_ms()
            # The first turn of a term takes all inputs.
            most = None if self._begun else RECORDS_MAX
            taken, self._waiting = self._waiting[:most], [] if most is None else self._waiting[most:]
            turn = decider.turn(inputs_of(taken), now_ms, allowed)
            for preemptor, victim in turn.repeats:
                log.warning("a workload waits: it would preempt again a workload that took its quota back",
                            extra={"preemptor": preemptor, "victim": victim})  # fmt: skip
            metrics.TURN_SECONDS.observe((mono_ms() - began_ms) / 1_000)
            if self.credit is not None and turn.stopped:
                await self.credit.spend(turn.stopped)
            self._begun = False
            offset = await self._write_down(turn.decision)
            await self._publish(turn.dead_letters)
            self.done = offset + 1
            metrics.DEAD_LETTERS.inc(len(turn.dead_letters))
            metrics.TURNS.inc()
            metrics.EVICTIONS.inc(len(turn.decision.evictions))
            bookings = [(one.booking.epoch, one.booking.turn) for one in turn.decision.changes if one.booking]
            metrics.ADMISSIONS.inc(bookings.count((turn.decision.epoch, turn.decision.turn)))
        elif decider.changed:
            await self._publish([])
        if mono_ms() - self._reported_ms >= REPORT_MS:
            self._reported_ms = mono_ms()
            metrics.EPOCH.set(self.epoch)
            for name, (pending, admitted) in decider.counts().items():
                metrics.PENDING.labels(name).set(pending)
                metrics.ADMITTED.labels(name).set(admitted)

    async def _write_down(self, one: QueueDecision) -> int:
        """Write a decision and read it back; return its offset."""
        [placed] = await self._writing.send_each([self._decider.decision_out(one)])
        if isinstance(placed, Refused):
            raise LogError(f"Kafka refuses a decision: {placed.why}")
        try:
            async with asyncio.timeout(READ_BACK_S):
                while (self._fence.epoch, self._fence.turn) != (one.epoch, one.turn):
                    self._take_in(await self._reading.more())
        except TimeoutError as exc:
            raise LogError(f"a decision did not come back within {READ_BACK_S:g} s") from exc
        return placed.offset

    async def _publish(self, dead_letters: Iterable[Out]) -> None:
        decider = self._decider
        uids = sorted(decider.changed)
        outs = [*dead_letters, *map(decider.written, uids)]
        for result in await self._writing.send_each(outs) if outs else ():
            if isinstance(result, Refused):
                log.error("Kafka refused a record", extra={"topic": result.out.topic, "why": result.why})
        decider.changed -= set(uids)

    def _take_in(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.topic == QUEUE_DECISION.name:
                self._decision(record)
            elif record.topic != QUEUE_STATE.name:
                self._waiting.append(record)
            elif record.value is not None:
                with suppress(BadMessageError):
                    one = decode(record.value, QueueState)
                    # Overwrite a state that a former leader wrote late.
                    if one.epoch < self.epoch and self._decider.ledger.states.get(one.uid) != one:
                        self._decider.changed.add(one.uid)

    def _decision(self, record: Record) -> None:
        one, mine = decision_of(record), self._decider.ledger
        if one is None:
            log.error("ignored a record that is not a decision", extra={"offset": record.offset})
            return
        counts, own = self._fence.passed(one), (one.epoch, one.process) == (mine.epoch, self._process)
        repeated = own and self._fence.process == self._process
        if counts != own and not repeated:
            raise LogError(f"another process decides: {self._fence.process}, epoch {self._fence.epoch}")


def unpublished(states: Iterable[Record], known: Mapping[str, QueueState]) -> set[str]:
    """Return uids whose published state differs from the decisions: a former leader stopped in between."""
    published: dict[str, Any] = {}
    for record in last_of_each(states):
        uid = text_of(record.key or b"")
        try:
            published[uid] = None if record.value is None else decode(record.value, QueueState)
        except BadMessageError:
            published[uid] = BadMessageError
    return {uid for uid in {*published, *known} if published.get(uid) != known.get(uid)}
