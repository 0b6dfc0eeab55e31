"""Rebuilds the windows of partitions that were taken over, beside the live work.

A worker decides the samples of a new partition immediately, and rebuilds the windows meanwhile. It reads the samples
that no segment covers, then one segment per node and minute, newest first, then backfill. These decide nothing. Until
the policy's window is complete, no figures of the partition's nodes are published, since partial averages would jump.
After ``HELD_BACK_S`` they are published anyway, with their coverage. So the policy's windows of all partitions come
first, then their half hours, then backfill.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.connection import Cluster
from slacktide.schemas.sample_columns_codec import BEGIN, NOW
from slacktide.schemas.topics import BACKFILL, FORECAST, WINDOW
from slacktide.streams.engine import metrics
from slacktide.streams.engine.inputs import SINCE_MS
from slacktide.streams.kafka import Follower, History
from slacktide.streams.records import Out, Place, Record
from slacktide.streams.tasks import ended
from slacktide.streams.worker import Worker

log = logging.getLogger(__name__)

WINDOW_MS = 31 * 60_000
"""The longest window plus a minute. Older segments and samples are not needed."""
MINUTE_MS = 60_000
LATE_MS = 5_000
"""A sample may be appended this much earlier than a segment that lacks it: two clocks stamp them."""
UNSEGMENTED_MS = 90_000
"""No living node's last segment is older: they are written once their minute is over."""
HELD_BACK_S = 5.0
SEGMENTS_AT_ONCE = 1_000
"""Limits memory to some ten megabytes."""
SLICE = 50
"""Records between two yields to the event loop: a few milliseconds."""
SHARE = 0.9
"""Share of the time for history while there is some."""
READ_WAIT_MS = 20
"""A long fetch at a partition's end would delay the next request on the connection."""
LATE_WAIT_MS, LATE_POLL_S = 200, 1.0
"""Backfill is not urgent, so the broker may hold this fetch longer."""


@dataclass(slots=True)
class _Taken:
    """A partition that was taken over, and the progress of its windows."""

    first: Record
    """The first sample that the worker decides."""
    oldest: int
    """The offset of the oldest sample in its live windows."""
    at_s: float
    before: int | None = None
    """The offset of the first segment that was read."""
    segments: int = 0
    samples: int = 0

    @property
    def since_ms(self) -> int:
        """Return the start of the longest window."""
        return self.first.timestamp_ms - WINDOW_MS


