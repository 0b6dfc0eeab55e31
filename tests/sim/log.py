"""A broker that forgets, doubles, delays and loses, but never reorders within a partition."""

from collections import defaultdict

from slacktide.schemas.topics import CREDIT, DEAD_LETTER, POLICY
from slacktide.streams.records import Record

PARTITIONS = 3
ONE_PARTITION = frozenset({POLICY.name, CREDIT.name, DEAD_LETTER.name})


class Log:
    """Topics in memory. What once was in the log is remembered apart, for the checker alone."""

    def __init__(self) -> None:
        self.up = True
        self.incarnation = 0
        self.committed: dict[int, int] = {}
        """Offsets of the workers' group in the sample topic."""
        self.ever: dict[str, list[Record]] = defaultdict(list)
        self._entries: dict[tuple[str, int], list[Record]] = defaultdict(list)

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, *, timestamp_ms: int
    ) -> Record:
        assert self.up
        entries = self._entries[topic, partition]
        entries.append(
            Record(
                topic=topic, partition=partition, offset=len(entries), timestamp_ms=timestamp_ms, key=key, value=value
            )
        )
        self.ever[topic].append(entries[-1])
        return entries[-1]

    def read(self, topic: str, partition: int, start: int) -> list[Record]:
        return self._entries[topic, partition][start:]

    def end(self, topic: str, partition: int) -> int:
        return len(self._entries[topic, partition])

    def wipe(self) -> None:
        """All topics are made anew: empty, offsets from 0, commits forgotten."""
        self._entries.clear()
        self.committed.clear()
        self.incarnation += 1
