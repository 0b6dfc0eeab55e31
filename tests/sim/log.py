"""A broker that forgets, doubles, delays and loses, but never reorders within a partition."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from slacktide.schemas.topics import CREDIT, DEAD_LETTER, POLICY

PARTITIONS = 3
ONE_PARTITION = frozenset({POLICY.name, CREDIT.name, DEAD_LETTER.name})


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as the broker keeps it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Log:
    """Topics in memory. What once was in the log is remembered apart, for the checker alone."""

    def __init__(self) -> None:
        self.up = True
        self.incarnation = 0
        self.committed: dict[int, int] = {}
        """Offsets of the workers' group in the sample topic."""
        self.ever: dict[str, list[Entry]] = defaultdict(list)
        self._entries: dict[tuple[str, int], list[Entry]] = defaultdict(list)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> Entry:
        """Take one record in."""
        assert self.up
        entries = self._entries[topic, partition]
        entry = Entry(topic, partition, len(entries), timestamp_ms, key, value, headers)
        entries.append(entry)
        self.ever[topic].append(entry)
        return entry

    def read(self, topic: str, partition: int, start: int) -> list[Entry]:
        """Everything from an offset on; beyond the end there is nothing."""
        return self._entries[topic, partition][start:]

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next record gets."""
        return len(self._entries[topic, partition])

    def wipe(self) -> None:
        """All topics are made anew: empty, offsets from 0, commits forgotten."""
        self._entries.clear()
        self.committed.clear()
        self.incarnation += 1
