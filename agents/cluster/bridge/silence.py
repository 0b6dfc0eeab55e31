"""The latest figures per node; they freeze when they are no longer published."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.metric import UNCOVERED_MS, NodeMetric

M = TypeVar("M", NodeMetric, NodeAllocatable)
FROZEN_S = UNCOVERED_MS / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last(Generic[M]):
    message: M
    at_s: float
    """When it was last published, or covered by a heartbeat."""


class Latest(Generic[M]):
    """The latest message per node, by sample order. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._last: dict[str, _Last[M]] = {}

    def receive(self, message: M, now_s: float) -> None:
        """Add a record. An older sample is ignored, unless the newer one is frozen."""
        last = self._last.get(message.node)
        if last is not None and now_s < last.at_s + FROZEN_S and _order(message) < _order(last.message):
            return
        self._last[message.node] = _Last(message=message, at_s=now_s)

    def cover(self, nodes: Iterable[str], now_s: float) -> None:
        """Cover the latest figures of these nodes by a heartbeat."""
        for node in nodes:
            last = self._last.get(node)
            if last is not None and now_s > last.at_s:
                self._last[node] = replace(last, at_s=now_s)

    def forget(self, node: str) -> None:
        """Forget a removed node."""
        self._last.pop(node, None)

    def clear(self) -> None:
        """Forget all: Kafka was unavailable."""
        self._last.clear()

    def is_silent(self, node: str, now_s: float) -> bool:
        """Return whether the node's figures are frozen."""
        return node in self._last and self.of(node, now_s) is None

    def of(self, node: str, now_s: float) -> M | None:
        """Return the node's figures; None: frozen or unknown."""
        last = self._last.get(node)
        return None if last is None or now_s >= last.at_s + FROZEN_S else last.message


def _order(message: NodeMetric | NodeAllocatable) -> tuple[str, int]:
    return message.boot_id, message.seq
