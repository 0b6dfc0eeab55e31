"""Tracks which policy was in force when. Each worker reads a policy some time after it was written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.policy import DEFAULT, KEY, Policy
from slacktide.schemas.topics import POLICY
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker

GRACE_MS = 30_000
"""The time after a policy change in which a worker may still answer by the former policy."""
SLACK_MS = 2_000
"""Tolerated difference between the clocks of two records."""
_DEFAULT = Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=0, key=KEY.encode(), value=encode(DEFAULT))


class Policies:
    """The policies of a trace, in order. The first one holds from the start.

    A compacted topic keeps only the newest record per key, and writers repeat themselves every minute.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._known: dict[str, Record] = {DEFAULT.version: _DEFAULT}
        self._since_ms: list[int] = []
        self._versions: list[str] = []
        self._records: list[Record] = []
        reader, source = Worker(""), "open"
        for record in records:
            dead = reader.policy(record)
            if record.value is None or dead:
                continue
            policy = reader.in_force
            version = policy.version
            if not self._versions or (version, policy.node_source) != (self._versions[-1], source):
                self._known[version] = opened(record, policy)
                self._records.append(record)
                self._since_ms.append(record.timestamp_ms)
                self._versions.append(version)
                source = policy.node_source

    def __len__(self) -> int:
        return len(self._records)

    @property
    def newest(self) -> Policy:
        """Return the last written policy, else the default."""
        return decode(self._records[-1].value, Policy) if self._records else DEFAULT

    @property
    def changes(self) -> Mapping[int, str]:
        """Return the versions by time of writing."""
        return dict(zip(self._since_ms, self._versions, strict=True))

    def record(self, version: str) -> Record | None:
        """Return the policy of that version, for any node; None: not in the trace."""
        return self._known.get(version)

    def held(self, version: str, at_ms: int) -> bool:
        """Return whether a worker may have used it at that time."""
        if version == DEFAULT.version and (not self._since_ms or at_ms <= self._since_ms[0] + GRACE_MS):
            return True
        last = bisect_right(self._since_ms, at_ms + SLACK_MS) - 1
        first = max(0, bisect_right(self._since_ms, at_ms - GRACE_MS) - 1)
        return version in self._versions[first : max(last, 0) + 1]


def opened(record: Record, policy: Policy) -> Record:
    """Return the policy's record, changed so that a worker without inventory decides."""
    return msgspec.structs.replace(record, value=encode(msgspec.structs.replace(policy, node_source="open")))


class Following:
    """A worker that reads each policy when it was written."""

    def __init__(self, policies: Policies, worker: Worker) -> None:
        self.worker = worker
        self.changed_ms = 0
        """The time at which the policy in force was written; 0: the first policy."""
        self._coming = list(reversed(policies._records))  # noqa: SLF001 - of one file
        if self._coming:
            worker.policy(self._coming.pop())

    def due(self, now_ms: int) -> bool:
        """Return whether another policy was written by that time."""
        return bool(self._coming) and self._coming[-1].timestamp_ms <= now_ms

    def advance(self, now_ms: int) -> Policy:
        """Advance the time."""
        while self.due(now_ms):
            record = self._coming.pop()
            self.worker.policy(record)
            self.changed_ms = record.timestamp_ms
        return self.worker.in_force
