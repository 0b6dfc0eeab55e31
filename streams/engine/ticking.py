"""Runs a worker's tick once per second: read positions, silent nodes, and heartbeats for valid figures.

``Liveness``: whether a session still owns its partitions, and whether what it publishes is current.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Self

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.schemas.topics import ALLOCATABLE, DEAD_LETTER, METRIC, SCORE
from slacktide.streams.engine import metrics
from slacktide.streams.freshness.silence import TICK_MS, Silence, Verdict
from slacktide.streams.kafka import Ends, History
from slacktide.streams.records import Out, Place, Record, Writer, text_of
from slacktide.streams.taken import Records
from slacktide.streams.tasks import ended
from slacktide.streams.worker import Worker
from slacktide.streams.worker.published import recalled

log = logging.getLogger(__name__)

TICK_S = TICK_MS / 1_000
RECALL_TICKS = 5
"""Ticks after a takeover: a node without a sample by then may be silent, and its last figures are read back."""
RECALL_MS = 60_000
"""How far to read back: the last owner published at least every 30 s, until about a session timeout ago."""
RECALL_WAIT_MS = 100

NAMED_MAX = 10
"""Nodes that a warning names."""


def figures_due(worker: Worker, now_ms: int) -> list[Out]:
    """Take answered samples into the windows, and return what is due; name the nodes whose figures fail."""
    outs = worker.figures(now_ms)
    if nodes := [text_of(out.key or b"") for out in outs if out.topic == DEAD_LETTER.name]:
        log.warning("figures fail; the records become dead letters", extra={"nodes": nodes[:NAMED_MAX]})
    return outs


class Ticking:
    """Runs the tick of one session."""

    def __init__(
        self,
        worker: Worker,
        *,
        bootstrap: Cluster,
        group: str,
        session_timeout_ms: int,
        now_ms: Callable[[], int],
        write: Callable[[Sequence[Out]], Awaitable[None]],
    ) -> None:
        """Create it unconnected. After a pause, no node is reported silent for ``session_timeout_ms``."""
        self.alarm = ""
        """What is wrong with the pipeline; "": nothing."""
        self._worker = worker
        self._writer = Writer(f"stream/{worker.name}")
        self._silence = Silence(session_timeout_ms=session_timeout_ms, republish_ms=worker.republish_ms)
        self._bootstrap, self._group = bootstrap, group
        self._door = Ends(bootstrap)
        self._now_ms, self._write = now_ms, write
        self._number = 0
        self._ticked_s: float | None = None
        self._epoch = 0
        self._positions: dict[Place, int | None] = {}
        """By held partition; None: not known yet."""
        self._ends: dict[Place, int] = {}
        self._named: dict[int, set[str]] = {}
        self._two_boots: frozenset[str] = frozenset()
        self._recall_at: dict[int, int] = {}
        self._recalling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Connect. Raises LogError if Kafka is unavailable."""
        await self._door.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await ended(*self._recalling)
        for gauge in (metrics.SILENT_NODES, metrics.FROZEN, metrics.NODES, metrics.TWO_BOOTS):
            gauge.set(0)
        await self._door.close()

    def hold(self, places: frozenset[Place], epoch: int = 0) -> None:
        """Set the assigned partitions; ``epoch``: the group's generation."""
        self._epoch = epoch
        partitions = {place.partition for place in places}
        for partition in partitions - self._partitions:
            self._recall_at[partition] = self._number + RECALL_TICKS
        self._recall_at = {number: at for number, at in self._recall_at.items() if number in partitions}
        self._positions = {place: self._positions.get(place) for place in sorted(places)}
        self._silence.hold(partitions)

    @property
    def _partitions(self) -> set[int]:
        return {place.partition for place in self._positions}

    def inventory(self, record: Record) -> None:
        """Add a node by its inventory, or remove it."""
        if record.key is None:
            return
        node, named = text_of(record.key), self._named.setdefault(record.partition, set())
        if record.value is not None:
            named.add(node)
            return
        named.discard(node)
        self._silence.gone(record.partition, node)

    def learned(self, place: Place, records: Iterable[Record]) -> None:
        """Note nodes of samples that were read back, if they exist."""
        newest = {text_of(one.key): one.offset for one in records if one.key and one.value}
        self._wait_for(place, newest)

    def answered(self, place: Place, records: Sequence[Record], nodes: Container[bytes | None]) -> None:
        """Note nodes whose samples were decided.

        Unknown nodes are ignored, because their silence would look like an outage.
        """
        if place not in self._positions:
            return
        its = Records.of(records)
        newest = {key: offset for key, offset in zip(its.keys, its.offsets, strict=True) if key in nodes}
        self._wait_for(place, {text_of(key): offset for key, offset in newest.items() if key is not None})
        self._positions[place] = its.offsets[-1] + 1

    def _wait_for(self, place: Place, offsets: Mapping[str, int]) -> None:
        known = {node: offset for node, offset in offsets.items() if self._worker.knows(place.partition, node)}
        self._silence.sampled(place.partition, known)

    def _forget(self) -> None:
        """Forget nodes whose state the worker dropped, unless they came back."""
        dropped = self._worker.held.dropped
        while dropped:
            partition, node = dropped.pop()
            if not self._worker.knows(partition, node):
                self._silence.gone(partition, node)

    async def tick(self) -> None:
        """Tick, which is due once a second. Raises LogError if a record could not be written."""
        last_s, self._ticked_s = self._ticked_s, asyncio.get_running_loop().time()
        paused_s = 0.0 if last_s is None else self._ticked_s - last_s - TICK_S
        await self._tick(paused_ms=max(0, round(paused_s * 1_000)))
        await self._ask()
        self._recall()

    async def _tick(self, *, paused_ms: int) -> None:
        self._number += 1
        worker = self._worker
        self._forget()
        tick = WorkerTick(
            worker=worker.name,
            number=self._number,
            ticked_ms=self._now_ms(),
            paused_ms=paused_ms,
            partitions=[
                Reached(partition=place.partition, position=position, end=self._ends.get(place))
                for place, position in self._positions.items()
                if position is not None
            ],
        )
        verdict = self._silence.tick(tick)
        for partition, node in verdict.lost:
            worker.lost(partition, node)
        self._report(verdict)
        outs = [*worker.silent(verdict.publish), self._writer.tick(tick)]
        worker.covering.tick(TICK_MS + paused_ms)
        now_ms, ticked_ms = self._now_ms(), round(asyncio.get_running_loop().time() * 1_000)
        outs += figures_due(worker, now_ms)
        beats = worker.heartbeats(self._beating(), self._epoch, verdict.stale, ticked_ms=ticked_ms, now_ms=now_ms)
        await self._write([*outs, *beats])

    def _beating(self) -> list[int]:
        """Return the partitions with nodes, and those just taken over: a heartbeat ends those of the last owner."""
        partitions = sorted(self._partitions)
        return [one for one in partitions if one in self._recall_at or self._named.get(one) or self._silence.nodes(one)]

    def _report(self, verdict: Verdict) -> None:
        metrics.SILENT_NODES.set(verdict.silent)
        metrics.FROZEN.set(len(verdict.frozen))
        metrics.NODES.set(len(self._worker.held))
        if verdict.alarm and not self.alarm:
            log.error("%s; their published figures stay", verdict.alarm)
        elif self.alarm and not verdict.alarm:
            log.warning("enough nodes send samples again: their figures are published again")
        self.alarm = verdict.alarm
        two = frozenset(self._worker.held.two_boots(self._now_ms()))
        metrics.TWO_BOOTS.set(len(two))
        for node in sorted(two - self._two_boots):
            log.error("two agents send samples of one node: its figures are frozen", extra={"node": node})
        for node in sorted(self._two_boots - two):
            log.warning("only one agent sends samples of the node again", extra={"node": node})
        self._two_boots = two

    async def _ask(self) -> None:
        """Fetch the end offsets after the tick. Without them no node is reported silent."""
        self._ends = {}
        try:
            unread = [place for place, position in self._positions.items() if position is None]
            begins = await self._door.begins(self._group, unread) if unread else {}
            for place, begin in begins.items():
                if self._positions.get(place, 0) is None:
                    self._positions[place] = begin
            self._ends = await self._door.ends(self._positions)
        except LogError as exc:
            log.warning("%s; no node is reported stale meanwhile", exc)

    def _recall(self) -> None:
        """Start to read back the figures of nodes without a sample since the takeover."""
        for task in [task for task in self._recalling if task.done()]:
            self._recalling.discard(task)
            task.result()
        due = [partition for partition, number in self._recall_at.items() if number <= self._number]
        for partition in due:
            del self._recall_at[partition]
            unsampled = self._named.get(partition, set()) - self._silence.nodes(partition)
            if unsampled and partition in self._partitions:
                self._recalling.add(asyncio.create_task(self._recalled(partition, unsampled)))

    async def _recalled(self, partition: int, nodes: Iterable[str]) -> None:
        records: list[Record] = []
        try:
            async with History(self._bootstrap, RECALL_WAIT_MS) as history:
                for topic in (METRIC.name, ALLOCATABLE.name, SCORE.name):
                    [end] = (await self._door.ends([Place(topic, partition)])).values()
                    since_ms = self._now_ms() - RECALL_MS
                    records += await history.span(topic, partition, before=end, since_ms=since_ms)
        except LogError as exc:
            log.warning("%s; nodes that were silent before the takeover are not reported stale", exc)
            return
        known: Mapping[str, int] = {}
        if partition in self._partitions:
            known = self._worker.recall(partition, recalled(records, nodes))
        self._silence.known(partition, known)


