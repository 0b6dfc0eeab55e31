"""Between two ticks a rise in use is sampled at once, the answer comes as early, and the ticks keep their grid."""

import asyncio
import itertools
import time
from pathlib import Path

from prometheus_client import REGISTRY

from slacktide.agents.node.ahead import AheadSettings, Looked
from slacktide.agents.node.loop import run
from slacktide.agents.node.pressure import PressureFile, Stall, Waited
from slacktide.agents.node.settings import LoopSettings
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import NODE, VirtualNode
from testbed.sampled import sampled
from testbed.waiting import soon

INTERVAL_MS, LOOK_MS = 1_000, 50
APART_MS = 200
LATE_MS = 250
"""A busy machine's timers."""


class Use:
    """CPU time of a service whose use changes when told."""

    def __init__(self) -> None:
        self._milli, self._since_ns, self._used_ns = 500, time.monotonic_ns(), 0

    def cpu_ns(self) -> int:
        return self._used_ns + (time.monotonic_ns() - self._since_ns) * self._milli // 1_000

    def becomes(self, milli: int) -> None:
        self._used_ns, self._since_ns = self.cpu_ns(), time.monotonic_ns()
        self._milli = milli


def counted(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"node": NODE, **labels})


async def observed_ms(bootstrap: str) -> list[int]:
    return [sample.observed_ms for sample in await sampled(Cluster(bootstrap))]


async def test_a_rise_is_sampled_between_two_ticks_which_keep_their_grid(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(1)
    use, stop, state = Use(), asyncio.Event(), tmp_path / "state"
    state.mkdir()
    with VirtualNode(tmp_path) as node:
        kernel = node.kernel(state)
        settings = LoopSettings(
            node=NODE,
            bootstrap=embedded_broker.cluster,
            inventory=node.inventory,
            state_folder=state,
            sample_interval_ms=INTERVAL_MS,
            fetch_wait_ms=20,
            ahead=AheadSettings(
                pressure=Waited(stall=Stall(), files=lambda: [PressureFile(kind="cpu", path=str(tmp_path / "none"))]),
                use=Looked(interval_ms=LOOK_MS, cpu_ns=use.cpu_ns),
            ),
        )
        task = asyncio.create_task(run(kernel, settings, stop, Health()))
        await asyncio.sleep(1.5 * INTERVAL_MS / 1_000)
        ticks = counted("slacktide_agent_samples_total") or 0
        await soon(
            lambda: asyncio.sleep(0, counted("slacktide_agent_samples_total") or 0),
            "a tick",
            enough=lambda count: count > ticks,
        )
        await asyncio.sleep(0.4 * INTERVAL_MS / 1_000)  # between two, however late the agent began
        use.becomes(4_000)
        rose_ms = time.time_ns() // 1_000_000
        await asyncio.sleep(2 * INTERVAL_MS / 1_000)
        stop.set()
        await task
        kernel.close()
    taken_ms = await observed_ms(embedded_broker.bootstrap)

    early = [at for at in taken_ms if LATE_MS < (at - taken_ms[0]) % INTERVAL_MS < INTERVAL_MS - LATE_MS]
    sampled_early = counted("slacktide_agent_samples_early_total", cause="use")
    assert 1 <= len(early) <= sampled_early, "a late one may be taken for a tick"
    assert sampled_early <= 3, "at once, and again only where that one had seen little of the rise; not at each look"
    assert 0 <= early[0] - rose_ms <= 2 * APART_MS + LATE_MS + LOOK_MS
    assert len(taken_ms) - len(early) >= 3, "no tick was left out for it"
    assert all(after - before >= APART_MS for before, after in itertools.pairwise(taken_ms))
    assert counted("slacktide_agent_pressure_triggers", kind="cpu", result="refused") == 1
