"""A worker that its group leaves waiting connects anew."""

from __future__ import annotations

import asyncio

import pytest

from slacktide.agents.clock import SystemClock
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.streams.shells.session import Session, ShellSettings
from slacktide.streams.worker import Worker
from testbed.brokers import EmbeddedBroker


async def test_a_session_ends_where_the_group_assigns_nothing(embedded_broker: EmbeddedBroker) -> None:
    """It fails after five session timeouts, so that the next one joins anew."""
    embedded_broker.apply_topics(1)
    settings = ShellSettings(bootstrap=Cluster(embedded_broker.bootstrap), session_timeout_ms=400)
    stop = asyncio.Event()
    async with Session(Worker("w"), settings, stop, Health(), SystemClock().wall_ms) as session:
        await session.until(stop, session.connect())
        with pytest.raises(LogError, match="the group assigned no partitions within 2 s"):
            await asyncio.wait_for(session.until(stop), 20)


async def test_a_session_goes_on_where_the_group_assigns_none_of_them(embedded_broker: EmbeddedBroker) -> None:
    """Other workers may have them all."""
    embedded_broker.apply_topics(1)
    settings = ShellSettings(bootstrap=Cluster(embedded_broker.bootstrap), session_timeout_ms=400)
    stop = asyncio.Event()
    async with Session(Worker("w"), settings, stop, Health(), SystemClock().wall_ms) as session:
        await session.until(stop, session.connect())
        session.assigned(frozenset(), 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.until(stop), 4)
