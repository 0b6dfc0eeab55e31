"""How close together a worker's fetches come."""

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.subscription_state import SubscriptionState

from slacktide.schemas.sample import Limits
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.streams.kafka.fetched import FetchedBatches, at_once, walked
from slacktide.streams.kafka.gathering import (
    CALM_S,
    EARLY_S,
    FEW,
    GATHER_S,
    GIVEN_UP_S,
    LATE_S,
    MANY,
    OVERDUE_S,
    PER_S,
    Due,
    Gathering,
    GatheringFetcher,
    Resting,
)
from testbed.batches import batch
from testbed.samples import PODS, sample

NOW_S = 1_000.0
BEHIND_S = 400.0
"""What the worker's clock shows when the broker's shows 0."""


def fetched(seq: int, quota_us: int | None, *, came_s: float, node: str = "node-1", interval_ms: int = 1_000) -> Any:
    """One sample, appended at that time by the worker's clock."""
    limits = Limits(be_cfs_quota_us=quota_us)
    value = encoded(sample(seq, node, limits=limits, interval_ms=interval_ms), PODS)
    appended_ms = round((came_s - BEHIND_S) * 1_000)
    return walked(batch(seq, [value], timestamp_ms=appended_ms).raw, seq, 1 << 24)


def some(count: int) -> FetchedBatches:
    """So many records, none of them a sample in columns."""
    return walked(batch(0, [b""] * count).raw, 0, 1 << 24)


def crowded(gathering: Gathering, now_s: float, *more: Any) -> None:
    """Samples of other nodes come all the time, and at last these."""
    gathering.came([some(1)], now_s - 0.1)
    gathering.came([some(1), *more], now_s)


def test_where_samples_keep_coming_a_fetch_waits_for_them_to_gather() -> None:
    gathering = Gathering()
    gathering.came([some(1)], NOW_S)
    gathering.came([some(1)], NOW_S + CALM_S)

    assert gathering.wait_s(NOW_S + CALM_S) == pytest.approx(CALM_S)
    assert gathering.wait_s(NOW_S + 1.5 * CALM_S) == pytest.approx(CALM_S / 2)
    assert gathering.wait_s(NOW_S + 2 * CALM_S) == 0.0


def test_what_follows_the_first_sample_after_a_while_waits_for_nothing() -> None:
    gathering = Gathering()
    gathering.came([some(1)], NOW_S)
    gathering.came([some(1)], NOW_S + 3 * CALM_S)

    assert gathering.wait_s(NOW_S + 3 * CALM_S) == 0.0


def test_a_worker_that_is_behind_does_not_wait() -> None:
    gathering = Gathering()
    gathering.came([some(1)], NOW_S)
    gathering.came([some(FEW + 1)], NOW_S + 0.001)

    assert gathering.wait_s(NOW_S + 0.001) == 0.0


def moved(gathering: Gathering, *, interval_ms: int = 1_000) -> None:
    """A limit that changed: with the sample of ``NOW_S``."""
    crowded(gathering, NOW_S - 1, fetched(1, 100_000, came_s=NOW_S - 1, interval_ms=interval_ms))
    crowded(gathering, NOW_S, fetched(2, 110_000, came_s=NOW_S, interval_ms=interval_ms))


def test_the_next_sample_of_a_node_whose_limit_moves_is_fetched_when_it_comes() -> None:
    gathering = Gathering()
    moved(gathering)
    assert gathering.wait_s(NOW_S) == pytest.approx(GATHER_S)

    crowded(gathering, NOW_S + 0.95)
    assert gathering.wait_s(NOW_S + 0.95) == pytest.approx(0.05 - EARLY_S, abs=0.002)
    assert gathering.wait_s(NOW_S + 0.999) == 0.0


def test_a_node_whose_limit_stands_is_answered_with_others() -> None:
    gathering = Gathering()
    for seq in range(3):
        crowded(gathering, NOW_S + seq, fetched(seq, 100_000, came_s=NOW_S + seq))

    crowded(gathering, NOW_S + 2.95)
    assert gathering.wait_s(NOW_S + 2.95) == pytest.approx(CALM_S)


def test_a_sample_ahead_of_its_time_does_not_hide_when_the_next_one_is_due() -> None:
    gathering = Gathering()
    moved(gathering)
    crowded(gathering, NOW_S + 0.3, fetched(3, 90_000, came_s=NOW_S + 0.3, interval_ms=300))

    crowded(gathering, NOW_S + 0.95)
    assert gathering.wait_s(NOW_S + 0.95) == pytest.approx(0.05 - EARLY_S, abs=0.002)
    crowded(gathering, NOW_S + 1, fetched(4, 90_000, came_s=NOW_S + 1, interval_ms=700))
    crowded(gathering, NOW_S + 1.95)
    assert gathering.wait_s(NOW_S + 1.95) == pytest.approx(0.05 - EARLY_S, abs=0.004)


