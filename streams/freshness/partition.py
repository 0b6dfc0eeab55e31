"""Tracks when each node's newest record in a partition was appended, by the worker's own ticks.

Record timestamps come from other clocks. An end offset is safer: a record below it was in Kafka when the end offset was
fetched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

ENDS_KEPT = 64
"""The number of ticks. A record that is read later has this age."""


class _Ends:
    """End offsets of one topic's partition, with the tick that preceded each fetch."""

    def __init__(self) -> None:
        self._ends: deque[int] = deque(maxlen=ENDS_KEPT)
        self._fetched_ms: deque[int] = deque(maxlen=ENDS_KEPT)

    def add(self, end: int, fetched_ms: int) -> None:
        if self._ends and end < self._ends[-1]:  # the topic was probably recreated
            self._ends.clear()
            self._fetched_ms.clear()
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._fetched_ms.append(fetched_ms)

    def asked_ms(self, offset: int) -> int | None:
        """Return when the first end offset beyond a record was fetched; None: unknown."""
        ends = self._ends
        if not ends or offset >= ends[-1]:
            return None
        return self._fetched_ms[0 if offset < ends[0] else bisect_right(ends, offset)]


class Partition:
    """Times are milliseconds of the worker's tick clock."""

    def __init__(self) -> None:
        self.sampled_ms: dict[str, int] = {}
        """The first tick at which a node's newest record was known to be in Kafka, by node."""
        self._since_ms: dict[str, int] = {}
        """The time at which a node's first record was read, by node."""
        self.silent_before_ms: dict[str, int] = {}
        """The duration of a node's silence before the takeover, as the last owner published, by node."""
        self._held_ms: int | None = None
        """The first tick with the partition assigned."""
        self._fresh: set[str] = set()
        self._ends: dict[str, _Ends] = defaultdict(_Ends)
        """The end offsets by topic. A node sends to one topic at a time, and partition numbers are the same."""

    def sampled(self, offsets: Mapping[str, int], topic: str) -> None:
        """Store the offset of each node's newest record in a topic."""
        ends = self._ends[topic]
        for node, offset in offsets.items():
            self.silent_before_ms.pop(node, None)
            fetched_ms = ends.asked_ms(offset)
            if fetched_ms is None:  # appended after the last known end offset
                self._fresh.add(node)
            else:
                self.sampled_ms[node] = max(fetched_ms, self.sampled_ms.get(node, 0))
                self._since_ms.setdefault(node, self.sampled_ms[node])

    def known(self, silent_ms: Mapping[str, int]) -> None:
        """Add nodes without a record. Their silence counts from the takeover."""
        for node, before_ms in silent_ms.items():
            if node in self.sampled_ms or node in self._fresh:
                continue
            self.silent_before_ms[node] = before_ms
            if self._held_ms is None:
                self._fresh.add(node)
            else:
                self.sampled_ms[node] = self._held_ms

    def gone(self, node: str) -> None:
        """Forget a node."""
        self._fresh.discard(node)
        self.sampled_ms.pop(node, None)
        self._since_ms.pop(node, None)
        self.silent_before_ms.pop(node, None)

    def nodes(self) -> frozenset[str]:
        """Return all nodes of the partition."""
        return frozenset(self.sampled_ms) | self._fresh

    def tick(self, at_ms: int, *, ends: Mapping[str, int | None], fetched_ms: int) -> None:
        """Advance the clock.

        Args:
            at_ms: time of the tick; records read since the last tick arrived by then.
            ends: the partition's end offset by topic; None: unknown.
            fetched_ms: the tick that preceded the fetch of the end offsets.
        """
        if self._held_ms is None:
            self._held_ms = at_ms
        for node in self._fresh:
            self.sampled_ms[node] = at_ms
            self._since_ms.setdefault(node, at_ms)
        self._fresh.clear()
        for topic, end in ends.items():
            if end is not None:
                self._ends[topic].add(end, fetched_ms)

    def quiet_ms(self, at_ms: int, longest_ms: int) -> Iterable[tuple[str, int]]:
        """Return the nodes that were silent for at least ``longest_ms`` at ``at_ms``, with the duration."""
        return [
            (node, at_ms - sampled_ms)
            for node, sampled_ms in self.sampled_ms.items()
            if at_ms - sampled_ms >= longest_ms
        ]

    def alive_ms(self, node: str) -> int:
        """Return the time from a node's first to its newest record while the partition was assigned."""
        sampled_ms = self.sampled_ms[node]
        return sampled_ms - self._since_ms.get(node, sampled_ms)
