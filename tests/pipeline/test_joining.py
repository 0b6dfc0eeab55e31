"""Members of a group get their partitions; a worker that its group leaves waiting connects anew."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiokafka.protocol.group import JoinGroupRequest

from slacktide.agents.clock import SystemClock
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.engine.session import Session, WorkerSettings
from slacktide.streams.kafka.group import Group
from slacktide.streams.records import Place
from slacktide.streams.worker import Worker
from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.waiting import soon

SESSION_S = 0.4


async def test_a_session_ends_where_the_group_assigns_nothing(embedded_broker: EmbeddedBroker) -> None:
    """It fails after five session timeouts, so that the next one joins anew."""
    embedded_broker.apply_topics(1)
    settings = WorkerSettings(bootstrap=Cluster(embedded_broker.bootstrap), session_timeout_ms=round(SESSION_S * 1_000))
    stop = asyncio.Event()
    async with Session(Worker("w"), settings, stop, Health(), SystemClock().wall_ms) as session:
        await session.until(stop, session.connect())
        with pytest.raises(LogError, match="the group assigned no partitions within 2 s"):
            async with asyncio.timeout(60):
                await session.until(stop)


async def test_a_session_goes_on_where_the_group_assigns_none_of_them(embedded_broker: EmbeddedBroker) -> None:
    """Other workers may have them all."""
    embedded_broker.apply_topics(1)
    settings = WorkerSettings(bootstrap=Cluster(embedded_broker.bootstrap), session_timeout_ms=round(SESSION_S * 1_000))
    stop = asyncio.Event()
    async with Session(Worker("w"), settings, stop, Health(), SystemClock().wall_ms) as session:
        await session.until(stop, session.connect())
        session.assigned(frozenset(), 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10 * SESSION_S):
                await session.until(stop)


@pytest.mark.kafka
async def test_members_that_join_one_after_the_other_get_their_partitions(kafka_broker: KafkaBroker) -> None:
    """Also where one is slow: a member whose second request begins a rebalance keeps all others from their end."""
    kafka_broker.apply_topics(2)
    shares: dict[str, set[int]] = {}
    async with _member(kafka_broker, "slow", shares) as slow, asyncio.timeout(60):
        coordinator = slow._consumer._coordinator
        send = coordinator._send_req

        async def send_late(request: Any) -> Any:
            if isinstance(request, JoinGroupRequest):
                await asyncio.sleep(0.3)
            return await send(request)

        coordinator._send_req = send_late
        before = coordinator.generation
        coordinator.request_rejoin()
        await asyncio.sleep(0.45)  # a second request would be on its way now
        async with _member(kafka_broker, "quick", shares):
            await soon(lambda: asyncio.sleep(0, dict(shares)), "a partition for each", 60, enough=shared)
        assert coordinator.generation <= before + 3, "joined anew by the first, by the second, and at most once more"


def shared(partitions: Mapping[str, set[int]]) -> bool:
    return sorted(partitions.values(), key=list) == [{0}, {1}]


@contextlib.asynccontextmanager
async def _member(broker: KafkaBroker, name: str, shares: dict[str, set[int]]) -> AsyncIterator[Group]:
    async def assigned(places: frozenset[Place]) -> None:
        shares[name] = {place.partition for place in places}

    async def revoked(_: frozenset[Place]) -> None:
        shares[name] = set()

    topics = [SAMPLE.name]
    member = Group(
        Cluster(broker.bootstrap), topics, "g", session_timeout_ms=6_000, fetch_wait_ms=50, assigned=assigned,
        revoked=revoked,
    )  # fmt: skip
    try:
        await member.join()
        yield member
    finally:
        await member.leave()
