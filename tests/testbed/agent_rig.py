"""The agent of a virtual node on a real broker, run in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from slacktide.agents.http import Access
from slacktide.agents.node.agent import AgentSettings
from slacktide.agents.node.forecast import TRAIN_EVERY_MS
from slacktide.agents.node.inventory import Lister
from slacktide.agents.node.loop import run
from slacktide.agents.node.service_times import ServiceTimesReader
from slacktide.agents.node.services import MINUTE_MS, Metered
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.zones.publisher import ZonesFolders
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from testbed.one_machine import NODE, VirtualNode

INTERVAL_MS = 250


@contextlib.asynccontextmanager
async def agent_of(
    node: VirtualNode,
    bootstrap: str,
    folder: Path,
    *,
    from_kafka: bool = False,
    lister: Lister | None = None,
    enrol: Access | None = None,
    keyframe_ms: int = 10_000,
    zones: ZonesFolders | None = None,
    train_every_ms: int = TRAIN_EVERY_MS,
    minute_ms: int = MINUTE_MS,
) -> AsyncIterator[Health]:
    state = folder / "state"
    state.mkdir(exist_ok=True)
    kernel = node.kernel(state)
    settings = LoopSettings(
        node=NODE,
        bootstrap=Cluster(bootstrap),
        inventory=node.inventory,
        from_kafka=from_kafka,
        lister=lister,
        state_folder=state,
        enrol=enrol,
        sample_interval_ms=INTERVAL_MS,
        fetch_wait_ms=20,
        zones=zones,
        services=Metered(reader=ServiceTimesReader(kernel.hierarchy), minute_ms=minute_ms),
        agent=AgentSettings(guard_deadline_ms=500, keyframe_ms=keyframe_ms, train_every_ms=train_every_ms),
    )
    stop, health = asyncio.Event(), Health()
    task = asyncio.create_task(run(kernel, settings, stop, health))
    try:
        yield health
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await task
        kernel.close()
