"""Records as columns, one list per field. They become objects only on access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeAlias

from slacktide.streams.records import Record
from slacktide.streams.rendering import headers_in

Headers: TypeAlias = Sequence[tuple[str, bytes]]


class UnreadHeaders(Sequence[tuple[str, bytes]]):
    """A sequence of headers, equal to a tuple of the same."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed: Headers | None = None

    def _all(self) -> Headers:
        if self._parsed is None:
            self._parsed = headers_in(self._raw)
        return self._parsed

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._all())

    def __getitem__(self, place: Any) -> Any:
        return self._all()[place]

    def __eq__(self, other: object) -> bool:
        return tuple(self._all()) == other if isinstance(other, tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())


@dataclass(slots=True)
class Taken:
    """Ordered records of one partition, one list per field."""

    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    """Append time or create time, as the topic is configured."""
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    """An ``UnreadableBatch`` replaces a whole batch, at its last offset."""
    headers: list[bytes | Headers] = field(default_factory=list)
    """Encoded; decoded for batches that were parsed record by record."""

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, begin: int, end: int) -> Taken:
        """Return the records from index ``begin`` up to ``end``."""
        columns = self.offsets, self.times_ms, self.keys, self.values, self.headers
        return Taken(*(one[begin:end] for one in columns))  # type: ignore[arg-type]  # each as it was

    def headers_of(self, place: int) -> Headers:
        """Return one record's headers, decoded on access; none if a name is not UTF-8."""
        headers = self.headers[place]
        return UnreadHeaders(headers) if isinstance(headers, bytes) else headers

    def records(self, topic: str, partition: int) -> Records:
        """Return the records of a partition."""
        return Records([topic] * len(self), [partition] * len(self), self)

    def extend(self, other: Taken) -> None:
        """Append records."""
        self.offsets += other.offsets
        self.times_ms += other.times_ms
        self.keys += other.keys
        self.values += other.values
        self.headers += other.headers


class Records(Sequence[Record]):
    """Records of any partitions. ``taken`` has all fields but topics and partitions."""

    __slots__ = ("keys", "offsets", "partitions", "taken", "times_ms", "topics", "values")

    def __init__(self, topics: list[str], partitions: list[int], taken: Taken) -> None:
        self.topics, self.partitions, self.taken = topics, partitions, taken
        self.offsets, self.times_ms, self.keys, self.values = taken.offsets, taken.times_ms, taken.keys, taken.values

    @classmethod
    def of(cls, records: Sequence[Record]) -> Records:
        """Convert records to columns, if needed."""
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
        """Concatenate records."""
        whole = cls([], [], Taken())
        for part in map(cls.of, parts):
            whole.topics += part.topics
            whole.partitions += part.partitions
            whole.taken.extend(part.taken)
        return whole

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        columns = (self.topics, self.partitions, self.offsets, self.times_ms, self.keys, self.values)
        for topic, partition, offset, at_ms, key, value, headers in zip(*columns, self.taken.headers, strict=True):
            yield Record(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=at_ms,
                key=key,
                value=value,
                headers=UnreadHeaders(headers) if isinstance(headers, bytes) else headers,
            )

    def chosen(self, which: Sequence[bool]) -> Records:
        """Return the records for which ``which`` is true."""
        columns = (self.offsets, self.times_ms, self.keys, self.values, self.taken.headers)
        taken = Taken(*(list(compress(one, which)) for one in columns))  # type: ignore[arg-type]  # each as it was
        return Records(list(compress(self.topics, which)), list(compress(self.partitions, which)), taken)

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
