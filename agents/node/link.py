"""A node's Kafka connections: publishes samples and outcomes; consumes commands, policy, inventory and credit.

Each connection has its own task and reconnects after errors. Sampling never waits for any of them. A fourth connection
slowly backfills samples that were not sent while they were the newest: too late for a command, but they fill windows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Protocol

from slacktide.agents.letters import Letters
from slacktide.agents.node.interfaces import Spool
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.outbox import Backlog, Newest, Offered, SampleSender, of_outcome, of_sample
from slacktide.agents.node.slopes import Slopes
from slacktide.schemas.backoff import Backoff, Reasons
from slacktide.schemas.codec import M, decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError, RecordRefusedError, SlacktideError, failure
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import AUDIT, BACKFILL, DEAD_LETTER, OUTCOME, Topic
from slacktide.streams.decisions.evict.node_evict import audited
from slacktide.streams.kafka import NodeReader, Placed, Refused, Sender, read_topic
from slacktide.streams.records import Out, Record, dead_letter, dead_letter_of_refused
from slacktide.streams.tasks import ended

log = logging.getLogger(__name__)

RETRY_S, RETRY_S_MAX = 0.1, 1.0
BATCH = 100
BATCH_PAUSE_S = 0.1
"""Between full batches of outcomes: the backlog of an outage must not delay the newest sample."""
HISTORY_BATCH, HISTORY_PAUSE_S = 5, 0.25
"""20 samples per second: backfills a minute's outage in 3 s without flooding Kafka."""
SLOW_S = 0.2
"""Backfill pauses while acknowledging the newest sample takes longer."""
LOOK_S = 5.0
OUTCOME_TIMEOUT_S = 2.0


class LinkError(SlacktideError):
    """A connection's task ended. Only a restart helps."""


class Listener(Protocol):
    """Receives records from Kafka, on the event loop's thread."""

    def awaits_answer(self) -> bool:
        """Return whether the newest sample is not answered yet."""

    def commands(self, records: list[Record]) -> None:
        """Commands for this node."""

    def policies(self, records: list[Record]) -> None:
        """All existing policies, then each new one."""

    def credits(self, records: list[Record], age_s: float) -> None:
        """Eviction credit of this node, received at most ``age_s`` ago."""

    def inventories(self, records: list[Record]) -> None:
        """The node's inventory record, and each change of it."""


class Line:
    """State of one connection. Its recovery is logged, and each reason of its loss once."""

    def __init__(self, name: str) -> None:
        self.trouble = "not connected yet"
        """Why it cannot be used; "": it works."""
        self.name = name
        self._reasons = Reasons()
        self._backoff = Backoff(RETRY_S, RETRY_S_MAX)

    def works(self) -> None:
        """Record a success."""
        if self.trouble:
            log.info("connected to Kafka", extra={"for": self.name})
        self.trouble = ""
        self._reasons.reset()
        self._backoff.reset()

    async def broke(self, why: LogError) -> None:
        """Record a failure, and wait until the next try is due."""
        if self._reasons.is_new(str(why)):
            log.warning("Kafka is unreachable", extra={"for": self.name, "why": str(why)})
        self.trouble = str(why)
        await asyncio.sleep(self._backoff.next_s())


class Channel:
    """Sends a node's rare records of one topic, on a connection of their own. Kafka's refusals become dead letters."""

    def __init__(self, name: str, topic: Topic, link: Link, sender: Sender) -> None:
        self._line = Line(name)
        self._topic, self._link, self._sender = topic, link, sender

    async def send(self, *outs: Out) -> int:
        """Connect if necessary, and send records with their proof. Return how many Kafka refused.

        Raises LogError if that fails: see ``broke``.
        """
        if not self._sender.connected:
            await self._sender.connect([self._topic.name])
            self._link.metrics.connected(self._line.name)
        results = await self._sender.send_each([self._link.sign(out) for out in outs])
        self._line.works()
        return self._link.refused(results)

    async def newest(self, *, since_ms: int) -> Record | None:
        """Return the node's newest record of the topic since this time (UTC epoch). Raises LogError if that fails."""
        found, (bootstrap, node) = None, self._link.place
        async with aclosing(read_topic(bootstrap, self._topic.name, since_ms=since_ms, key=node)) as records:
            async for record in records:
                found = record
        return found

    async def broke(self, why: LogError) -> None:
        """Record a failure, and wait until the next try is due."""
        await self._line.broke(why)

    async def close(self) -> None:
        """Disconnect. The next record connects again."""
        await self._sender.close()


