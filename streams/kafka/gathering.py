"""Delays fetches, so that samples that arrive one by one share the cost of a fetch and its answers.

While limits do not change, answers change nothing, so nothing waits for them. The next sample of a node with a changing
limit is worth a separate fetch. Agents sample at fixed intervals, so a sample shows when the next one is due.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.protocol.fetch import FetchRequest

from slacktide.schemas.sample_columns_codec import BEGIN, NOW
from slacktide.streams.kafka.fetched import FetchedBatches, Naming, at_once, records_in

MOVES_S: Final = 3.0
"""A limit is changing if it changed within this time: it rises by one step per second."""
EARLY_S: Final = 0.005
"""The broker holds a fetch until the sample arrives."""
LATE_S: Final = 0.025
OVERDUE_S: Final = 0.05
GIVEN_UP_S: Final = 0.3
"""A sample that is late by less may come at any moment."""
PER_S: Final = 20
"""Limits the fetches for such samples."""
NODES_MAX: Final = 2_000
_DRIFT_S: Final = 0.0001
"""Per fetch: assumed drift between the broker's clock and this one."""
_SHORTER: Final = 0.998
"""Per sample: assumed decrease of the interval between samples. An early sample does not show it."""
_POLICY: Final = b',"policy_version":'
_LIMITS: Final = b'"limits":'
_FETCH: Final = FetchRequest.API_KEY
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

    def ends_s(self, now_s: float) -> float:
        if now_s <= self.due_s:
            return self.due_s + LATE_S
        return now_s + OVERDUE_S if now_s < self.due_s + GIVEN_UP_S else math.inf


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

    def ends_s(self, now_s: float) -> float:
        """Return the time by which the next sample is there, if it is on time."""
        return min((node.ends_s(now_s) for node in self._nodes.values()), default=math.inf)

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

    def held_ms(self, now_s: float, longest_ms: int) -> int:
        """Return how long the broker may hold a fetch that begins now: until shortly after the next sample is due.

        Kafka answers as soon as there is a record. The embedded broker looks for one at half of the time, then at half
        of the rest, and so on: its answer is the quicker, the closer the end of the time.
        """
        return round(min(longest_ms, 1_000 * (self._attention.ends_s(now_s) - now_s)))


LONG_MS: Final = 300
"""A fetch that is held for less ends soon, and a new connection costs more."""
REST_S: Final = 1.0
"""Longest time between two fetches while no answer is due."""


class Due(Naming):
    """Marks a consumer of one node that waits for answers: it fetches while one is ``due``, and else once a second."""

    def __init__(self, names: Mapping[str, Sequence[bytes]], due: Callable[[], bool]) -> None:
        super().__init__(names)
        self._due, self._next_s = due, -math.inf

    def came(self, fetched: list[Any], now_s: float) -> None:
        """Take in the records of a fetch."""

    def wait_s(self, now_s: float) -> float:
        """Return how long the next fetch must wait; 0: it may begin."""
        if not self._due() and now_s < self._next_s:
            return self._next_s - now_s
        self._next_s = now_s + REST_S
        return 0.0


MANY: Final = 1_000
"""Records of one fetch, after which the next one begins sooner."""


class Resting:
    """Lets records gather for ``gather_s`` after some came: one fetch then has them all."""

    def __init__(self, gather_s: float) -> None:
        self._gather_s, self._next_s = gather_s, -math.inf

    def came(self, fetched: list[Any], now_s: float) -> None:
        """Take in the records of a fetch."""
        self._next_s = now_s + self._gather_s * min(1.0, MANY / max(1, records_in(fetched)))

    def wait_s(self, now_s: float) -> float:
        """Return how long the next fetch must wait; 0: it may begin."""
        return max(0.0, self._next_s - now_s)


class GatheringFetcher(Fetcher):  # type: ignore[misc]  # the client has no types
    """The client's fetcher. For consumers of whole fetches, samples gather in Kafka; others may rest.

    The client fetches ahead. Records that it holds until the next turn would be older, and would delay the next fetch.
    """

    _fetch_max_wait_ms: int
    _fetcher_timeout: float

    def __init__(self, *places: Any, value_deserializer: Any = None, **settings: Any) -> None:
        self._gathering: Gathering | Due | Resting | None = Gathering() if value_deserializer is at_once else None
        if isinstance(value_deserializer, Due):
            self._gathering = value_deserializer
        self._assigned: object = None
        super().__init__(*places, value_deserializer=value_deserializer, **settings)
        self._longest_ms: int = self._fetch_max_wait_ms
        self._fetcher_timeout = max(self._fetcher_timeout, self._longest_ms / 1_000)

    async def fetched_records(self, *places: Any, **settings: Any) -> dict[Any, Any]:
        """Wait briefly for records, and return them."""
        fetched: dict[Any, Any] = await super().fetched_records(*places, **settings)
        if fetched and self._gathering is not None:  # no other task has run: the next fetch is not sent yet
            self._gathering.came(list(chain.from_iterable(fetched.values())), self._loop.time())
        return fetched

    def gather(self, gather_s: float) -> None:
        """Let records gather from now on."""
        if self._gathering is None:
            self._gathering = Resting(gather_s)

    def wake(self) -> None:
        """Let it look again whether a fetch may begin."""
        self._notify(self._wait_consume_future)

    def _get_actions_per_node(self, assignment: Any) -> Any:
        if assignment is not self._assigned:
            self._assigned = assignment
            if max(self._longest_ms, self._fetch_max_wait_ms) >= LONG_MS:
                drop_held(self._client)
        if self._gathering is None:
            return super()._get_actions_per_node(assignment)
        now_s = self._loop.time()
        wait_s = self._gathering.wait_s(now_s)
        if isinstance(self._gathering, Gathering):
            self._fetch_max_wait_ms = self._gathering.held_ms(now_s, self._longest_ms)
        if not wait_s or not all(assignment.state_value(place).has_valid_position for place in assignment.tps):
            return super()._get_actions_per_node(assignment)
        return [], {}, wait_s, False, []


def drop_held(client: Any) -> None:
    """Close connections on which brokers hold fetches that nobody waits for any more.

    A broker answers the requests of a connection in their order, so that the next fetch would wait for their end.
    """
    for connection in list(client._conns.values()):  # noqa: SLF001 - it has no public method
        waiting = [(request, future) for _, request, future in connection._requests]  # noqa: SLF001
        fetches = any(request is not None and request.API_KEY == _FETCH for request, _ in waiting)
        if fetches and all(future.done() for _, future in waiting):
            connection.close()
