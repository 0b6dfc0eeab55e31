"""Takes samples at each tick, and ahead of it: when latency-sensitive pods stall, or their CPU use rises sharply.

Rates over a short time are inaccurate, so two samples need a distance. It doubles while early samples lead to no cut,
and is short again after a time without them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from slacktide.agents.clock import Clock
from slacktide.agents.node.metrics import AgentMetrics, Cause
from slacktide.agents.node.pressure import Kind, PressureWatch, Waited
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import LOOKS_MAX, LsPressure, NodeSample, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import RUNS_PERMILLE, step
from slacktide.streams.decisions.suppress.cpu_suppress import looser

RISE_PCT = 5
"""Smallest rise, in percent of the node. Smaller ones wait for the tick."""
USUAL_TIMES = 3
"""A rise must be this many times the usual change between two looks."""
USUAL_LOOKS = 16
"""The usual change is a moving average over about this many looks."""
SAMPLE_NS_MIN = 200_000_000
"""A sample closer than this to the previous one has no rate of its own."""


class Rise:
    """Compares the use between two looks with the newest sample."""

    def __init__(self) -> None:
        self._look: tuple[int, int] | None = None
        self._sample: tuple[int, int] | None = None
        self._seen_milli: float | None = None
        self._usual_milli = 0.0
        self.lately_milli: int | None = None

    def sampled(self, now_ns: int, used_ns: int) -> None:
        """Record a sample; ``used_ns``: total CPU time of these pods."""
        if self._sample is not None:
            if now_ns - self._sample[0] < SAMPLE_NS_MIN:
                return
            self._seen_milli = _milli(self._sample, (now_ns, used_ns))
        self._sample = now_ns, used_ns

    def looked(self, now_ns: int, used_ns: int, capacity_milli: int) -> bool:
        """Add a look. Return whether use rose far enough above the newest sample."""
        before, self._look = self._look, (now_ns, used_ns)
        if before is None:
            return False
        earlier_milli, lately_milli = self.lately_milli, min(max(0, round(_milli(before, self._look))), capacity_milli)
        self.lately_milli = lately_milli
        if self._seen_milli is None or earlier_milli is None:
            return False
        above_milli = lately_milli - self._seen_milli
        least_milli = max(capacity_milli * RISE_PCT / 100, USUAL_TIMES * self._usual_milli)
        # Not the difference to the sample: that lasts until the next sample, and would make the next rise look usual.
        self._usual_milli += (abs(lately_milli - earlier_milli) - self._usual_milli) / USUAL_LOOKS
        return above_milli >= least_milli


def _milli(before: tuple[int, int], now: tuple[int, int]) -> float:
    return (now[1] - before[1]) * 1000 / (now[0] - before[0])


EARLY: Final[frozenset[Cause]] = frozenset({"cpu", "memory", "use", "stall"})
"""Causes of samples ahead of their tick."""
RARE_MS, STALL_MS = 500, 90
"""Time between looks while best-effort pods do not run, and least time between looks at stalls, some 100 ms."""
APART_NS = 210_000_000
"""The sampler needs 200 ms, and a timer may fire early."""
PAUSE_NS_MAX = 32_000_000_000
CALM_NS = 2_000_000_000


class Early:
    """Paces early samples of one cause."""

    def __init__(self) -> None:
        self._pause_ns = APART_NS
        self._in_vain = 0
        self._asked_ns = self._taken_ns = -PAUSE_NS_MAX
        self._seq = self._cut_seq = -1

    def asked(self, now_ns: int, *, last_ns: int) -> int | None:
        """Return when to take the sample requested now; None: wait for the tick. ``last_ns``: of the newest sample."""
        if now_ns - self._asked_ns > max(CALM_NS, self._pause_ns):
            self._begin()
        self._asked_ns = now_ns
        at_ns = max(now_ns, last_ns + APART_NS)
        return None if at_ns < self._taken_ns + self._pause_ns else at_ns

    def took(self, now_ns: int, seq: int) -> None:
        """Record an early sample. From the second one on, the pause doubles until one leads to a cut."""
        self._taken_ns, self._seq = now_ns, seq
        self._in_vain += 1
        if seq == self._cut_seq:
            self._begin()
        elif self._in_vain > 1:
            self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)

    def cut(self, seq: int) -> None:
        """Record that this sample led to a cut. May be called before ``took``."""
        self._cut_seq = seq
        if seq == self._seq:
            self._begin()

    def _begin(self) -> None:
        self._pause_ns, self._in_vain = APART_NS, 0


def took_back(outcome: NodeOutcome) -> bool:
    """Return whether an outcome cut a limit of best-effort pods or evicted one."""
    if outcome.result != "applied":
        return False
    before, after = outcome.before, outcome.after
    return outcome.spent is not None or (before is not None and after is not None and looser(before, after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Counters that are read between two samples (looks)."""

    interval_ms: int
    """While best-effort pods run."""
    cpu_ns: Callable[[], int | None]
    """Total CPU time of latency-sensitive pods; None: unknown."""
    stall: Callable[[int], PressureLook | None] | None = None
    """Stalls of latency-sensitive cgroups since the previous look, by monotonic time in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadSettings:
    """What triggers a sample ahead of the tick; None: disabled."""

    pressure: Waited | None = None
    use: Looked | None = None


def reacts_to_pressure(threshold: ResourceThreshold) -> bool:
    """Return whether the policy cuts best-effort CPU by pressure."""
    return threshold.enable and threshold.cpu_suppress_signal != "usage"


class Ahead:
    """Watches between ticks, on the event loop."""

    def __init__(
        self,
        settings: AheadSettings,
        *,
        take: Callable[[Cause], None],
        capacity_milli: Callable[[], int | None],
        clock: Clock,
        metrics: AgentMetrics,
        by_pressure: Callable[[], bool] = lambda: False,
        kept: PressureGate | None = None,
    ) -> None:
        self._by_pressure = by_pressure
        self._kept = kept
        self._gate: LookedGate | None = None
        self._use = settings.use
        self._take = take
        self._capacity_milli = capacity_milli
        self._clock = clock
        self._metrics = metrics
        self._pressure = None if settings.pressure is None else PressureWatch(settings.pressure, self._pressed)
        self._paces: dict[Cause, Early] = {"cpu": Early(), "memory": Early(), "use": Early()}
        self._rise = Rise()
        self._best_effort_runs, self._stall_ns = True, -APART_NS
        self._last_ns = self._early_ns = -APART_NS
        self._timer: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Start watching."""
        self.renew()
        if self._use is not None:
            self._look_later(self._use)

    def renew(self) -> None:
        """Follow new and removed cgroups; called each second."""
        if self._pressure is not None and not self._closed and self._pressure.look():
            self._metrics.triggers(self._pressure.counts())

    async def tick(self, stop: asyncio.Event, interval_ms: int) -> None:
        """Sample at each multiple of the interval, unless one was just taken. Count missed ticks; do not catch up."""
        interval_ns = interval_ms * 1_000_000
        due_ns = self._clock.mono_ns()
        while not stop.is_set():
            if not self.covers_tick():
                self._take("tick")
            due_ns += interval_ns
            missed = max(0, (self._clock.mono_ns() - due_ns) // interval_ns)
            self._metrics.skipped.inc(missed)
            due_ns += missed * interval_ns
            wait_s = (due_ns - self._clock.mono_ns()) / 1e9
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, wait_s)):
                    await stop.wait()

    def covers_tick(self) -> bool:
        """Return whether a sample was just taken that replaces the tick now due."""
        return self._clock.mono_ns() - self._early_ns < APART_NS

    def lately_milli(self, cause: Cause) -> int | None:
        """Return the latency-sensitive CPU use between the last two looks, for a sample that its rise triggered."""
        return self._rise.lately_milli if cause == "use" else None

    def pressure(self) -> LsPressure | None:
        """Return the stalls for the sample taken now; None: the policy does not use them, or they are unknown."""
        return None if self._gate is None else self._gate.sampled()

    def gate(self) -> PressureGate | None:
        """Return the gate state to save for the next run; None: unchanged."""
        return None if self._gate is None else self._gate.kept()

    def sampled(self, cause: Cause, sample: NodeSample, now_ns: int) -> None:
        """Record that a sample was taken."""
        self._last_ns = now_ns
        milli = sum(one.cpu_milli or 0 for one in sample.pod_use if one.best_effort_group)
        # Pods that a cut has stopped run again as soon as it is lifted.
        cut = self._by_pressure() and (sample.limits is None or sample.limits.be_cfs_quota_us is not None)
        self._best_effort_runs = cut or milli > RUNS_PERMILLE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if cause == "stall":
            self._early_ns = now_ns
        elif cause in self._paces:
            self._early_ns = now_ns
            self._paces[cause].took(now_ns, sample.seq)
        if self._use is not None and (used_ns := self._use.cpu_ns()) is not None:
            self._rise.sampled(now_ns, used_ns)

    def concluded(self, outcome: NodeOutcome) -> None:
        """Record an outcome of a sample."""
        if took_back(outcome):
            for pace in self._paces.values():
                pace.cut(outcome.seq)

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        for timer in (self._timer, self._next_look):
            if timer is not None:
                timer.cancel()
        if self._pressure is not None:
            self._pressure.close()

    def _pressed(self, kind: Kind) -> None:
        self._metrics.pressed(kind)
        self._ask(kind)

    def _look_later(self, use: Looked) -> None:
        # While the gate is closed, they do not run because of it: the proof needs two looks.
        often = self._best_effort_runs or (self._gate is not None and self._gate.gate.closed)
        wait_ms = use.interval_ms if often else max(use.interval_ms, RARE_MS)
        self._next_look = asyncio.get_running_loop().call_later(wait_ms / 1000, self._look, use)

    def _look(self, use: Looked) -> None:
        self._look_later(use)
        used_ns, capacity_milli = use.cpu_ns(), self._capacity_milli()
        if used_ns is None:
            self._rise = Rise()
        elif capacity_milli and self._rise.looked(self._clock.mono_ns(), used_ns, capacity_milli):
            self._ask("use")
        # Read stalls only if the policy uses pressure, since reading costs CPU.
        if use.stall is None or not self._by_pressure():
            self._kept, self._gate = self.gate() or self._kept, None
            return
        now_ns = self._clock.mono_ns()
        if now_ns < self._stall_ns + STALL_MS * 1_000_000:
            return
        self._stall_ns = now_ns
        look = use.stall(now_ns)
        if look is None:
            return
        if self._gate is None:
            self._gate = LookedGate(self._kept)
        if self._gate.looked(look) and self._timer is None:
            at_ns = max(now_ns, self._last_ns + APART_NS)
            self._timer = asyncio.get_running_loop().call_later((at_ns - now_ns) / 1e9, self._take, "stall")

    def _ask(self, cause: Cause) -> None:
        if self._timer is not None or self._closed:
            return
        now_ns = self._clock.mono_ns()
        # A rise has its own rate. Other samples have only the rate since the previous sample.
        last_ns = self._early_ns if cause == "use" else self._last_ns
        at_ns = self._paces[cause].asked(now_ns, last_ns=last_ns)
        if at_ns is not None:
            self._timer = asyncio.get_running_loop().call_later((at_ns - now_ns) / 1e9, self._take, cause)


class LookedGate:
    """Collects looks for the next sample. Pure."""

    def __init__(self, gate: PressureGate | None = None) -> None:
        self._before = self.gate = gate or PressureGate()
        self._looks: list[PressureLook] = []

    def looked(self, look: PressureLook) -> bool:
        """Add a look. Return whether the gate closed or opened, so that a sample is due."""
        if len(self._looks) == LOOKS_MAX:
            self._before = step(self._before, self._looks.pop(0)).gate
        self._looks.append(look)
        before, self.gate = self.gate, step(self.gate, look).gate
        return before.closed != self.gate.closed

    def sampled(self) -> LsPressure:
        """Return the gate at the previous sample and the looks since. Starts the next interval."""
        found = LsPressure(gate=self._before, looks=self._looks)
        self._before, self._looks = self.gate, []
        return found

    def kept(self) -> PressureGate:
        """Return the state for the next run: baseline and pause. A cut does not outlive its run."""
        gate = self.gate
        return PressureGate(base_permille=gate.base_permille, pause_ms=gate.pause_ms, wait_ms=gate.wait_ms)