class Link:
    """Keeps the connections of one node."""

    def __init__(  # noqa: PLR0913 - each is a different outside thing
        self,
        *,
        bootstrap: Cluster,
        node: str,
        fetch_wait_ms: int,
        spool: Spool,
        listener: Listener,
        slopes: Slopes,
        metrics: AgentMetrics,
        now_ms: Callable[[], int],
        sign: Callable[[Out], Out],
        turned: Callable[[], None],
    ) -> None:
        self._turned = turned
        self._source = f"agent/{node}"
        self.sign = sign
        self._spool = spool
        self._listener, self._slopes = listener, slopes
        self.metrics = metrics
        self._now_ms = now_ms
        self.place = bootstrap, node
        self._client_id = client_id = f"slacktide-agent-{node}"
        self._samples = SampleSender(bootstrap, client_id=client_id, sign=sign)
        self._outcomes = Sender(bootstrap, client_id=client_id, acks=OUTCOME.acks, timeout_s=OUTCOME_TIMEOUT_S)
        self._reader = NodeReader(
            bootstrap, node, client_id=client_id, fetch_wait_ms=fetch_wait_ms, due=listener.awaits_answer
        )
        self._history = Sender(bootstrap, client_id=client_id, acks=BACKFILL.acks, compress=True)
        self._newest, self._backlog = Newest(), Backlog()
        self._live_s = 0.0
        self._letters = Letters()
        self._stirred, self._idle = asyncio.Event(), asyncio.Event()
        self._placed = Placed(partition=-1, offset=-1)
        self._read_anew = False
        self._out, self._report, self._in = Line("samples"), Line("outcomes"), Line("answers")
        self._late = Line("history")
        self._lines = (self._out, self._late, self._report, self._in)

    @property
    def away(self) -> str:
        """Why samples cannot be sent or commands not received; "": both work."""
        return self._out.trouble or self._in.trouble

    @property
    def too_large(self) -> str:
        """Why the last pod list could not be sent; "": it was sent."""
        return self._samples.too_large

    def channel(self, name: str, topic: Topic) -> Channel:
        """Return another connection, for records of this topic."""
        return Channel(name, topic, self, Sender(self.place[0], client_id=self._client_id, acks=topic.acks))

    def offer(self, sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod]) -> None:
        """Send this sample and the facts and pods it refers to. If a newer one is offered first, backfill it."""
        self._keep(self._newest.put(Offered(sample, facts, pods)))
        self._reader.wake()

    def wake(self) -> None:
        """There may be outcomes in the spool."""
        self._idle.clear()
        self._stirred.set()

    def each(self, records: list[Record], kind: type[M], use: Callable[[M], None]) -> None:
        """Process each record except tombstones. Unreadable or unusable records become dead letters."""
        for record in records:
            if record.value is None:
                continue
            try:
                use(decode(record.value, kind))
            except (BadMessageError, ArithmeticError, ValueError, TypeError, LookupError) as exc:
                self.to_dead_letter(record, failure("apply", exc))

    def to_dead_letter(self, record: Record, reason: str) -> None:
        """Count an unusable record and publish a dead letter."""
        self.metrics.refused(record.topic)
        self._letters.add(dead_letter(record, reader=self._source, reason=reason, now_ms=self._now_ms()))
        self.wake()

    async def run(self) -> None:
        """Keep the connections until cancelled. Raises LinkError if one of them ended."""
        works = (self._send_samples, self._send_history, self._send_outcomes, self._listen)
        tasks = {asyncio.create_task(work()): line for work, line in zip(works, self._lines, strict=True)}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first = done.pop()
            why = "it was cancelled" if first.cancelled() else first.exception() or "it returned"
            raise LinkError(f"the task for {tasks[first].name} ended: {why!r}") from (
                why if isinstance(why, BaseException) else None
            )
        finally:
            await ended(*tasks)

    async def drain(self) -> None:
        """Wait until Kafka has all outcomes. Return at once if it is unavailable."""
        if not self._report.trouble:
            self.wake()
            await self._idle.wait()

    async def close(self) -> None:
        """Disconnect."""
        doors = (self._samples, self._history, self._outcomes, self._reader)
        await asyncio.gather(*(door.close() for door in doors))

    async def _send_samples(self) -> None:
        while True:
            await self._newest.wait()
            self._turned()
            try:
                if not self._samples.connected:
                    await self._samples.connect()
                    self.metrics.connected("samples")
                    self._newest.owe_keyframe()
                await self._send_newest()
            except LogError as exc:
                self._read_anew = True
                await self._out.broke(exc)
            else:
                self._out.works()

    async def _send_newest(self) -> None:
        offered = self._newest.take()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            placed = await self._samples.send(offered.sample, offered.pods)
        except RecordRefusedError as exc:
            self.metrics.dropped.inc()
            self._refuse(of_sample(offered.sample, offered.pods), str(exc))
            return
        except LogError:
            self._keep(self._newest.put_back(offered))
            raise
        self._live_s = loop.time() - began_s
        self.metrics.sent.inc()
        # An offset that did not grow means a recreated topic: read commands and policy again.
        last, self._placed = self._placed, placed
        reset = placed.partition == last.partition and placed.offset <= last.offset
        elsewhere = self._reader.partition not in (placed.partition, -1)
        if reset or elsewhere:
            self._read_anew = True
            self._newest.owe_keyframe()

    def _keep(self, offered: Offered | None) -> None:
        if offered is not None:
            self.metrics.dropped.inc(self._backlog.add(offered.sample))
            self.metrics.waiting.set(len(self._backlog))

    async def _send_history(self) -> None:
        while True:
            await self._backlog.wait()
            await asyncio.sleep(HISTORY_PAUSE_S)
            if self._out.trouble or self._live_s > SLOW_S:
                continue
            try:
                if not self._history.connected:
                    await self._history.connect([BACKFILL.name])
                    self.metrics.connected("history")
                batch = self._backlog.some(HISTORY_BATCH)
                # Sign when sending: the key at sampling time may have expired.
                results = await self._history.send_each([self.sign(out) for out in batch])
            except LogError as exc:
                await self._late.broke(exc)
                continue
            self._late.works()
            self._backlog.sent(batch)
            refused = self.refused(results)
            self.metrics.backfilled.inc(len(batch) - refused)
            self.metrics.dropped.inc(refused)
            self.metrics.waiting.set(len(self._backlog))
            if not len(self._backlog):
                await self._history.close()  # outages are rare, and an idle connection costs the broker memory

    async def _send_outcomes(self) -> None:
        while True:
            batch, letters = self._spool.pending(BATCH), self._letters.some()
            if not batch and not letters:
                self._idle.set()
                self._stirred.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._stirred.wait()
                continue
            try:
                if not self._outcomes.connected:
                    await self._outcomes.connect([OUTCOME.name, AUDIT.name, DEAD_LETTER.name])
                    self.metrics.connected("outcomes")
                reports = [of_outcome(outcome) for _, outcome in batch]
                reports += [of_outcome(outcome, AUDIT) for _, outcome in batch if audited(outcome)]
                results = await self._outcomes.send_each([*map(self.sign, reports), *letters])
            except LogError as exc:
                await self._report.broke(exc)
                continue
            self._report.works()
            self._letters.sent(letters)
            self.refused(results)
            if batch:
                self._spool.acknowledge(batch[-1][0])
            if len(batch) == BATCH:
                await asyncio.sleep(BATCH_PAUSE_S)

    def refused(self, results: Sequence[Placed | Refused]) -> int:
        """Count the records that Kafka refused, and publish dead letters. Return how many."""
        refused = [one for one in results if isinstance(one, Refused)]
        for one in refused:
            self._refuse(one.out, one.why)
        return len(refused)

    def _refuse(self, out: Out, why: str) -> None:
        self.metrics.refused_by_kafka(out.topic)
        log.error("Kafka rejected a record; it is dropped", extra={"topic": out.topic, "why": why})
        if out.topic != DEAD_LETTER.name:
            self._letters.add(dead_letter_of_refused(out, writer=self._source, reason=why, now_ms=self._now_ms()))
            self.wake()

    async def _listen(self) -> None:
        while True:
            self._read_anew = False
            try:
                await self._reader.connect()
                self.metrics.connected("answers")
                self._in.works()
                while not self._read_anew:
                    read = await self._reader.read()
                    self._hand_over(read.policies, self._listener.policies)
                    self._hand_over(read.inventories, self._listener.inventories)
                    if read.slopes_anew:
                        self._slopes.begin()
                    self._hand_over(read.slopes, partial(self._slopes.take, refuse=self.to_dead_letter))
                    if read.slopes_whole:
                        self._slopes.whole()
                    self._hand_over(read.credits, partial(self._listener.credits, age_s=read.credit_age_s))
                    self._hand_over(read.commands, self._listener.commands)
            except LogError as exc:
                await self._in.broke(exc)

    def _hand_over(self, records: list[Record], take: Callable[[list[Record]], None]) -> None:
        """Process records. If that fails, try each alone, so that one bad record costs only itself."""
        if not records:
            return
        try:
            take(records)
        except Exception:
            log.exception("cannot process records together; each is processed alone", extra={"topic": records[0].topic})
            for record in records:
                try:
                    take([record])
                except Exception as exc:  # noqa: BLE001 - the record becomes a dead letter
                    self.to_dead_letter(record, f"processing failed: {exc!r}")
