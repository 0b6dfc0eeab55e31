"""Reads a span of several topics, merged by time, for replay and export."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import TopicPartition

from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.common import POLL_S, record_of, trouble
from slacktide.streams.kafka.reader import Reader, stand
from slacktide.streams.kafka.times import first_since
from slacktide.streams.records import Record

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


class _Lane:
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
        ready: list[tuple[tuple[int, int, int], _Lane]] = []
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

    async def _fill(self, wanting: Iterable[_Lane], lanes: Mapping[TopicPartition, _Lane], span: Span) -> None:
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

    def _take(self, lane: _Lane, records: Iterable[Record], span: Span) -> None:
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

    async def _lanes(self, span: Span, partitions: Mapping[str, int]) -> dict[TopicPartition, _Lane]:
        places = {
            TopicPartition(topic, number): rank
            for rank, topic in enumerate(span.topics)
            for number in range(partitions.get(topic, 0))
        }
        if not places:
            return {}
        consumer = self._consumer
        consumer.assign(list(places))
        begin = await consumer.beginning_offsets(list(places))
        async with asyncio.timeout(PATIENCE_S):
            end = await self._ends(places)
        dated = [place for place in places if place.topic not in span.whole]
        since = (
            await first_since(consumer, {place: span.begins_ms(place.topic) for place in dated})
            if span.since_ms
            else {}
        )
        lanes = {}
        for place, rank in places.items():
            lane = lanes[place] = _Lane(place, end[place], rank)
            lane.next = begin[place]
            if (found := since.get(place)) is not None:
                lane.next = max(lane.next, found.offset)
            elif place in since:
                lane.next = lane.end  # all records are older
        return lanes
