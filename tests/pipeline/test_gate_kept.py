"""An agent that crashes goes on from what it learned of pressure: its next run begins with that baseline."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from slacktide.agents.node.ahead import AheadSettings, Looked
from slacktide.agents.node.loop import run
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.state import State
from slacktide.schemas.health import Health
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import PressureGate, PressureLook
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import NODE, VirtualNode
from testbed.sampled import sampled
from testbed.waiting import soon

LOOK_MS = 20
BY_PRESSURE = policy_of(Colocation(), ResourceThreshold(enable=True, cpu_suppress_signal="pressure"))
ALONE = PressureLook(span_us=20_000, ls_cpu_us=20_000, be_cpu_us=0, idle_us=0, cpu_stall_us=6_000)
"""Of a service that stalls without best-effort pods: its baseline rises to nearly 300 permille."""


@contextlib.contextmanager
def agent(node: VirtualNode, broker: EmbeddedBroker, state: Path) -> Iterator[tuple[asyncio.Task[None], asyncio.Event]]:
    """Its task, and what stops it in order."""
    kernel = node.kernel(state)
    settings = LoopSettings(
        node=NODE,
        bootstrap=broker.cluster,
        inventory=node.inventory,
        state_folder=state,
        sample_interval_ms=250,
        fetch_wait_ms=20,
        ahead=AheadSettings(use=Looked(interval_ms=LOOK_MS, cpu_ns=lambda: None, stall=lambda _: ALONE)),
    )
    stop = asyncio.Event()
    yield asyncio.create_task(run(kernel, settings, stop, Health())), stop
    kernel.close()


async def learned(state: Path) -> int:
    """The baseline in the state folder, once there is one."""
    async with asyncio.timeout(60):
        while (gate := State(state).gate()) is None:  # noqa: ASYNC110 - what is asked is a file
            await asyncio.sleep(0.02)
    return gate.base_permille


async def test_a_baseline_outlives_a_crash_of_the_agent(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    embedded_broker.apply_topics(1)
    state = tmp_path / "state"
    state.mkdir()
    State(state).keep_policy(BY_PRESSURE)
    with VirtualNode(tmp_path) as node:
        with agent(node, embedded_broker, state) as (task, _):
            base_permille = await learned(state)
            task.cancel()  # it does nothing in order any more
            with contextlib.suppress(asyncio.CancelledError):
                await task
        before = {one.boot_id for one in await sampled(embedded_broker.cluster)}

        async def gates() -> list[PressureGate]:
            samples = await sampled(embedded_broker.cluster)
            return [one.ls_pressure.gate for one in samples if one.boot_id not in before and one.ls_pressure]

        with agent(node, embedded_broker, state) as (task, stop):
            found = await soon(gates, "a sample of its next run that was taken by pressure")
            stop.set()
            await task

    assert base_permille > 200
    assert found[0].base_permille == base_permille
