"""How close together a worker's fetches come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.subscription_state import SubscriptionState

from slacktide.streams.kafka.fetched import at_once
from slacktide.streams.kafka.gathering import FEW, GATHER_S, Gathering, GatheringFetcher

NOW_S = 1_000.0


def test_where_samples_keep_coming_a_fetch_waits_for_them_to_gather() -> None:
    gathering = Gathering()
    gathering.came(1, NOW_S)
    gathering.came(1, NOW_S + GATHER_S)

    assert gathering.wait_s(NOW_S + GATHER_S) == pytest.approx(GATHER_S)
    assert gathering.wait_s(NOW_S + 1.5 * GATHER_S) == pytest.approx(GATHER_S / 2)
    assert gathering.wait_s(NOW_S + 2 * GATHER_S) == 0.0


def test_what_follows_the_first_sample_after_a_while_waits_for_nothing() -> None:
    gathering = Gathering()
    gathering.came(1, NOW_S)
    gathering.came(1, NOW_S + 3 * GATHER_S)

    assert gathering.wait_s(NOW_S + 3 * GATHER_S) == 0.0


def test_a_worker_that_is_behind_does_not_wait() -> None:
    gathering = Gathering()
    gathering.came(1, NOW_S)
    gathering.came(FEW + 1, NOW_S + 0.001)

    assert gathering.wait_s(NOW_S + 0.001) == 0.0


async def test_a_consumer_of_whole_fetches_asks_for_nothing_meanwhile_but_where_it_stands() -> None:
    place, subscriptions = TopicPartition("samples", 0), SubscriptionState()
    subscriptions.assign_from_user({place})
    assignment = subscriptions.subscription.assignment
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
    fetcher = GatheringFetcher(client, subscriptions, value_deserializer=at_once)
    plain = GatheringFetcher(client, subscriptions)
    try:
        now_s = asyncio.get_running_loop().time()
        fetcher._gathering.came(1, now_s)
        fetcher._gathering.came(1, now_s)

        assert _looks_for_a_leader(fetcher, assignment)  # a place whose position is not known is not kept waiting
        assignment.state_value(place).reset_to(7)
        assert not _looks_for_a_leader(fetcher, assignment)
        assert 0 < fetcher._get_actions_per_node(assignment)[2] <= GATHER_S
        assert _looks_for_a_leader(plain, assignment)
    finally:
        await fetcher.close()
        await plain.close()


def _looks_for_a_leader(fetcher: GatheringFetcher, assignment: Any) -> bool:
    """As each fetch does first where no broker is known."""
    _, _, _, lacks_leader, _ = fetcher._get_actions_per_node(assignment)
    return bool(lacks_leader)
