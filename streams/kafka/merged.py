"""Follows topics forever and merges all partitions by time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from aiokafka import TopicPartition

from slacktide.schemas.connection import Cluster
from slacktide.streams.kafka.common import record_of, trouble
from slacktide.streams.kafka.reader import Reader, partitions_of, stand
from slacktide.streams.kafka.times import since
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
            consumer.assign(list(ranks))
            begins, ends = await consumer.beginning_offsets(list(ranks)), await self._ends(list(ranks))
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
        """Check whether an optional topic exists that did not at ``begin``.

        Raises:
            LogError: Kafka is unreachable.
        """
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
                self._take(self._lanes[place], map(record_of, records))
            for place in short:
                self._lanes[place].at_end = await self._at_end(place)
            self._silent = 0 if fetched else self._silent + 1
            if self._silent >= SILENT_POLLS:
                self._silent = 0
                await self.check()
        return self._passed(now_ms)

    def _take(self, lane: _Lane, records: map[Record]) -> None:
        for record in records:
            lane.newest_ms = max(lane.newest_ms, record.timestamp_ms)
            lane.held.append((lane.newest_ms, lane.rank, record))

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