FRESH_S = 5.0
BEAT_S = 0.25
JOIN_SESSIONS = 5
"""A rebalance takes a session timeout or two. After so many the worker connects again."""


class Liveness:
    """Detects a process that stood still, a group that assigns nothing, and late answers.

    It fills ``health``. A worker that was silent for ``session_timeout_s`` has lost its partitions.
    """

    def __init__(self, worker: Worker, ticking: Ticking, health: Health, session_timeout_s: float) -> None:
        self._worker, self._ticking, self._health = worker, ticking, health
        self._session_timeout_s = session_timeout_s
        self._beat_s = 0.0
        self._joining_since_s: float | None = None
        """When the group began to owe this worker its partitions."""
        self._owns: bool | None = None
        """None: the group has not assigned anything yet."""
        self._answered_at_s: float | None = None

    def begin(self) -> None:
        """Start the clocks: the worker joins the group."""
        self._beat_s = self._joining_since_s = asyncio.get_running_loop().time()

    def joining(self) -> None:
        """Note that the group rebalances."""
        self._joining_since_s = asyncio.get_running_loop().time()

    def assigned(self, *, owns: bool) -> None:
        """Note what the group assigned: whether any partition."""
        self._joining_since_s, self._owns = None, owns

    def answered(self) -> None:
        """Note that samples were answered."""
        self._answered_at_s = asyncio.get_running_loop().time()
        self._health.not_fresh = self._late()

    def check_awake(self) -> None:
        """Check that the process did not stand still for a session: it would be the last to learn of its loss.

        Raises LogError if it did. Other workers have answered what it fetched, and it must join again.
        """
        still_s = asyncio.get_running_loop().time() - self._beat_s
        if still_s > self._session_timeout_s:
            raise LogError(
                f"the worker was blocked for {still_s:.1f} s; other workers may have taken over its partitions"
            )

    async def beat(self) -> None:
        """Record that the process runs, until cancelled."""
        while True:
            self.check_awake()
            self._beat_s = asyncio.get_running_loop().time()
            await asyncio.sleep(BEAT_S)

    async def watch(self) -> None:
        """Update the health each second, until cancelled.

        Raises LogError if the group owes partitions for much longer than a rebalance takes.
        """
        while True:
            await asyncio.sleep(1.0)
            self._health.not_fresh = self._late()
            since_s, most_s = self._joining_since_s, JOIN_SESSIONS * self._session_timeout_s
            if since_s is not None and asyncio.get_running_loop().time() - since_s > most_s:
                raise LogError(f"the group assigned no partitions within {most_s:g} s")

    def _late(self) -> str:
        """Why the published figures may be stale; "": they are not."""
        if self._worker.policies.refused:
            return f"a policy is rejected: {self._worker.policies.refused}"
        if self._owns is False:
            return ""  # other workers own all partitions
        if self._ticking.alarm:
            return self._ticking.alarm
        if self._answered_at_s is None:
            return "no sample answered yet"
        silent_s = asyncio.get_running_loop().time() - self._answered_at_s
        return f"no sample answered for {silent_s:.0f} s" if silent_s > FRESH_S else ""