def test_a_sample_that_does_not_come_is_not_waited_for() -> None:
    gathering = Gathering()
    moved(gathering)

    crowded(gathering, NOW_S + 1 + LATE_S + 0.002)
    assert gathering.wait_s(NOW_S + 1 + LATE_S + 0.002) == pytest.approx(GATHER_S)


def test_fetches_for_nodes_whose_limits_move_are_bounded() -> None:
    gathering = Gathering()
    nodes = [f"node-{number}" for number in range(30)]
    for seq, quota_us in enumerate((100_000, 110_000)):
        crowded(gathering, NOW_S + seq, *(fetched(seq, quota_us, came_s=NOW_S + seq, node=node) for node in nodes))

    at_once_s = 0
    for _ in range(3 * PER_S):
        crowded(gathering, NOW_S + 2)
        at_once_s += not gathering.wait_s(NOW_S + 2)
    assert at_once_s == PER_S


LONGEST_MS = 500


def test_the_broker_holds_a_fetch_until_shortly_after_the_next_sample_is_due() -> None:
    gathering = Gathering()
    assert gathering.held_ms(NOW_S, LONGEST_MS) == LONGEST_MS
    crowded(gathering, NOW_S, fetched(1, 100_000, came_s=NOW_S))

    late_ms = LATE_S * 1_000
    assert gathering.held_ms(NOW_S + 0.1, LONGEST_MS) == LONGEST_MS
    assert gathering.held_ms(NOW_S + 0.9, LONGEST_MS) == pytest.approx(100 + late_ms, abs=3)
    assert gathering.held_ms(NOW_S + 0.99, LONGEST_MS) == pytest.approx(10 + late_ms, abs=3)


def test_a_sample_that_is_late_is_looked_for_often_and_then_no_more() -> None:
    gathering = Gathering()
    crowded(gathering, NOW_S, fetched(1, 100_000, came_s=NOW_S))

    for late_s in (0.01, LATE_S, GIVEN_UP_S - 0.01):
        assert gathering.held_ms(NOW_S + 1 + late_s, LONGEST_MS) == OVERDUE_S * 1_000
    assert gathering.held_ms(NOW_S + 1 + GIVEN_UP_S + 0.01, LONGEST_MS) == LONGEST_MS


def test_a_reader_whose_records_gather_rests_after_some_came_and_for_less_after_many() -> None:
    resting = Resting(1.0)
    assert resting.wait_s(NOW_S) == 0.0
    resting.came([some(1)], NOW_S)
    assert [resting.wait_s(NOW_S + at) for at in (0.0, 0.4, 1.0)] == pytest.approx([1.0, 0.6, 0.0])
    resting.came([some(2 * MANY)], NOW_S)
    assert resting.wait_s(NOW_S) == pytest.approx(0.5)


def test_a_reader_of_answers_fetches_while_one_is_due_and_else_once_a_second() -> None:
    due = True
    reader = Due({}, lambda: due)
    assert [reader.wait_s(NOW_S + at) for at in (0.0, 0.1, 0.2)] == [0.0, 0.0, 0.0]
    due = False
    assert reader.wait_s(NOW_S + 0.7) == pytest.approx(0.5)
    due = True
    assert reader.wait_s(NOW_S + 0.8) == 0.0
    due = False
    assert [reader.wait_s(NOW_S + at) for at in (1.8, 1.81)] == [0.0, pytest.approx(0.99)]


async def test_a_consumer_of_whole_fetches_asks_for_nothing_meanwhile_but_where_it_stands() -> None:
    place, subscriptions = TopicPartition("samples", 0), SubscriptionState()
    subscriptions.assign_from_user({place})
    assignment = subscriptions.subscription.assignment
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
    fetcher = GatheringFetcher(client, subscriptions, value_deserializer=at_once)
    plain = GatheringFetcher(client, subscriptions)
    try:
        now_s = asyncio.get_running_loop().time()
        fetcher._gathering.came([some(1)], now_s)
        fetcher._gathering.came([some(1)], now_s)

        assert _looks_for_a_leader(fetcher, assignment)  # a place whose position is not known is not kept waiting
        assignment.state_value(place).reset_to(7)
        assert not _looks_for_a_leader(fetcher, assignment)
        assert 0 < fetcher._get_actions_per_node(assignment)[2] <= CALM_S
        assert _looks_for_a_leader(plain, assignment)
    finally:
        await fetcher.close()
        await plain.close()


def _looks_for_a_leader(fetcher: GatheringFetcher, assignment: Any) -> bool:
    """As each fetch does first where no broker is known."""
    _, _, _, lacks_leader, _ = fetcher._get_actions_per_node(assignment)
    return bool(lacks_leader)
