"""Measures each condition, and computes figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from slacktide.deploy.demo.backend import Backend, Served, Used
from slacktide.deploy.demo.conditions import NAMES, Condition, Name
from slacktide.deploy.demo.figures import Step, percentile, reactions_ms, slowdown
from slacktide.deploy.demo.report import Decided, Reaction, Report, Share, Slowdown, Utilization
from slacktide.deploy.demo.story import Story
from slacktide.schemas.outcome import NodeOutcome


@dataclass(slots=True, kw_only=True)
class Window:
    """One condition's measured time, on the monotonic clock."""

    condition: Condition
    start_s: float
    end_s: float
    """Planned; the actual time if the demo was stopped."""
    used: Used | None = None
    """The use during the window; None: it has not ended."""
    latencies_ms: list[float] = field(default_factory=list)
    _p99: tuple[int, float | None] = (0, None)

    @property
    def p99_ms(self) -> float | None:
        """Return the p99 latency of its requests, cached until more arrive."""
        if self._p99[0] != len(self.latencies_ms):
            self._p99 = len(self.latencies_ms), percentile(self.latencies_ms, 99)
        return self._p99[1]


class Ledger:
    """The windows of one run."""

    def __init__(self, wall_offset_ms: float) -> None:
        """Create it empty; the offset converts monotonic milliseconds to the epoch's."""
        self.windows: list[Window] = []
        self._steps: list[Step] = []
        self._wall_offset_ms = wall_offset_ms

    def wall_ms(self, mono_s: float) -> int:
        """Convert an instant of the monotonic clock to epoch milliseconds."""
        return round(mono_s * 1000 + self._wall_offset_ms)

    def begin(self, condition: Condition, start_s: float) -> Window:
        """Begin a measurement."""
        window = Window(condition=condition, start_s=start_s, end_s=start_s + condition.measured_s)
        self.windows.append(window)
        return window

    def expect(self, node: str, steps_s: Sequence[float], until_s: float) -> None:
        """Add load steps of a node; each can be answered until the next one."""
        for step_s, next_s in pairwise([*steps_s, until_s]):
            self._steps.append(Step(node=node, at_ms=self.wall_ms(step_s), until_ms=self.wall_ms(next_s)))

    def receive(self, served: Iterable[Served]) -> None:
        """Add requests to the window of their scheduled arrival."""
        for request in served:
            for window in reversed(self.windows):
                if window.start_s <= request.arrival_s < window.end_s:
                    window.latencies_ms.append(request.latency_ms)
                    break

    def p99_ms(self) -> Mapping[Name, float]:
        """Return the median over the blocks of each condition."""
        return {name: round(median(p99s_ms), 3) for name, p99s_ms in self._p99s_ms().items()}

    def slowdowns(self) -> Mapping[Name, float]:
        """Return the slowdown of each condition relative to the service alone."""
        p99s_ms = self._p99s_ms()
        found = {name: slowdown(each_ms, p99s_ms.get("alone", [])) for name, each_ms in p99s_ms.items()}
        return {name: round(value, 3) for name, value in found.items() if value is not None}

    def reaction(self, cuts: Sequence[NodeOutcome], now_s: float) -> Reaction:
        """Return the reaction to completed steps."""
        due = [step for step in self._steps if step.until_ms <= self.wall_ms(now_s)]
        answered = reactions_ms(due, cuts)
        p50, p99 = percentile(answered, 50), percentile(answered, 99)
        return Reaction(
            p50=None if p50 is None else round(p50),
            p99=None if p99 is None else round(p99),
            n=len(answered),
            steps=len(due),
        )

    def decided(self, story: Story, now_s: float) -> Decided:
        """Count the decisions by origin during controlled time."""
        counts = {"stream": 0, "guard": 0}
        for window in self._of("controlled"):
            span = self.wall_ms(window.start_s), self.wall_ms(min(now_s, window.end_s))
            for (origin, _), count in story.decided(*span).items():
                counts[origin] += count
        return Decided(stream=counts["stream"], guard=counts["guard"])

    def report(self, backend: Backend, story: Story, now_s: float) -> Report:
        """Return all figures so far."""
        slowdowns = self.slowdowns()
        controlled = self._ended("controlled")
        cpus = backend.machine.capacity_milli / 1000 * len(backend.nodes)
        spans = [(self.wall_ms(window.start_s), self.wall_ms(window.end_s)) for window in self._of("controlled")]
        seen = [milli for span in spans for milli in story.others_milli(*span)]
        alone, colocated = self._share("alone", cpus), self._share("controlled", cpus)
        return Report(
            mode=backend.mode,
            scenario=backend.scenario,
            reaction_ms=self.reaction(story.cuts, now_s),
            utilization=Utilization(
                ls_alone=None if alone is None else alone.utilization,
                colocated=None if colocated is None else colocated.utilization,
                others=round(sum(seen) / len(seen) / backend.machine.capacity_milli, 4) if seen else None,
            ),
            ls_slowdown=Slowdown(
                uncontrolled=slowdowns.get("uncontrolled"),
                weights=slowdowns.get("weights"),
                controlled=slowdowns.get("controlled"),
            ),
            batch_cpu_seconds=round(sum(used.batch_s for _, used in controlled), 3),
            decided_by=self.decided(story, now_s),
            ls_p99_ms=dict(self.p99_ms()),
            shares={name: share for name in NAMES[backend.scenario] if (share := self._share(name, cpus)) is not None},
            ls_requests=sum(len(window.latencies_ms) for window in self.windows),
            applied=story.applied(),
            controlled_seconds=round(sum(span_s for span_s, _ in controlled), 3),
        )

    def _p99s_ms(self) -> dict[Name, list[float]]:
        by_name: dict[Name, list[float]] = {}
        for window in self.windows:
            if window.used is not None and window.p99_ms is not None:
                by_name.setdefault(window.condition.name, []).append(window.p99_ms)
        return by_name

    def _share(self, name: Name, cpus: float) -> Share | None:
        """Compute the pods' use in a condition, on nodes with this many CPUs in total; None: no window is complete."""
        ended = self._ended(name)
        span_s = sum(span_s for span_s, _ in ended)
        if not span_s:
            return None
        batch_s = sum(used.batch_s for _, used in ended)
        both_s = batch_s + sum(used.service_s for _, used in ended)
        held = [used.service_mem_bytes for _, used in ended if used.service_mem_bytes is not None]
        return Share(
            utilization=round(both_s / span_s / cpus, 4),
            batch_cpus=round(batch_s / span_s, 3),
            service_mem_bytes=round(median(held)) if held else None,
        )

    def _of(self, name: Name) -> list[Window]:
        return [window for window in self.windows if window.condition.name == name]

    def _ended(self, name: Name) -> list[tuple[float, Used]]:
        """Return the duration in seconds and the use of each completed window."""
        return [(window.end_s - window.start_s, window.used) for window in self._of(name) if window.used is not None]
