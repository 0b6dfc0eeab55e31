"""Reads back a partition's records, or spans of several topics by time; follows partitions, or several topics by time.

All without a group.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.reader import (
    POLL_S,
    Reader,
    each_answer,
    ends_of,
    first_since,
    partitions_of,
    record_of,
    since,
    stand,
    trouble,
)
from slacktide.streams.records import Place, Record

QUIET_S = 2.0
"""A read without records for this long ends."""
SPAN_RECORDS_MAX = 5_000
"""Per partition, if the broker cannot look up offsets by time: 100 nodes for 50 s."""


class History(Reader):
    """Reads a partition's records back to some time: since ``since_ms``, before the offset ``before``.

    ``before`` None: the current end. All methods raise LogError if the partition cannot be read.
    """

    async def span(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, most: int | None = None
    ) -> list[Record]:
        """Return the records; ``most``: offsets before the end; None: unlimited."""
        read = self.forth(topic, partition, before=before, since_ms=since_ms, most=most)
        return [record async for some in read for record in some]

    async def forth(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, most: int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the same records as they are fetched, in bounded memory."""
        place = TopicPartition(topic, partition)
        begin, end = await self._bounds(place, before, since_ms)
        begin = begin if most is None else max(begin, end - most)
        async for some in self._read(place, begin, end):
            yield [record for record in some if record.timestamp_ms >= since_ms]

    async def back(
        self, topic: str, partition: int, *, before: int | None, since_ms: int, at_once: int
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the same records, the newest first, ``at_once`` at a time."""
        place = TopicPartition(topic, partition)
        begin, end = await self._bounds(place, before, since_ms)
        while begin < end:
            first = max(begin, end - at_once)
            read = [record async for some in self._read(place, first, end) for record in some]
            yield [record for record in reversed(read) if record.timestamp_ms >= since_ms]
            end = first

    async def begin(self, place: Place, since_ms: int) -> int:
        """Return the offset of a partition's first record since this time; its end if there is none."""
        return (await self._bounds(TopicPartition(*place), None, since_ms))[0]

    async def _bounds(self, place: TopicPartition, before: int | None, since_ms: int) -> tuple[int, int]:
        with trouble(f"cannot read back {place.topic}/{place.partition}"):
            end = (await self._consumer.end_offsets([place]))[place] if before is None else before
            return await begin_of(self._consumer, place, end, since_ms), end

    async def _read(self, place: TopicPartition, begin: int, end: int) -> AsyncGenerator[list[Record], None]:
        if begin >= end:
            return  # the client's fetcher ends if an assignment is removed before it was seen
        consumer, what = self._consumer, f"cannot read back {place.topic}/{place.partition}"
        with trouble(what):
            stand(consumer, {place: begin})
        idle_s = 0.0
        while idle_s < QUIET_S:
            with trouble(what):
                if await consumer.position(place) >= end:
                    break
                fetched = await self._poll()
            yield [record_of(record) for batch in fetched.values() for record in batch if record.offset < end]
            idle_s = 0.0 if fetched else idle_s + POLL_S
        consumer.unsubscribe()  # otherwise it fetches ahead


async def begin_of(consumer: Any, place: TopicPartition, before: int, since_ms: int) -> int:
    """Return the first offset since this time; ``before`` if there is none."""
    found = (await first_since(consumer, {place: since_ms}))[place]
    by_time = before if found is None else found.offset
    # The embedded broker does not know times and returns 0: then at most this many records.
    least = by_time or before - SPAN_RECORDS_MAX
    first = (await consumer.beginning_offsets([place]))[place]
    begin: int = min(before, max(least, first))
    return begin


class Follower(Reader):
    """Follows some partitions of one topic."""

    def __init__(self, bootstrap: Cluster, topic: str, fetch_wait_ms: int) -> None:
        super().__init__(bootstrap, fetch_wait_ms)
        self._topic = topic

    async def take(self, partition: int, begin: int) -> None:
        """Add a partition, from this offset on. Raises LogError if there is no answer.

        Another reader looks the offset up: on this connection the broker may hold a fetch for seconds.
        """
        with trouble(f"cannot follow {self._topic}/{partition}"):
            stand(self._consumer, {**await self._positions(), TopicPartition(self._topic, partition): begin})

    async def leave(self, partition: int) -> None:
        """Remove a partition."""
        with trouble(f"cannot follow {self._topic}"):
            positions = await self._positions()
            positions.pop(TopicPartition(self._topic, partition), None)
            stand(self._consumer, positions)

    async def some(self, most: int, wait_s: float = POLL_S) -> list[Record]:
        """Wait for records, ``wait_s`` at most, and return them. Raises LogError if the topic cannot be read."""
        if not self._consumer.assignment():
            await asyncio.sleep(POLL_S)
            return []
        with trouble(f"cannot follow {self._topic}"):
            fetched = await self._follow(most, wait_s)
        return [record_of(read) for batch in fetched.values() for read in batch]

    async def _positions(self) -> dict[TopicPartition, int]:
        """Return all positions: the client forgets them when partitions are assigned."""
        return {place: await self._consumer.position(place) for place in self._consumer.assignment()}


HOLD_MS = 500
"""A record is returned this long after it was appended, so that older ones of other partitions precede it."""
HELD_MAX = 500
"""Records per partition that may wait for others."""
PARTITION_BYTES_MAX = 128 << 10
"""Of one fetch: there may be 200 partitions, and each may lag."""
SILENT_POLLS = 25
FETCH_WAIT_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Records that are gone: expired, or of a topic that was re-created."""

    place: Place
    wanted: int
    """The offset to continue from."""
    begin: int
    """The offset that reading continues from instead."""


@dataclass(slots=True)
class _Lane:
    rank: int
    held: deque[tuple[int, int, Record]] = field(default_factory=deque)
    """Time, never falling, and rank, of each record not yet returned."""
    newest_ms: int = 0
    at_end: bool = False


class Merged(Reader):
    """Reads topics from given positions. Reconnect after any error. Methods raise LogError if Kafka is unreachable.

    Topics in ``whole`` are read from their beginning, and ``others`` from ``cursors``, else from ``since_ms``. Those in
    ``optional`` are read from their beginning if they exist at ``begin``. Records of one time are in order of topics.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        whole: Sequence[str],
        others: Sequence[str],
        optional: Sequence[str] = (),
        *,
        client_id: str,
    ) -> None:
        super().__init__(bootstrap, FETCH_WAIT_MS, client_id=client_id, partition_bytes_max=PARTITION_BYTES_MAX)
        self._whole, self._others, self._optional = tuple(whole), tuple(others), tuple(optional)
        self._absent: frozenset[str] = frozenset()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._silent = 0

    async def begin(self, cursors: Mapping[Place, int], since_ms: int) -> list[Lost]:
        """Seek to the start positions; return what is lost. Raises LogError also if one of the topics is missing.

        ``cursors``: the next offset by partition; without one, the first record since ``since_ms``, UTC epoch.
        """
        consumer, lost = self._consumer, []
        with trouble(f"cannot read from {self._bootstrap}"):
            there = await consumer.topics()
            optional = [topic for topic in self._optional if topic in there]
            self._absent = frozenset(self._optional) - frozenset(optional)
            ranks = {
                place: rank
                for rank, topic in enumerate((*self._whole, *self._others, *optional))
                for place in await partitions_of(consumer, topic)
            }
            begins, ends = await consumer.beginning_offsets(list(ranks)), await ends_of(consumer, ranks)
            new = {place: ends[place] for place in ranks if place.topic in self._others and place not in cursors}
            starts = {**begins, **await since(consumer, new, since_ms)}
            for place in ranks:
                wanted = cursors.get(Place(*place))
                if wanted is not None and place.topic in self._others:
                    there = begins[place] <= wanted <= ends[place]
                    starts[place] = wanted if there else begins[place]
                    if not there:
                        lost.append(Lost(place=Place(*place), wanted=wanted, begin=begins[place]))
            stand(consumer, starts)
        self._lanes, self._silent = {place: _Lane(rank) for place, rank in ranks.items()}, 0
        return lost

    async def has_grown(self) -> bool:
        """Check whether an optional topic exists that did not at ``begin``."""
        if not self._absent:
            return False
        with trouble(f"cannot read from {self._bootstrap}"):
            return not self._absent.isdisjoint(await self._consumer.topics())

    async def read(self, now_ms: int) -> tuple[list[Record], int]:
        """Return the next records by time, and the time up to which they are complete.

        ``now_ms``: the time, which advances at the end of topics even without records. Raises LogError also if a topic
        was re-created.
        """
        lanes = self._lanes.values()
        with trouble(f"cannot read from {self._bootstrap}"):
            short = [place for place, lane in self._lanes.items() if len(lane.held) < HELD_MAX]
            fetched = await self._poll(*short)
            for place, records in fetched.items():
                lane = self._lanes[place]
                for record in each_answer(records):
                    lane.newest_ms = max(lane.newest_ms, record.timestamp_ms)
                    lane.held.append((lane.newest_ms, lane.rank, record))
            for place in short:
                self._lanes[place].at_end = await self._at_end(place)
            self._silent = 0 if fetched else self._silent + 1
            if self._silent >= SILENT_POLLS:
                self._silent = 0
                await self.check()
        until_ms = max(now_ms, max((lane.newest_ms for lane in lanes), default=0)) - HOLD_MS
        until_ms = min((until_ms, *(lane.newest_ms - 1 for lane in lanes if not lane.at_end)))
        ready = []
        for lane in lanes:
            while lane.held and lane.held[0][0] <= until_ms:
                ready.append(lane.held.popleft())
        ready.sort(key=itemgetter(0, 1))  # stable: keeps a partition's order
        return [record for _, _, record in ready], until_ms


