"""One term of the queue's decider: reads the state, begins, then decides, writes, reads back and publishes.

A decision counts once it is read back and no higher epoch precedes it. Then its states are published. Once these are
acknowledged, the offset behind the decision is committed. The next leader reads from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.queue import PodsReadySettings, QueueDecision, QueueState
from slacktide.schemas.queue_objects import QueueObject
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.engine import queue_metrics as metrics
from slacktide.streams.engine.leader_election import mono_ms
from slacktide.streams.kafka import WHOLE, Refused, Sender, Tail
from slacktide.streams.queue.decider import Decider, Exceeding
from slacktide.streams.queue.ledger import Fence, Inputs, decision_of, inputs_of, last_of_each, ledger_of
from slacktide.streams.records import Out, Record, text_of

log = logging.getLogger(__name__)

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

        ``done``: the committed offset; None: unknown, so all decisions are read.

        Raises:
            LogError: Kafka is unavailable, or another process leads.
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
            turn = decider.turn(self._taken(), now_ms, allowed)
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
            count(turn.decision)
        elif decider.changed:
            await self._publish([])
        self._report()

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
            elif record.topic == QUEUE_STATE.name:
                self._state(record)
            else:
                self._waiting.append(record)

    def _decision(self, record: Record) -> None:
        one, mine = decision_of(record), self._decider.ledger
        if one is None:
            log.error("ignored a record that is not a decision", extra={"offset": record.offset})
            return
        counts, own = self._fence.passed(one), (one.epoch, one.process) == (mine.epoch, self._process)
        repeated = own and self._fence.process == self._process
        if counts != own and not repeated:
            raise LogError(f"another process decides: {self._fence.process}, epoch {self._fence.epoch}")

    def _state(self, record: Record) -> None:
        """Overwrite a state that a former leader wrote late."""
        if record.value is None:
            return
        try:
            one = decode(record.value, QueueState)
        except BadMessageError:
            return
        if one.epoch < self.epoch and self._decider.ledger.states.get(one.uid) != one:
            self._decider.changed.add(one.uid)

    def _taken(self) -> Inputs:
        """Return the inputs of the next turn; all of them in a term's first."""
        if self._begun:
            taken, self._waiting = self._waiting, []
        else:
            taken, self._waiting = self._waiting[:RECORDS_MAX], self._waiting[RECORDS_MAX:]
        return inputs_of(taken)

    def _report(self) -> None:
        if mono_ms() - self._reported_ms < REPORT_MS:
            return
        self._reported_ms = mono_ms()
        metrics.EPOCH.set(self.epoch)
        for name, (pending, admitted) in self._decider.counts().items():
            metrics.PENDING.labels(name).set(pending)
            metrics.ADMITTED.labels(name).set(admitted)


def unpublished(states: Iterable[Record], known: Mapping[str, QueueState]) -> set[str]:
    """Return uids whose published state differs from the decisions: a former leader stopped in between."""
    published: dict[str, Any] = {}
    for record in last_of_each(states):
        try:
            published[text_of(record.key or b"")] = None if record.value is None else decode(record.value, QueueState)
        except BadMessageError:
            published[text_of(record.key or b"")] = BadMessageError
    return {uid for uid in {*published, *known} if published.get(uid) != known.get(uid)}


def count(one: QueueDecision) -> None:
    """Count a decision."""
    metrics.TURNS.inc()
    metrics.EVICTIONS.inc(len(one.evictions))
    new = (one.epoch, one.turn)
    admitted = [each for each in one.changes if each.booking and (each.booking.epoch, each.booking.turn) == new]
    metrics.ADMISSIONS.inc(len(admitted))
