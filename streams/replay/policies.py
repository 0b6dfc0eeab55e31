"""Which policy held when: a worker reads one a while after it was written, and each worker at its own time."""

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
"""How long after a policy was written a worker may still answer by the one before it."""
SLACK_MS = 2_000
"""By how much the clocks behind two records' times may differ."""
_DEFAULT = Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=0, key=KEY.encode(), value=encode(DEFAULT))


class Policies:
    """All policies of a trace, in order. The first one holds from the beginning: what it replaced is gone.

    A compacted topic keeps only the newest of a key, and writers repeat themselves every minute.
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
        """The last one that was written; without any, the default."""
        return decode(self._records[-1].value, Policy) if self._records else DEFAULT

    @property
    def changes(self) -> Mapping[int, str]:
        """Versions by when they were written."""
        return dict(zip(self._since_ms, self._versions, strict=True))

    def record(self, version: str) -> Record | None:
        """The policy of that version, for any node; None: the trace has none."""
        return self._known.get(version)

    def held(self, version: str, at_ms: int) -> bool:
        """Whether a worker may have answered by it at that time."""
        if version == DEFAULT.version and (not self._since_ms or at_ms <= self._since_ms[0] + GRACE_MS):
            return True
        last = bisect_right(self._since_ms, at_ms + SLACK_MS) - 1
        first = max(0, bisect_right(self._since_ms, at_ms - GRACE_MS) - 1)
        return version in self._versions[first : max(last, 0) + 1]


def opened(record: Record, policy: Policy) -> Record:
    """The policy's record, for a worker that knows no inventory and decides a sample all the same."""
    return msgspec.structs.replace(record, value=encode(msgspec.structs.replace(policy, node_source="open")))


class Following:
    """A worker that reads each policy when it was written."""

    def __init__(self, policies: Policies, worker: Worker) -> None:
        self.worker = worker
        self.changed_ms = 0
        """When the policy in force was written; 0: the first one."""
        self._coming = list(reversed(policies._records))  # noqa: SLF001 - of one file
        if self._coming:
            worker.policy(self._coming.pop())

    def due(self, now_ms: int) -> bool:
        """Whether by that time another policy has been written."""
        return bool(self._coming) and self._coming[-1].timestamp_ms <= now_ms

    def advance(self, now_ms: int) -> Policy:
        """Let it be that time."""
        while self.due(now_ms):
            record = self._coming.pop()
            self.worker.policy(record)
            self.changed_ms = record.timestamp_ms
        return self.worker.in_force
