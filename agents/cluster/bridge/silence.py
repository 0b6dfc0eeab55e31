"""What the log says of nodes at this moment; what nobody says any more is frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.metric import UNSAID_MS, NodeMetric

M = TypeVar("M", NodeMetric, NodeAllocatable)
FROZEN_S = UNSAID_MS / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard(Generic[M]):
    said: M
    at_s: float
    """When it was published, or covered by a heartbeat last."""


class Latest(Generic[M]):
    """Of each node what was said last, by the order of its samples. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard[M]] = {}

    def hear(self, said: M, now_s: float) -> None:
        """One record. An older sample's is left alone, unless all that was newer has fallen silent."""
        last = self._heard.get(said.node)
        if last is not None and now_s < last.at_s + FROZEN_S and _order(said) < _order(last.said):
            return
        self._heard[said.node] = _Heard(said=said, at_s=now_s)

    def cover(self, nodes: Iterable[str], now_s: float) -> None:
        """A heartbeat says that what was published of these nodes last still holds."""
        for node in nodes:
            last = self._heard.get(node)
            if last is not None and now_s > last.at_s:
                self._heard[node] = replace(last, at_s=now_s)

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._heard.pop(node, None)

    def clear(self) -> None:
        """Nothing heard so far counts any more: the log was away."""
        self._heard.clear()

    def is_silent(self, node: str, now_s: float) -> bool:
        """Whether it was heard of, and is no more."""
        return node in self._heard and self.of(node, now_s) is None

    def of(self, node: str, now_s: float) -> M | None:
        """What holds for the node; None: frozen."""
        last = self._heard.get(node)
        return None if last is None or now_s >= last.at_s + FROZEN_S else last.said


def _order(said: NodeMetric | NodeAllocatable) -> tuple[str, int]:
    return said.boot_id, said.seq
