"""Reads several topics merged by time: a span of them, or forever."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.common import POLL_S, first_since, record_of, since, trouble
from slacktide.streams.kafka.reader import Reader, ends_of, partitions_of, stand
from slacktide.streams.records import Place, Record

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
    """Reads topics from given positions, without a group. Reconnect after any error.

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
        """Seek to the start positions; return what is lost.

        ``cursors``: the next offset by partition; without one, the first record since ``since_ms``, UTC epoch.

        Raises:
            LogError: Kafka is unreachable, or lacks one of the topics.
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
        """Check whether an optional topic exists that did not at ``begin``. Raises LogError if Kafka is unreachable."""
        if not self._absent:
            return False
        with trouble(f"cannot read from {self._bootstrap}"):
            return not self._absent.isdisjoint(await self._consumer.topics())

    async def read(self, now_ms: int) -> tuple[list[Record], int]:
        """Return the next records by time, and the time up to which they are complete.

        ``now_ms``: the time, which advances at the end of topics even without records.

        Raises:
            LogError: Kafka is unreachable, or a topic was re-created.
        """
        with trouble(f"cannot read from {self._bootstrap}"):
            short = [place for place, lane in self._lanes.items() if len(lane.held) < HELD_MAX]
            fetched = await self._poll(*short)
            for place, records in fetched.items():
                lane = self._lanes[place]
                for record in map(record_of, records):
                    lane.newest_ms = max(lane.newest_ms, record.timestamp_ms)
                    lane.held.append((lane.newest_ms, lane.rank, record))
            for place in short:
                self._lanes[place].at_end = await self._at_end(place)
            self._silent = 0 if fetched else self._silent + 1
            if self._silent >= SILENT_POLLS:
                self._silent = 0
                await self.check()
        return self._passed(now_ms)

    def _passed(self, now_ms: int) -> tuple[list[Record], int]:
        lanes = self._lanes.values()
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


class _SpanLane:
    """Fetched records of one partition that are not yielded yet."""

    def __init__(self, place: TopicPartition, end: int, rank: int) -> None:
        self.place = place
        self.end = end
        self.rank = rank
        self.next = 0
        self.held: deque[Record] = deque()
        self.later = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the order of its first record among those of other lanes."""
        return self.held[0].timestamp_ms, self.rank, self.place.partition


class Spans(Reader):
    """Reads spans in bounded memory, one after the other."""

    async def read(self, span: Span, partitions: Mapping[str, int]) -> AsyncGenerator[Record, None]:
        """Yield the span's records by time, each partition in order, up to the current ends.

        ``partitions``: by topic; a topic without any is omitted.

        Raises:
            LogError: the broker is unreachable.
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
                    self._take(lanes[place], map(record_of, records), span)
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
        dated = [place for place in places if place.topic not in span.whole]
        since = (
            await first_since(consumer, {place: span.begins_ms(place.topic) for place in dated})
            if span.since_ms
            else {}
        )
        lanes = {}
        for place, rank in places.items():
            lane = lanes[place] = _SpanLane(place, end[place], rank)
            lane.next = begin[place]
            if (found := since.get(place)) is not None:
                lane.next = max(lane.next, found.offset)
            elif place in since:
                lane.next = lane.end  # all records are older
        return lanes
