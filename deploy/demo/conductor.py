"""Runs the demo's conditions and measures each."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from slacktide.agents.clock import Clock
from slacktide.deploy.demo.backend import DemoError, Used
from slacktide.deploy.demo.conditions import Condition, Load, spiky, steady
from slacktide.deploy.demo.figures import Ledger
from slacktide.deploy.demo.report import Report
from slacktide.deploy.demo.story import Story
from slacktide.deploy.demo.workload import Backend

POLL_S = 0.2
LEAD_S = 0.4
"""Delay from publishing a load to its start: workers poll a few times a second."""
ANSWERED_WITHIN_S = 60.0
"""Timeout for starting everything, on a busy machine."""
SETTLED_WITHIN_S = 40.0
DRAIN_S = 0.8
"""Time to serve the last requests and to read the last outcomes."""
STEADY_S = 3_600.0
OVERHEAD_S = 2.0
"""Approximate overhead per condition."""


class Conductor:
    """Runs the conditions in order; its state and the figures are available at any time."""

    def __init__(
        self,
        backend: Backend,
        story: Story,
        clock: Clock,
        plan: Sequence[Condition],
        *,
        publish: Callable[[Condition], None],
        trouble: Callable[[], str],
    ) -> None:
        """Create it; the backend is not opened yet.

        ``publish`` publishes pods and policy of a condition. ``trouble`` returns which process of the stack ended,
        or "".
        """
        self.backend = backend
        self.story = story
        self.clock = clock
        self.condition: Condition | None = None
        """None: the processes are starting."""
        self.stage = "starting"
        """The pending step; "" while measuring."""
        self.ledger = Ledger(clock.wall_ms() - clock.mono_ns() / 1e6)
        self._plan = plan
        self._spans_s = [condition.settle_s + condition.measured_s + OVERHEAD_S for condition in plan]
        self._publish = publish
        self._trouble = trouble

    @property
    def takes_s(self) -> float:
        """Return the approximate duration of the demo."""
        return sum(self._spans_s)

    @property
    def done_part(self) -> float:
        """Return the progress of the demo, 0 to 1."""
        return min(1.0, (sum(self._spans_s[: len(self.ledger.windows)]) - self.left_s) / self.takes_s)

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self.clock.mono_ns() / 1e9

    @property
    def left_s(self) -> float:
        """Return the seconds left of the current measurement; 0: none runs."""
        windows = self.ledger.windows
        return max(0.0, windows[-1].end_s - self.now_s()) if windows and windows[-1].used is None else 0.0

    def report(self) -> Report:
        """Return the figures so far."""
        return self.ledger.report(self.backend, self.story, self.now_s())

    async def run(self) -> None:
        """Run all conditions. Raises DemoError if a process ended, or a change did not reach the kernel in time."""
        await self._wait(self._unanswered, ANSWERED_WITHIN_S)
        for condition in self._plan:
            await self._settle(condition)
            await self._measure(condition)
        self.stage = "ending"
        await self._pass(DRAIN_S)

    async def _settle(self, condition: Condition) -> None:
        """Change the condition, and wait until the change reaches the kernel."""
        self.condition, self.stage = condition, "settling"
        self.story.condition = condition.name
        self._play({name: steady(STEADY_S) for name in self.backend.nodes}, condition.seed)
        await self.backend.enter(condition.batch)
        self._publish(condition)
        await self._pass(condition.settle_s)
        await self._wait(lambda: self._unsettled(condition), SETTLED_WITHIN_S)

    async def _wait(self, missing: Callable[[], str], within_s: float) -> None:
        begun_s = self.now_s()
        while what := missing():
            self.stage = f"waiting: {what}"
            if self.now_s() - begun_s > within_s:
                raise DemoError(f"The loop did not close: {what} after {within_s:.0f} s.")
            await self._pass(POLL_S)

    def _unanswered(self) -> str:
        """Return which node has no samples or no decisions by the stream; "": all have both."""
        for name in self.backend.nodes:
            story = self.story.nodes.get(name)
            if story is None or not story.points:
                return f"no sample of node {name}"
            if story.last is None or story.last.origin != "stream":
                return f"no decision of the stream for node {name}"
        return ""

    def _unsettled(self, condition: Condition) -> str:
        """Return why the condition is not in force, by the nodes' newest samples and cgroups; "": it is."""
        for name in self.backend.nodes:
            limited = self.story.nodes[name].points[-1].allowance_milli is not None
            if condition.limited and not limited:
                return f"no limit in the kernel of node {name}"
            if limited and not condition.limited:
                return f"a limit remains in the kernel of node {name}, but the policy has none"
        return self.backend.unsettled()

    async def _measure(self, condition: Condition) -> None:
        loads = {
            name: spiky(condition.seed * 1_000 + number, condition.measured_s)
            for number, name in enumerate(self.backend.nodes)
        }
        start_s = self._play(loads, condition.seed)
        await self._pass(start_s - self.now_s())
        before = self.backend.used()
        self.stage = ""
        window = self.ledger.begin(condition, start_s)
        if condition.limited:
            for node, load in loads.items():
                self.ledger.expect(node, [start_s + offset_s for offset_s in load.steps_s], window.end_s)
        try:
            await self._pass(window.end_s - self.now_s())
        finally:  # also if the demo is stopped meanwhile
            after = self.backend.used()
            window.end_s = min(window.end_s, self.now_s())
            window.used = Used(
                service_s=after.service_s - before.service_s,
                batch_s=after.batch_s - before.batch_s,
                service_mem_bytes=after.service_mem_bytes,
            )

    def _play(self, loads: Mapping[str, Load], seed: int) -> float:
        start_s = self.now_s() + LEAD_S
        self.backend.play(loads, seed, start_s)
        return start_s

    async def _pass(self, seconds: float) -> None:
        """Wait, reading served requests and checking processes."""
        until_s = self.now_s() + seconds
        while True:
            self.ledger.receive(self.backend.served())
            if trouble := self.backend.trouble() or self._trouble():
                raise DemoError(f"The demo stopped: {trouble}.")
            left_s = until_s - self.now_s()
            if left_s <= 0:
                return
            await asyncio.sleep(min(POLL_S, left_s))