class Rebuilding:
    """Rebuilds windows in one session."""

    def __init__(self, worker: Worker, bootstrap: Cluster, write: Callable[[Sequence[Out]], Awaitable[None]]) -> None:
        """Create it unconnected. ``write`` sends dead letters."""
        self._worker, self._write = worker, write
        self._history = History(bootstrap, READ_WAIT_MS)
        self._late = Follower(bootstrap, BACKFILL.name, LATE_WAIT_MS)
        self._due: dict[Place, _Taken] = {}
        self._half: dict[Place, _Taken] = {}
        """The policy's window is complete."""
        self._whole: dict[Place, _Taken] = {}
        """All windows are complete; only backfill follows."""
        self._late_of: set[Place] = set()
        """Partitions whose backfill is read."""
        self._gone: set[Place] = set()
        self._held_back: dict[Place, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        """A partition came or went."""
        self._doors = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect. Raises LogError if Kafka is unavailable."""
        async with contextlib.AsyncExitStack() as doors:
            for door in (self._history, self._late):
                await doors.enter_async_context(door)
            self._doors = doors.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        for place in list(self._held_back):
            self._publish(place)
        await self._doors.aclose()

    def take_over(self, place: Place, first: Record, learned: Sequence[Record]) -> None:
        """Hold back the figures of a partition until its windows are complete.

        ``first``: the first record that the worker decides. ``learned``: the earlier samples in its live windows.
        Without them, a node's first sample here could be older than a segment and would restart the node's window.
        """
        self.forget(place)
        self._gone.discard(place)
        loop = asyncio.get_running_loop()
        taken = _Taken(first, (learned[0] if learned else first).offset, loop.time())
        self._changed.set()
        if not first.offset:  # the partition has no history
            self._whole[place] = taken
            return
        self._due[place] = taken
        self._worker.hold_back(place.partition)
        self._held_back[place] = loop.call_later(HELD_BACK_S, self._publish, place)

    def forget(self, place: Place) -> None:
        """Forget a revoked partition."""
        for some in (self._due, self._half, self._whole):
            some.pop(place, None)
        self._gone.add(place)
        self._changed.set()
        self._publish(place)

    async def run(self) -> None:
        """Rebuild windows until cancelled.

        Raises LogError if Kafka is unavailable, or a dead letter was not written.
        """
        while True:
            self._changed.clear()
            if self._gone:
                place = self._gone.pop()
                self._late_of.discard(place)
                if place.partition not in {one.partition for one in self._late_of}:
                    await self._late.leave(place.partition)
            elif self._due:
                await self._step(self._due, self._fill_policys, self._half)
            elif self._half:
                await self._step(self._half, self._fill_rest, self._whole)
            elif self._whole:
                place, taken = self._whole.popitem()
                if place.partition not in {one.partition for one in self._late_of}:
                    begin = await self._history.begin(Place(BACKFILL.name, place.partition), taken.since_ms)
                    await self._late.take(place.partition, begin)
                self._late_of.add(place)
            else:
                late = await self._some_late()
                metrics.BACKFILLED.inc(await self._in_turns(late, self._worker.fill))

    async def _some_late(self) -> list[Record]:
        """Wait for backfill, until a partition comes or goes: a poll five times a second costs an idle worker more."""
        reading = asyncio.ensure_future(self._late.some(SLICE, LATE_POLL_S))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((reading, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(changed, reading)
        return [] if reading.cancelled() else reading.result()

    async def _step(
        self, of: dict[Place, _Taken], step: Callable[[Place, _Taken], Awaitable[None]], then: dict[Place, _Taken]
    ) -> None:
        """Take one partition's next step; start again if it was revoked meanwhile and came back."""
        place, taken = next(iter(of.items()))
        await step(place, taken)
        if of.get(place) is taken:
            then[place] = of.pop(place)

    async def _fill_policys(self, place: Place, taken: _Taken) -> None:
        """Fill the policy's window from uncovered samples and the newest segments, then publish.

        Forecasts come first: without them less would be offered.
        """
        now_ms = taken.first.timestamp_ms
        since_ms = max(0, now_ms - SINCE_MS)
        async for some in self._history.forth(FORECAST.name, place.partition, before=None, since_ms=since_ms):
            await self._in_turns(some, self._worker.forecasts, place)
        window_ms = self._worker.in_force.colocation.metric_aggregate_duration_s * 1_000
        newer_ms = max(now_ms - window_ms - 2 * MINUTE_MS, taken.since_ms)
        segments = await self._history.span(WINDOW.name, place.partition, before=None, since_ms=newer_ms)
        newest = newest_of(segments)
        since_ms = unsegmented_since_ms(newest, now_ms)
        read = self._history.forth(*place, before=taken.oldest, since_ms=since_ms)
        taken.samples = await self._fill(place, (unsegmented(some, newest) async for some in read))
        taken.segments = await self._in_turns(segments[::-1], self._worker.restore, place)
        taken.before = segments[0].offset if segments else None
        self._publish(place)

    async def _fill_rest(self, place: Place, taken: _Taken) -> None:
        older = self._history.back(
            WINDOW.name, place.partition, before=taken.before, since_ms=taken.since_ms, at_once=SEGMENTS_AT_ONCE
        )
        async for segments in older:
            taken.segments += await self._in_turns(segments, self._worker.restore, place)
        if self._half.get(place) is taken:
            self._worker.publish(place.partition)
        took_s = asyncio.get_running_loop().time() - taken.at_s
        metrics.REBUILT_SECONDS.observe(took_s)
        counts = {"segments": taken.segments, "samples": taken.samples, "s": round(took_s, 3)}
        log.info("windows rebuilt", extra={**place._asdict(), **counts})

    async def _fill(self, place: Place, samples: AsyncIterable[Sequence[Record]]) -> int:
        """Fill separate windows in order first, which makes a sample ten times cheaper. Return the count."""
        aside = self._worker.aside()

        def learn(some: Sequence[Record]) -> list[Out]:
            aside.learn(some)
            return []

        count = 0
        async for some in samples:
            count += await self._in_turns(some, learn, place)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in self._worker.fill_from(aside, place.partition, UNSEGMENTED_MS // MINUTE_MS + 1):
            await asyncio.sleep((loop.time() - began_s) * (1 - SHARE) / SHARE)
            if place in self._gone:
                break
            began_s = loop.time()
        return count

    async def _in_turns(
        self, records: Sequence[Record], fill: Callable[[Sequence[Record]], list[Out]], place: Place | None = None
    ) -> int:
        """Process records in slices, yielding in between, until the partition is revoked. Return the count."""
        loop = asyncio.get_running_loop()
        for begin in range(0, len(records), SLICE):
            if place in self._gone:
                break
            began_s = loop.time()
            outs = fill(records[begin : begin + SLICE])
            await asyncio.sleep((loop.time() - began_s) * (1 - SHARE) / SHARE)
            if outs:
                await self._write(outs)
        return len(records)

    def _publish(self, place: Place) -> None:
        later = self._held_back.pop(place, None)
        if later is not None:
            later.cancel()
        if place.partition not in {one.partition for one in self._held_back}:
            self._worker.publish(place.partition)


class _Minute(msgspec.Struct, frozen=True):
    begin_ms: int


class _Observed(msgspec.Struct, frozen=True):
    observed_ms: int


_minute, _observed = msgspec.json.Decoder(_Minute), msgspec.json.Decoder(_Observed)


class Newest(msgspec.Struct, frozen=True):
    """A node's newest segment."""

    written_ms: int
    """Append time."""
    over_ms: int
    """End of its minute by event time."""


def newest_of(segments: Iterable[Record]) -> dict[bytes | None, Newest]:
    """Return the latest append time and minute by node key."""
    found: dict[bytes | None, Newest] = {}
    for segment in segments:
        written_ms = segment.timestamp_ms
        over_ms = _ms(lambda value: _minute.decode(value).begin_ms, segment) + MINUTE_MS
        had = found.get(segment.key, Newest(0, 0))
        found[segment.key] = Newest(max(had.written_ms, written_ms), max(had.over_ms, over_ms))
    return found


def unsegmented_since_ms(newest: Mapping[bytes | None, Newest], now_ms: int) -> int:
    """Return the append time from which samples of living nodes may be in no segment.

    A node without a segment joined after the other nodes' last minute.
    """
    oldest_ms = now_ms - UNSEGMENTED_MS
    living_ms = (min(one.written_ms, one.over_ms) - LATE_MS for one in newest.values() if one.written_ms >= oldest_ms)
    return max(oldest_ms, min(living_ms, default=0))


def unsegmented(samples: Iterable[Record], newest: Mapping[bytes | None, Newest]) -> list[Record]:
    """Return samples that may be in no segment of their node, by append time or event time."""
    return [
        sample
        for sample in samples
        if (its := newest.get(sample.key)) is None
        or sample.timestamp_ms >= its.written_ms - LATE_MS
        or _ms(_observed_ms, sample) > its.over_ms
    ]


def _observed_ms(sample: bytes) -> int:
    if not sample.startswith(BEGIN):
        return _observed.decode(sample).observed_ms
    _, _, now = sample.partition(NOW)
    return int(now.split(b",", 2)[1])


def _ms(time: Callable[[bytes], int], record: Record) -> int:
    """Return the timestamp of a record; 0 if it cannot be decoded."""
    try:
        return time(record.value or b"")
    except (*MALFORMED, IndexError):
        return 0
