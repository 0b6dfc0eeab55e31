"""A sample that was taken ahead of a tick stands for that tick, where it comes soon after; no other does."""

import asyncio

import pytest

from slacktide.agents.node.ahead import APART_NS, Ahead, AheadSettings, Looked
from slacktide.agents.node.metrics import AgentMetrics, Cause
from slacktide.schemas.sample import Limits, NodeSample, PodUse, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_suppress import UNLIMITED
from testbed.lone_agent import SteppedClock
from testbed.samples import sample
from testbed.vectors import each_row


@each_row("cause", "since_ns", "stands")
def test_what_stands_for_a_tick(cause: Cause, since_ns: int, stands: object) -> None:
    clock = SteppedClock(0)
    metrics = AgentMetrics("node-1")
    ahead = Ahead(AheadSettings(), take=pytest.fail, capacity_milli=lambda: 4_000, clock=clock, metrics=metrics)
    assert not ahead.covers_tick()

    ahead.sampled(cause, sample(7), clock.now_ns)
    clock.now_ns += since_ns

    assert ahead.covers_tick() is stands


def using(milli: int, limits: Limits = UNLIMITED) -> NodeSample:
    return sample(1, pod_use=[PodUse(uid="be", cpu_milli=milli, best_effort_group=True)], limits=limits)


@pytest.mark.parametrize(
    ("idle", "busy"),
    [
        (using(20), using(21)),
        (using(20), using(0, Limits(be_cfs_quota_us=2_000))),
    ],
    ids=["they use at most 2% of a CPU", "and are not paused"],
)
async def test_looks_are_rare_while_no_best_effort_pod_runs(idle: NodeSample, busy: NodeSample) -> None:
    looks = 0

    def cpu_ns() -> int:
        nonlocal looks
        looks += 1
        return 0

    ahead = Ahead(
        AheadSettings(use=Looked(interval_ms=1, cpu_ns=cpu_ns)),
        take=pytest.fail,
        capacity_milli=lambda: 4_000,
        clock=SteppedClock(0),
        metrics=AgentMetrics("node-1"),
        by_pressure=lambda: True,
    )
    ahead.start()
    async with asyncio.timeout(60):
        while looks < 5:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    ahead.sampled("tick", idle, 0)
    await asyncio.sleep(0.01)  # one that was due before
    seen, looks = looks, 0
    await asyncio.sleep(0.2)
    assert looks <= 1, f"{seen} before"
    ahead.sampled("tick", busy, 0)
    async with asyncio.timeout(60):
        while looks < 5:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    ahead.close()


async def test_a_turn_of_the_gate_asks_for_a_sample_at_once_and_its_looks_are_in_it() -> None:
    clock, taken = SteppedClock(10 * APART_NS), asyncio.Queue[Cause]()
    asked = True
    stalled = PressureLook(span_us=100_000, ls_cpu_us=100_000, be_cpu_us=200_000, idle_us=0, cpu_stall_us=90_000)
    ahead = Ahead(
        AheadSettings(use=Looked(interval_ms=1, cpu_ns=lambda: None, stall=lambda _: stalled)),
        take=taken.put_nowait,
        capacity_milli=lambda: 4_000,
        clock=clock,
        metrics=AgentMetrics("node-1"),
        by_pressure=lambda: asked,
        kept=PressureGate(base_permille=100),
    )
    ahead.start()
    async with asyncio.timeout(60):
        assert await taken.get() == "stall"
    pressure = ahead.pressure()
    assert pressure is not None
    assert (pressure.gate, pressure.looks[0]) == (PressureGate(base_permille=100), stalled)

    ahead.sampled("stall", sample(1), clock.now_ns)
    assert ahead.covers_tick()
    asked = False
    await asyncio.sleep(0.05)
    assert ahead.pressure() is None, "another policy reads nothing, and its samples carry nothing"
    ahead.close()
