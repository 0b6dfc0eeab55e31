"""Windows made whole beside the live work: what a partition's last owner knew of them, and what outages held back.

A partition that is taken over is answered at once. Its windows follow: the samples of the last
minute, that no segment holds, a segment for each node and minute that is over, the newest first,
then what agents send late. All of it is mute: no sample is answered here. Until the policy's window
is whole nothing is published of the partition's nodes, for figures over a part of it would jump;
but at most for ``HELD_BACK_S``, then they are published and say how much they cover.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from slacktide.schemas.topics import BACKFILL, SAMPLE, WINDOW
from slacktide.streams import metrics
from slacktide.streams.kafka import Follower, History
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker

log = logging.getLogger(__name__)

WINDOW_MS = 31 * 60_000
"""The longest window and a minute: older segments and samples fill nothing."""
MINUTE_MS = 60_000
LATE_MS = 5_000
"""How much sooner than a segment a sample may have been appended that is not in it: two clocks stamp them."""
UNSEGMENTED_MS = 90_000
"""A minute is written when it is over: no living node's last segment is older, a dead owner's session included."""
HELD_BACK_S = 5.0
SLICE = 50
"""Records between which the live work has its turn: some milliseconds."""
SHARE = 0.75
"""Of the time, while there is history: the rest is the live work's in any case, and what history leaves of its own."""
FETCH_WAIT_MS = 200
"""History is in no hurry: a fetch for it may be held longer than one for samples."""


class Rebuilding:
    """The part of one session that fills windows."""

    def __init__(self, worker: Worker, bootstrap: str, write: Callable[[Sequence[Out]], Awaitable[None]]) -> None:
        """Make one that is not connected yet.

        Args:
            worker: whose windows.
            bootstrap: of the log.
            write: sends what has to be said of bad records.

        """
        self._worker = worker
        self._write = write
        self._history = History(bootstrap, FETCH_WAIT_MS)
        self._late = Follower(bootstrap, BACKFILL.name, FETCH_WAIT_MS)
        self._due: dict[int, Record] = {}
        self._gone: set[int] = set()
        self._held_back: dict[int, asyncio.TimerHandle] = {}
        self._doors = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LogError: nobody answers.

        """
        async with contextlib.AsyncExitStack() as doors:
            for door in (self._history, self._late):
                await doors.enter_async_context(door)
            self._doors = doors.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        for partition in list(self._held_back):
            self._publish(partition)
        await self._doors.aclose()

    def take_over(self, partition: int, first: Record) -> None:
        """From this record on the worker answers that partition; publish nothing of it until its windows are whole."""
        self._gone.discard(partition)
        self._due[partition] = first
        if not first.offset:
            return  # nothing was said before it
        self._worker.hold_back(partition)
        later = asyncio.get_running_loop().call_later(HELD_BACK_S, self._publish, partition)
        self._held_back[partition] = later

    def forget(self, partition: int) -> None:
        """The partition has moved away."""
        self._due.pop(partition, None)
        self._gone.add(partition)
        self._publish(partition)

    async def run(self) -> None:
        """Fill windows until cancelled.

        Raises:
            LogError: the log cannot be read, or a dead letter not be written.

        """
        while True:
            while self._gone:
                await self._late.leave(self._gone.pop())
            while self._due:
                partition, first = self._due.popitem()
                await self._rebuild(partition, first)
            late = await self._late.some(SLICE)
            metrics.BACKFILLED.inc(await self._in_turns(late, self._worker.fill))

    async def _rebuild(self, partition: int, first: Record) -> None:
        began_s = asyncio.get_running_loop().time()
        now_ms = first.timestamp_ms
        segments = await self._history.span(WINDOW.name, partition, before=None, since_ms=now_ms - WINDOW_MS)
        since_ms = now_ms - UNSEGMENTED_MS
        read = await self._history.span(SAMPLE.name, partition, before=first.offset, since_ms=since_ms)
        samples = unsegmented(read, segments)
        await self._fill(partition, samples)
        segments.reverse()
        window_ms = self._worker.in_force.colocation.metric_aggregate_duration_s * 1_000
        policy_ms = now_ms - window_ms - 2 * MINUTE_MS
        await self._in_turns([each for each in segments if each.timestamp_ms >= policy_ms], self._worker.restore)
        self._publish(partition)
        await self._in_turns([each for each in segments if each.timestamp_ms < policy_ms], self._worker.restore)
        await self._late.take(partition, now_ms - WINDOW_MS)
        took_s = asyncio.get_running_loop().time() - began_s
        metrics.REBUILT_SECONDS.observe(took_s)
        log.info(
            "windows rebuilt",
            extra={"partition": partition, "segments": len(segments), "samples": len(samples), "s": round(took_s, 3)},
        )

    async def _fill(self, partition: int, samples: Sequence[Record]) -> None:
        """Beside the live windows first, for in order and many nodes at once a sample costs a tenth."""
        aside = self._worker.aside()

        def learn(some: Sequence[Record]) -> list[Out]:
            aside.learn(some)
            return []

        await self._in_turns(samples, learn)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in self._worker.fill_from(aside, partition, UNSEGMENTED_MS // MINUTE_MS + 1):
            await asyncio.sleep((loop.time() - began_s) * (1 - SHARE) / SHARE)
            began_s = loop.time()

    async def _in_turns(self, records: Sequence[Record], fill: Callable[[Sequence[Record]], list[Out]]) -> int:
        """Take records in slice by slice, and leave the loop to the live work as long as each took; how many."""
        loop = asyncio.get_running_loop()
        for some in _slices(records):
            began_s = loop.time()
            outs = fill(some)
            await asyncio.sleep((loop.time() - began_s) * (1 - SHARE) / SHARE)
            if outs:
                await self._write(outs)
        return len(records)

    def _publish(self, partition: int) -> None:
        later = self._held_back.pop(partition, None)
        if later is not None:
            later.cancel()
            self._worker.publish(partition)


def _slices(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    return (records[begin : begin + SLICE] for begin in range(0, len(records), SLICE))


def unsegmented(samples: Iterable[Record], segments: Iterable[Record]) -> list[Record]:
    """Those of the samples that may lie in no segment of their node, by append times.

    >>> record = lambda key, ms: Record(topic="", partition=0, offset=0, timestamp_ms=ms, key=key, value=b"")
    >>> samples = [record(b"a", 100_000), record(b"b", 100_000), record(b"a", 160_000)]
    >>> [(found.key, found.timestamp_ms) for found in unsegmented(samples, [record(b"a", 110_000)])]
    [(b'b', 100000), (b'a', 160000)]
    """
    newest: dict[bytes | None, int] = {}
    for segment in segments:
        newest[segment.key] = max(newest.get(segment.key, 0), segment.timestamp_ms)
    return [sample for sample in samples if sample.timestamp_ms >= newest.get(sample.key, 0) - LATE_MS]
