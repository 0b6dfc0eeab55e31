"""Measures each condition of the demo, and computes its figures. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from statistics import median

from slacktide.deploy.demo.backend import Nodes, Served, Used
from slacktide.deploy.demo.conditions import NAMES, Condition, Name
from slacktide.deploy.demo.report import Decided, Reaction, Report, Share, Slowdown, Utilization
from slacktide.deploy.demo.story import Story
from slacktide.schemas.outcome import NodeOutcome

REACTION_MS_MAX = 3_000
"""A step without a lower limit by then, or before the next step, counts as missed."""
SECONDS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A load step of the service on a node; ``until_ms``: the next step or the end."""

    node: str
    at_ms: int
    until_ms: int


def percentile(values: Iterable[float], pct: float) -> float | None:
    """Return the smallest value that at least ``pct`` percent of the values do not exceed; None: no values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * pct / 100) - 1)] if ordered else None


def reactions_ms(steps: Iterable[Step], cuts: Sequence[NodeOutcome]) -> list[int]:
    """Return the time from each answered step to the first lower limit from a sample since the step."""
    answered = []
    for step in steps:
        until_ms = min(step.until_ms, step.at_ms + REACTION_MS_MAX)
        acts = [
            cut.acted_ms
            for cut in cuts
            if cut.node == step.node and cut.observed_ms >= step.at_ms and step.at_ms <= cut.acted_ms <= until_ms
        ]
        if acts:
            answered.append(min(acts) - step.at_ms)
    return answered


def slowdown(p99s_ms: Collection[float], alone_p99s_ms: Collection[float]) -> float | None:
    """Return the ratio of medians over the blocks, against the service alone.

    The median of ratios would be worse: one bad reference would spoil its block.
    """
    return median(p99s_ms) / median(alone_p99s_ms) if p99s_ms and alone_p99s_ms else None


class Latencies(list[float]):
    """Latencies of requests, milliseconds."""

    _p99: tuple[int, float | None] = (0, None)

    @property
    def p99_ms(self) -> float | None:
        """Return the p99 latency, cached until more arrive; None: no request."""
        if self._p99[0] != len(self):
            self._p99 = len(self), percentile(self, 99)
        return self._p99[1]


@dataclass(slots=True, kw_only=True)
class Window:
    """One condition's measured time, on the monotonic clock."""

    condition: Condition
    start_s: float
    end_s: float
    """Planned; the actual time if the demo was stopped."""
    used: Used | None = None
    """The use during the window; None: it has not ended."""
    latencies_ms: Latencies = field(default_factory=Latencies)


class Ledger:
    """The windows of one run."""

    def __init__(self, wall_offset_ms: float) -> None:
        """Create it empty; the offset converts monotonic milliseconds to the epoch's."""
        self.windows: list[Window] = []
        self._steps: list[Step] = []
        self._wall_offset_ms = wall_offset_ms
        self._seconds: dict[int, Latencies] = {}
        """The service's latencies by second of the scheduled arrival, since the epoch."""

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
        """Add requests to the window, and to the second, of their scheduled arrival."""
        for request in served:
            second = self.wall_ms(request.arrival_s) // 1000
            self._seconds.setdefault(second, Latencies()).append(request.latency_ms)
            for window in reversed(self.windows):
                if window.start_s <= request.arrival_s < window.end_s:
                    window.latencies_ms.append(request.latency_ms)
                    break
        while len(self._seconds) > SECONDS_MAX:
            del self._seconds[next(iter(self._seconds))]

    def second_p99_ms(self, at_ms: int) -> float | None:
        """Return the service's p99 latency in a second of the epoch; None: no request served."""
        found = self._seconds.get(at_ms // 1000)
        return None if found is None else found.p99_ms

    def p99s_ms(self) -> dict[Name, list[float]]:
        """Return the p99 latencies of each condition, one per completed block."""
        by_name: dict[Name, list[float]] = {}
        for window in self.windows:
            if window.used is not None and window.latencies_ms.p99_ms is not None:
                by_name.setdefault(window.condition.name, []).append(window.latencies_ms.p99_ms)
        return by_name

    def slowdowns(self) -> dict[Name, float]:
        """Return the slowdown of each condition relative to the service alone."""
        p99s_ms = self.p99s_ms()
        found = {name: slowdown(each_ms, p99s_ms.get("alone", [])) for name, each_ms in p99s_ms.items()}
        return {name: round(value, 3) for name, value in found.items() if value is not None}

    def reaction(self, cuts: Sequence[NodeOutcome], now_s: float) -> Reaction:
        """Return the reaction to completed steps."""
        due = [step for step in self._steps if step.until_ms <= self.wall_ms(now_s)]
        answered = reactions_ms(due, cuts)
        p50, p99 = (None if value is None else round(value) for value in (percentile(answered, n) for n in (50, 99)))
        return Reaction(p50=p50, p99=p99, n=len(answered), steps=len(due))

    def report(self, nodes: Nodes, story: Story, now_s: float) -> Report:
        """Return all figures so far."""
        cpus = nodes.machine.capacity_milli / 1000 * len(nodes.nodes)
        shares = {name: share for name in NAMES[nodes.scenario] if (share := self._share(name, cpus)) is not None}
        slowdowns, controlled = self.slowdowns(), self._ended("controlled")
        spans = [
            (self.wall_ms(window.start_s), self.wall_ms(min(now_s, window.end_s)))
            for window in self.windows
            if window.condition.name == "controlled"
        ]
        decided = [origin for span in spans for origin in story.decided(*span)]
        others = [milli for span in spans for milli in story.others_milli(*span)]
        return Report(
            mode=nodes.mode,
            scenario=nodes.scenario,
            reaction_ms=self.reaction(story.cuts, now_s),
            utilization=Utilization(
                ls_alone=shares["alone"].utilization if "alone" in shares else None,
                colocated=shares["controlled"].utilization if "controlled" in shares else None,
                others=round(sum(others) / len(others) / nodes.machine.capacity_milli, 4) if others else None,
            ),
            ls_slowdown=Slowdown(
                uncontrolled=slowdowns.get("uncontrolled"),
                weights=slowdowns.get("weights"),
                controlled=slowdowns.get("controlled"),
            ),
            batch_cpu_seconds=round(sum(used.batch_s for _, used in controlled), 3),
            decided_by=Decided(stream=decided.count("stream"), guard=decided.count("guard")),
            ls_p99_ms={name: round(median(each_ms), 3) for name, each_ms in self.p99s_ms().items()},
            shares=shares,
            ls_requests=sum(len(window.latencies_ms) for window in self.windows),
            applied=story.applied,
            controlled_seconds=round(sum(span_s for span_s, _ in controlled), 3),
        )

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

    def _ended(self, name: Name) -> list[tuple[float, Used]]:
        """Return the duration in seconds and the use of each completed window."""
        return [
            (window.end_s - window.start_s, window.used)
            for window in self.windows
            if window.condition.name == name and window.used is not None
        ]
