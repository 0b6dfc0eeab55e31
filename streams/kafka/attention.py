"""Nodes with a changing limit: the next sample of each is worth a separate fetch. Pure.

While limits do not change, answers change nothing, so nothing waits for them. Agents sample at fixed intervals, so a
sample shows when the next one is due.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from slacktide.schemas.sample_columns_codec import BEGIN, NOW
from slacktide.streams.kafka.walk import FetchedBatches

MOVES_S: Final = 3.0
"""A limit is changing if it changed within this time: it rises by one step per second."""
EARLY_S: Final = 0.005
"""The broker holds a fetch until the sample arrives."""
LATE_S: Final = 0.025
PER_S: Final = 20
"""Limits the fetches for such samples."""
NODES_MAX: Final = 2_000
_DRIFT_S: Final = 0.0001
"""Per fetch: assumed drift between the broker's clock and this one."""
_SHORTER: Final = 0.998
"""Per sample: assumed decrease of the interval between samples. An early sample does not show it."""
_POLICY: Final = b',"policy_version":'
_LIMITS: Final = b'"limits":'
_NUMBERS: Final = 128
"""The interval is the third number behind ``NOW``: it lies within so many bytes."""


class Named(NamedTuple):
    """A sample's data from which the time of its node's next one is computed."""

    node: bytes
    """With its boot."""
    limits: bytes
    appended_s: float
    """By the broker's clock."""
    interval_s: float
    """Since the sample before."""


class _Node(NamedTuple):
    limits: bytes
    every_s: float
    """Between samples on time."""
    moved_s: float
    due_s: float
    """When its next sample is due."""

    def moves(self, now_s: float) -> bool:
        return now_s < self.moved_s + MOVES_S


class Attention:
    """Determines when a fetch is due for a node with a changing limit."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, _Node] = {}
        self._behind_s = math.inf
        """Offset of this clock against the broker's, by the sample with the least delay."""
        self._left, self._counted_s = float(PER_S), -math.inf

    def came(self, samples: Iterable[Named], now_s: float) -> None:
        """Take in the samples of a fetch."""
        its = list(samples)
        self._behind_s = min([self._behind_s + _DRIFT_S, *(now_s - one.appended_s for one in its)])
        for one in its:
            self._nodes[one.node] = self._next(one, self._nodes.get(one.node), now_s)
        if len(self._nodes) > NODES_MAX:
            self.forget()

    def _next(self, one: Named, before: _Node | None, now_s: float) -> _Node:
        came_s = one.appended_s + self._behind_s
        if before is None:
            return _Node(one.limits, one.interval_s, -math.inf, came_s + one.interval_s)
        every_s = max(one.interval_s, before.every_s * _SHORTER)
        ahead = came_s + LATE_S < before.due_s <= came_s + every_s
        return _Node(
            one.limits,
            every_s,
            now_s if one.limits != before.limits else before.moved_s,
            before.due_s if ahead else came_s + every_s,
        )

    def forget(self) -> None:
        """Forget all nodes."""
        self._nodes.clear()

    def moving(self, now_s: float) -> bool:
        """Check whether any limit is changing."""
        return any(node.moves(now_s) for node in self._nodes.values())

    def wait_s(self, now_s: float) -> float:
        """Return the time until a fetch is due; 0: now."""
        due_s = (node.due_s for node in self._nodes.values() if node.moves(now_s) and now_s <= node.due_s + LATE_S)
        return max(0.0, min(due_s, default=math.inf) - EARLY_S - now_s)

    def take(self, now_s: float) -> bool:
        """Check whether another fetch is allowed, and count it."""
        self._left = min(float(PER_S), self._left + (now_s - self._counted_s) * PER_S)
        self._counted_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


def named(fetched: FetchedBatches) -> Iterator[Named]:
    """Yield the data of samples in columns from one fetch and partition; other records have none."""
    for number, batch in enumerate(fetched.plain):
        for at in range(*fetched.span(number)):
            one = _named(fetched.raw, fetched.starts[at], fetched.ends[at], batch.time_ms / 1_000)
            if one is not None:
                yield one


def _named(raw: bytes, start: int, end: int, appended_s: float) -> Named | None:
    """Read what matters of the record in these bytes."""
    begin = raw.find(BEGIN, start, end)
    now = raw.find(NOW, begin, end)
    policy = raw.find(_POLICY, begin, now)
    if min(begin, now, policy) < 0:
        return None
    try:
        interval_ms = int(raw[now + len(NOW) : min(now + _NUMBERS, end)].split(b",", 3)[2])
    except (IndexError, ValueError):
        return None
    limits = raw[policy:now].partition(_LIMITS)[2].partition(b"}")[0]
    return Named(raw[begin + 1 : policy], limits, appended_s, interval_ms / 1_000) if interval_ms > 0 else None
