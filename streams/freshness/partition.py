"""One partition as a worker reads it: when each node's newest record came into the log, by the worker's own ticks.

A record's own time is of whoever wrote it. That it stands below an end offset shows more: it was in the
log when that end was asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

ENDS_KEPT = 64
"""Ticks: a record that a worker reads later than this is as old as that."""


class _Ends:
    """End offsets of one topic's partition, and after which tick each was asked for."""

    def __init__(self) -> None:
        self._ends: deque[int] = deque(maxlen=ENDS_KEPT)
        self._fetched_ms: deque[int] = deque(maxlen=ENDS_KEPT)

    def add(self, end: int, fetched_ms: int) -> None:
        if self._ends and end < self._ends[-1]:  # made anew, or so it seems: offsets show nothing
            self._ends.clear()
            self._fetched_ms.clear()
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._fetched_ms.append(fetched_ms)

    def asked_ms(self, offset: int) -> int | None:
        """When the first end beyond a record was asked for; None: no such end is known."""
        ends = self._ends
        if not ends or offset >= ends[-1]:
            return None
        return self._fetched_ms[0 if offset < ends[0] else bisect_right(ends, offset)]


class Partition:
    """Times are of the worker's clock of ticks, in milliseconds."""

    def __init__(self) -> None:
        self.sampled_ms: dict[str, int] = {}
        """By node, the first tick at which its newest record was known to be in the log."""
        self._since_ms: dict[str, int] = {}
        """By node, when its first record was read."""
        self.silent_before_ms: dict[str, int] = {}
        """By node, how long it had been silent already, as another worker published."""
        self._held_ms: int | None = None
        """The first tick for which the worker had the partition."""
        self._fresh: set[str] = set()
        self._ends: dict[str, _Ends] = defaultdict(_Ends)
        """By topic: nodes send in one of them at a time, and all of a partition's have one number."""

    def sampled(self, offsets: Mapping[str, int], topic: str) -> None:
        """Records of nodes were read in a topic: the offset of each one's newest."""
        ends = self._ends[topic]
        for node, offset in offsets.items():
            self.silent_before_ms.pop(node, None)
            fetched_ms = ends.asked_ms(offset)
            if fetched_ms is None:  # it came after the last end that is known
                self._fresh.add(node)
            else:
                self.sampled_ms[node] = max(fetched_ms, self.sampled_ms.get(node, 0))
                self._since_ms.setdefault(node, self.sampled_ms[node])

    def known(self, silent_ms: Mapping[str, int]) -> None:
        """Nodes are there of which nothing was read: they have been waited for since the partition came."""
        for node, before_ms in silent_ms.items():
            if node in self.sampled_ms or node in self._fresh:
                continue
            self.silent_before_ms[node] = before_ms
            if self._held_ms is None:
                self._fresh.add(node)
            else:
                self.sampled_ms[node] = self._held_ms

    def gone(self, node: str) -> None:
        """Nobody waits for it any more."""
        self._fresh.discard(node)
        self.sampled_ms.pop(node, None)
        self._since_ms.pop(node, None)
        self.silent_before_ms.pop(node, None)

    def nodes(self) -> frozenset[str]:
        """All that are waited for."""
        return frozenset(self.sampled_ms) | self._fresh

    def tick(self, at_ms: int, *, ends: Mapping[str, int | None], fetched_ms: int) -> None:
        """Time passes.

        Args:
            at_ms: the tick's time: what was read since the one before came by then.
            ends: by topic an end offset of the partition; None: not known.
            fetched_ms: time of the tick after which they were asked for.

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
        """Nodes of which nothing had come for so long or longer at that time, each with how long."""
        return [
            (node, at_ms - sampled_ms)
            for node, sampled_ms in self.sampled_ms.items()
            if at_ms - sampled_ms >= longest_ms
        ]

    def alive_ms(self, node: str) -> int:
        """From a node's first record to its newest, as far as the worker had the partition."""
        sampled_ms = self.sampled_ms[node]
        return sampled_ms - self._since_ms.get(node, sampled_ms)