PATIENCE_S = 10.0
"""A broker that returns no records for this long is unreachable."""
DISORDER_MS = 60_000
"""Timestamps of later records may be this much earlier: clocks of producers differ."""
LATER_RECORDS = 100
"""This many consecutive records after the span end it. A single one may come from a wrong clock."""
PULL_RECORDS = 2_000
"""At once, of all partitions. Memory holds these and what the client has fetched ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The records of ``topics`` from ``since_ms`` until before ``until_ms``; of ``whole`` all until then."""

    topics: Sequence[str]
    whole: frozenset[str]
    since_ms: int
    until_ms: int
    sooner_ms: Mapping[str, int] = field(default_factory=dict)
    """By topic, how much earlier than ``since_ms`` its records begin."""

    def begins_ms(self, topic: str) -> int:
        """Return the first time of a topic that is not in ``whole``."""
        return max(0, self.since_ms - self.sooner_ms.get(topic, 0))


@dataclass(slots=True, eq=False)
class _SpanLane:
    """Fetched records of one partition that are not yielded yet."""

    place: TopicPartition
    next: int
    end: int
    rank: int
    held: deque[Record] = field(default_factory=deque)
    later: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the order of its first record among those of other lanes."""
        return self.held[0].timestamp_ms, self.rank, self.place.partition


class Spans(Reader):
    """Reads spans in bounded memory, one after the other."""

    async def read(self, span: Span, partitions: Mapping[str, int]) -> AsyncGenerator[Record, None]:
        """Yield the span's records by time, each partition in order, up to the current ends.

        ``partitions``: by topic; a topic without any is omitted. Raises LogError if the broker is unreachable.
        """
        consumer = self._consumer
        with trouble("cannot read the span"):
            lanes = await self._lanes(span, partitions)
            stand(consumer, {lane.place: lane.next for lane in lanes.values()})
        open_ = [lane for lane in lanes.values() if lane.next < lane.end]
        ready: list[tuple[tuple[int, int, int], _SpanLane]] = []
        while open_ or ready:
            await self._fill(open_, lanes, span)
            for lane in open_:
                if lane.held:
                    heapq.heappush(ready, (lane.order, lane))
            open_ = []
            while ready and not open_:
                _, lane = heapq.heappop(ready)
                yield lane.held.popleft()
                if lane.held:
                    heapq.heappush(ready, (lane.order, lane))
                elif lane.next < lane.end:
                    open_.append(lane)
        consumer.unsubscribe()

    async def _fill(self, wanting: Iterable[_SpanLane], lanes: Mapping[TopicPartition, _SpanLane], span: Span) -> None:
        """Fetch until each lane has a record or is at its end."""
        idle_s = 0.0
        while short := [lane for lane in wanting if not lane.held and lane.next < lane.end]:
            with trouble("cannot read the span"):
                fetched = await self._poll(*(lane.place for lane in short), most=PULL_RECORDS)
                for place, records in fetched.items():
                    self._take(lanes[place], each_answer(records), span)
                for lane in short:  # compacted records and markers of transactions only advance the position
                    lane.next = max(lane.next, await self._consumer.position(lane.place))
            idle_s = 0.0 if fetched else idle_s + POLL_S
            if idle_s > PATIENCE_S:
                raise LogError(f"{self._bootstrap}: no answer within {PATIENCE_S:g} s")

    def _take(self, lane: _SpanLane, records: Iterable[Record], span: Span) -> None:
        whole = lane.place.topic in span.whole
        for record in records:
            lane.next = record.offset + 1
            lane.later = lane.later + 1 if record.timestamp_ms >= span.until_ms + DISORDER_MS else 0
            if lane.later == LATER_RECORDS:
                lane.next = lane.end
                return
            begun = whole or record.timestamp_ms >= span.begins_ms(lane.place.topic)
            if begun and record.offset < lane.end and record.timestamp_ms < span.until_ms:
                lane.held.append(record)

    async def _lanes(self, span: Span, partitions: Mapping[str, int]) -> dict[TopicPartition, _SpanLane]:
        places = {
            TopicPartition(topic, number): rank
            for rank, topic in enumerate(span.topics)
            for number in range(partitions.get(topic, 0))
        }
        if not places:
            return {}
        consumer = self._consumer
        begin = await consumer.beginning_offsets(list(places))
        async with asyncio.timeout(PATIENCE_S):
            end = await ends_of(consumer, places)
        dated = {place: span.begins_ms(place.topic) for place in places if place.topic not in span.whole}
        lanes = {place: _SpanLane(place, begin[place], end[place], rank) for place, rank in places.items()}
        for place, found in (await first_since(consumer, dated) if span.since_ms else {}).items():
            lane = lanes[place]
            lane.next = lane.end if found is None else max(lane.next, found.offset)  # None: all records are older
        return lanes
