"""Fetches that are not too close together: samples that come one by one share what a fetch and its answers cost."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

from aiokafka.consumer.fetcher import Fetcher

from slacktide.streams.kafka.attention import Attention, named
from slacktide.streams.kafka.fetched import at_once, records_in
from slacktide.streams.kafka.walk import FetchedBatches

GATHER_S = 0.1
CALM_S = 0.2
"""While no limit moves."""
FEW = 32
"""Of samples: after a fetch of more there may be as many again, and a worker that is behind does not wait."""
_SOON_S = 0.001
"""Less is not worth a timer."""


class Gathering:
    """When the next fetch may begin.

    A sample that comes after a while without any, and the one behind it, do not wait. Where there are many nodes each
    waits a fifth of a second at most, and one whose limit moves does not wait.
    """

    def __init__(self) -> None:
        self._attention = Attention()
        self._came_s = -math.inf
        self._may_s = -math.inf

    def came(self, fetched: list[Any], now_s: float) -> None:
        """A fetch brought these, and they were taken."""
        before_s, self._came_s = self._came_s, now_s
        if records_in(fetched) > FEW:
            self._attention.forget()
            self._may_s = -math.inf
            return
        batches = (one for one in fetched if isinstance(one, FetchedBatches))
        self._attention.came(chain.from_iterable(map(named, batches)), now_s)
        gather_s = GATHER_S if self._attention.moving(now_s) else CALM_S
        self._may_s = now_s + gather_s if now_s < before_s + 2 * gather_s else -math.inf

    def wait_s(self, now_s: float) -> float:
        """Return for how long the next fetch has to wait; 0: it may begin."""
        wait_s = self._may_s - now_s
        if wait_s <= _SOON_S:
            return 0.0
        sooner_s = self._attention.wait_s(now_s)
        if sooner_s > _SOON_S:
            return min(wait_s, sooner_s)
        if not self._attention.take(now_s):
            return wait_s
        self._may_s = now_s
        return 0.0


class GatheringFetcher(Fetcher):  # type: ignore[misc]  # the client has no types
    """The client's fetcher. That of a consumer that takes whole fetches lets samples gather in Kafka.

    The client fetches ahead. What it holds until the next turn would be older, and the next fetch not begun.
    """

    def __init__(self, *places: Any, value_deserializer: Any = None, **settings: Any) -> None:
        self._gathering = Gathering() if value_deserializer is at_once else None
        super().__init__(*places, value_deserializer=value_deserializer, **settings)

    async def fetched_records(self, *places: Any, **settings: Any) -> dict[Any, Any]:
        """Return what was fetched, waiting a moment for it."""
        fetched: dict[Any, Any] = await super().fetched_records(*places, **settings)
        if fetched and self._gathering is not None:  # no other task has run: the next fetch is not sent yet
            self._gathering.came(list(chain.from_iterable(fetched.values())), self._loop.time())
        return fetched

    def _get_actions_per_node(self, assignment: Any) -> Any:
        wait_s = 0.0 if self._gathering is None else self._gathering.wait_s(self._loop.time())
        if not wait_s or not all(assignment.state_value(place).has_valid_position for place in assignment.tps):
            return super()._get_actions_per_node(assignment)
        return [], {}, wait_s, False, []
