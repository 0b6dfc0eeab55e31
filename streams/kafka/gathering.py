"""Delays fetches, so that samples that arrive one by one share the cost of a fetch and its answers."""

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
"""While no limit is changing."""
FEW = 32
"""Samples: after a larger fetch there may be as many again, and a worker that lags does not wait."""
_SOON_S = 0.001
"""Not worth a timer."""


class Gathering:
    """Determines when the next fetch may begin.

    A sample after a pause, and the next one, do not wait. With many nodes each waits a fifth of a second at most. A
    node with a changing limit does not wait.
    """

    def __init__(self) -> None:
        self._attention = Attention()
        self._came_s = -math.inf
        self._may_s = -math.inf

    def came(self, fetched: list[Any], now_s: float) -> None:
        """Take in the records of a fetch."""
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
        """Return how long the next fetch must wait; 0: it may begin."""
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
    """The client's fetcher. For consumers of whole fetches, samples gather in Kafka.

    The client fetches ahead. Records that it holds until the next turn would be older, and would delay the next fetch.
    """

    def __init__(self, *places: Any, value_deserializer: Any = None, **settings: Any) -> None:
        self._gathering = Gathering() if value_deserializer is at_once else None
        super().__init__(*places, value_deserializer=value_deserializer, **settings)

    async def fetched_records(self, *places: Any, **settings: Any) -> dict[Any, Any]:
        """Wait briefly for records, and return them."""
        fetched: dict[Any, Any] = await super().fetched_records(*places, **settings)
        if fetched and self._gathering is not None:  # no other task has run: the next fetch is not sent yet
            self._gathering.came(list(chain.from_iterable(fetched.values())), self._loop.time())
        return fetched

    def _get_actions_per_node(self, assignment: Any) -> Any:
        wait_s = 0.0 if self._gathering is None else self._gathering.wait_s(self._loop.time())
        if not wait_s or not all(assignment.state_value(place).has_valid_position for place in assignment.tps):
            return super()._get_actions_per_node(assignment)
        return [], {}, wait_s, False, []
