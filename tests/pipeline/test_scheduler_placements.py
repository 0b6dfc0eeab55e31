"""What a scheduler's part decided is in the log, whenever it stops."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import aiohttp

from slacktide.agents.cluster.scheduler.scheduler import SchedulerSettings, run
from slacktide.agents.kafka import read_topic
from slacktide.schemas.codec import decode
from slacktide.schemas.health import Health
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import PLACEMENT
from testbed.brokers import EmbeddedBroker, free_port
from testbed.cluster.bridge_rig import until


async def test_what_was_answered_last_is_told_before_it_stops(embedded_broker: EmbeddedBroker) -> None:
    """Else the other replica would say of a pod that nobody was asked about it."""
    embedded_broker.apply_topics(3)
    health, stop, port = Health(), asyncio.Event(), free_port()
    settings = SchedulerSettings(
        bootstrap=embedded_broker.bootstrap, access=None, replica="one", host="127.0.0.1", port=port
    )
    running = asyncio.create_task(run(settings, stop, health))
    async with aiohttp.ClientSession() as session:

        async def ask(name: str) -> int:
            body = {"Pod": {"metadata": {"name": name, "namespace": "n", "uid": name}}, "NodeNames": ["a"]}
            async with session.post(f"http://127.0.0.1:{port}/filter", data=json.dumps(body)) as answer:
                return answer.status

        await until(lambda: not health.not_ready)
        assert await ask("first") == 200
        await asyncio.sleep(1)  # by then it is connected
        assert [await ask(f"pod-{number}") for number in range(50)] == [200] * 50
        stop.set()
        await running

    async with aclosing(read_topic(embedded_broker.bootstrap, PLACEMENT.name)) as records:
        told = {decode(one.value, PodPlacement).name async for one in records}
    assert told >= {f"pod-{number}" for number in range(50)}
