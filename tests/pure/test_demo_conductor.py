"""How the demo is led: it waits for the loop, measures like with like, and says plainly what is missing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest

from slacktide.deploy.demo import conductor
from slacktide.deploy.demo.backend import DemoError, Machine, Served, Used
from slacktide.deploy.demo.conditions import Condition, Load, Scenario, conditions
from slacktide.deploy.demo.conductor import Conductor
from slacktide.deploy.demo.pods import DemoPod, Form, batch_pods, service_pod
from slacktide.deploy.demo.story import Story
from slacktide.schemas.connection import Cluster
from slacktide.schemas.sample import Limits
from testbed import chains, samples

LIMIT, NO_LIMIT = Limits(be_cfs_quota_us=30_000), Limits(be_cfs_quota_us=None)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """The clock below moves by itself."""
    monkeypatch.setattr(conductor, "POLL_S", 0.0)


class Hurried:
    """A clock that is a quarter of a second later each time it is looked at."""

    def __init__(self) -> None:
        self._ns = 0

    def mono_ns(self) -> int:
        self._ns += 250_000_000
        return self._ns

    def wall_ms(self) -> int:
        return self._ns // 1_000_000


class Paper:
    """A backend that notes what it is told, and uses one CPU second whenever it is asked."""

    mode: Literal["real", "virtual"] = "virtual"
    scenario: Scenario = "cpu"
    why = "a test"
    nodes: Sequence[str] = ("n",)
    machine = Machine(capacity_milli=2000, mem_bytes=1 << 30)

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.plays: list[tuple[Load, int]] = []
        self.ended = ""
        self._asked = 0

    async def open(self) -> None: ...

    def agents(self, bootstrap: Cluster, inventory: Path) -> list[str]:
        return []

    async def enter(self, form: Form) -> None:
        self.forms.append(form)

    def pods(self) -> list[DemoPod]:
        return [service_pod("n", 2000), *batch_pods(self.forms[-1], "n", 2000)]

    def play(self, loads: Mapping[str, Load], seed: int, start_s: float) -> None:
        self.plays.append((loads["n"], seed))
        self._start_s = start_s

    def served(self) -> list[Served]:
        return [Served(self._start_s + 0.01, 5.0)] if self.plays else []

    def used(self) -> Used:
        self._asked += 1
        return Used(service_s=float(self._asked), batch_s=2.0 * self._asked)

    def unsettled(self) -> str:
        return ""

    def trouble(self) -> str:
        return self.ended

    async def close(self) -> None: ...


class Loop:
    """Stands for the loop: what the conductor says is in the kernel, and in the topics, at once."""

    def __init__(self, plan: Sequence[Condition], *, deaf: bool = False) -> None:
        self.backend, self.story = Paper(), Story(set())
        self.said: list[bool] = []
        self.trouble = ""
        self._deaf = deaf
        self._seq = 0
        self.conductor = Conductor(
            self.backend, self.story, Hurried(), plan, publish=self.say, trouble=lambda: self.trouble
        )

    def say(self, condition: Condition) -> None:
        self.said.append(condition.limited)
        self.happens(LIMIT if condition.limited and not self._deaf else NO_LIMIT)

    def happens(self, limits: Limits) -> None:
        self._seq += 1
        self.story.sample(samples.sample(self._seq, "n", pod_use=[], limits=limits, observed_ms=0))
        self.story.outcome(chains.outcome(self._seq, node="n", result="unchanged", observed_ms=0, acted_ms=0, age_ms=0))


async def test_each_condition_gets_its_batch_and_its_policy():
    """Limits are on in controlled time only."""
    loop = Loop(conditions(2.0, blocks=1, compared_s=1.0))
    loop.happens(NO_LIMIT)

    await loop.conductor.run()

    assert loop.backend.forms == ["none", "burstable", "besteffort", "besteffort"]
    assert loop.said == [False, False, False, True]
    assert [window.used for window in loop.conductor.ledger.windows] == [Used(service_s=1.0, batch_s=2.0)] * 4


async def test_all_conditions_of_a_block_are_measured_under_one_load():
    """Same seed, same spikes, as far as they go."""
    loop = Loop(conditions(6.0, blocks=1, compared_s=3.0))
    loop.happens(NO_LIMIT)

    await loop.conductor.run()
    spiky = [(load.steps_s, seed) for load, seed in loop.backend.plays if load.steps_s]
    first = spiky[0][0]

    assert len(spiky) == 4
    assert {seed for _, seed in spiky} == {1}
    assert all(steps[: len(first)] == first for steps, _ in spiky)


async def test_a_loop_that_never_answers_is_said_not_to_close():
    """Nothing is measured before the stream decides."""
    with pytest.raises(DemoError, match=r"^The loop did not close: no sample of node n after 60 s\.$"):
        await Loop(conditions(2.0, blocks=1)).conductor.run()


async def test_a_limit_that_does_not_come_is_said():
    """The policy asks for one, and none is in the kernel."""
    loop = Loop(conditions(2.0, blocks=1, compared_s=1.0), deaf=True)
    loop.happens(NO_LIMIT)

    with pytest.raises(DemoError, match="no limit in the kernel of node n"):
        await loop.conductor.run()


@pytest.mark.parametrize("where", ["backend", "stack"])
async def test_whatever_ends_is_named(where):
    """A process of the load, or of the stack."""
    loop = Loop(conditions(2.0, blocks=1))
    loop.happens(NO_LIMIT)
    if where == "backend":
        loop.backend.ended = "a batch process ended"
    else:
        loop.trouble = "the broker ended"

    with pytest.raises(DemoError, match=r"The demo stopped: (a batch process|the broker) ended"):
        await loop.conductor.run()
