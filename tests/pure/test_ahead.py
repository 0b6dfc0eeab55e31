"""A sample that was taken ahead of a tick stands for that tick, where it comes soon after; no other does."""

from dataclasses import dataclass

import pytest

from slacktide.agents.metrics import AgentMetrics, Cause
from slacktide.agents.node.ahead.ahead import Ahead, AheadSettings
from slacktide.agents.node.ahead.early import APART_NS


@dataclass
class SteppedClock:
    """Time that moves when told."""

    now_ns: int = 0

    def mono_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 1_700_000_000_000


@pytest.mark.parametrize(
    ("cause", "since_ns", "stands"),
    [
        pytest.param("use", APART_NS - 1, True, id="a rise, just before"),
        pytest.param("memory", 0, True, id="pressure, just now"),
        pytest.param("use", APART_NS, False, id="long enough ago for a rate of the tick's own"),
        pytest.param("tick", 1, False, id="another tick, however close they are set"),
        pytest.param("keyframe", 1, False, id="a keyframe, which repeats rates"),
    ],
)
def test_what_stands_for_a_tick(cause: Cause, since_ns: int, stands: object) -> None:
    clock = SteppedClock()
    metrics = AgentMetrics("node-1")
    ahead = Ahead(AheadSettings(), take=pytest.fail, capacity_milli=lambda: 4_000, clock=clock, metrics=metrics)
    assert not ahead.covers_tick()

    ahead.sampled(cause, 7, clock.now_ns)
    clock.now_ns += since_ns

    assert ahead.covers_tick() is stands
