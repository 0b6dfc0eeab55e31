"""Records as columns: a list for each field. They become objects when somebody looks at them, which most never are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slacktide.streams.records import Record
from slacktide.streams.unread import Headers, UnreadHeaders


@dataclass(slots=True)
class Taken:
    """Records of one partition, in order; a list for each field."""

    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    """When each was appended, or when its producer made it: the topic's choice."""
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    """An ``UnreadableBatch`` among them stands for a batch, and has its last offset."""
    headers: list[bytes | Headers] = field(default_factory=list)
    """As they lie on the wire; of a batch that was read with care, parsed."""

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> Taken:
        """The records from ``begin`` up to ``end``, by place."""
        return Taken(
            self.offsets[begin:end],
            self.times_ms[begin:end],
            self.keys[begin:end],
            self.values[begin:end],
            self.headers[begin:end],
        )

    def headers_of(self, place: int) -> Headers:
        """One record's headers, parsed when somebody looks at them; none where a name is no UTF-8."""
        headers = self.headers[place]
        return UnreadHeaders(headers) if isinstance(headers, bytes) else headers

    def records(self, topic: str, partition: int) -> Records:
        """The same as records of this place."""
        return Records([topic] * len(self), [partition] * len(self), self)

    def extend(self, other: Taken) -> None:
        """Append records."""
        self.offsets += other.offsets
        self.times_ms += other.times_ms
        self.keys += other.keys
        self.values += other.values
        self.headers += other.headers


class Records(Sequence[Record]):
    """Records of any places.

    Args:
        topics: of each.
        partitions: of each.
        taken: all else.

    """

    __slots__ = ("keys", "offsets", "partitions", "taken", "times_ms", "topics", "values")

    def __init__(self, topics: list[str], partitions: list[int], taken: Taken) -> None:
        self.topics, self.partitions, self.taken = topics, partitions, taken
        self.offsets, self.times_ms, self.keys, self.values = taken.offsets, taken.times_ms, taken.keys, taken.values

    @classmethod
    def of(cls, records: Sequence[Record]) -> Records:
        """The same in columns, if they are not."""
        if isinstance(records, Records):
            return records
        taken = Taken(
            [one.offset for one in records],
            [one.timestamp_ms for one in records],
            [one.key for one in records],
            [one.value for one in records],
            [one.headers for one in records],
        )
        return cls([one.topic for one in records], [one.partition for one in records], taken)

    @classmethod
    def joined(cls, parts: Iterable[Sequence[Record]]) -> Records:
        """One after the other."""
        whole = cls([], [], Taken())
        for part in map(cls.of, parts):
            whole.topics += part.topics
            whole.partitions += part.partitions
            whole.taken.extend(part.taken)
        return whole

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            begin, end, _ = place.indices(len(self))
            return Records(self.topics[begin:end], self.partitions[begin:end], self.taken.part(begin, end))
        return Record(
            topic=self.topics[place],
            partition=self.partitions[place],
            offset=self.offsets[place],
            timestamp_ms=self.times_ms[place],
            key=self.keys[place],
            value=self.values[place],
            headers=self.taken.headers_of(place),
        )
