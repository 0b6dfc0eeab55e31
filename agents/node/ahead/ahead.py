"""Takes samples ahead of the tick: when latency-sensitive pods stall, or their CPU use rises sharply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from slacktide.agents.clock import Clock
from slacktide.agents.metrics import AgentMetrics, Cause
from slacktide.agents.node.ahead.early import APART_NS, Early, took_back
from slacktide.agents.node.ahead.pressure import Kind, PressureWatch, Waited
from slacktide.agents.node.ahead.rise import Rise
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import step


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Counters that are read between two samples (looks)."""

    interval_ms: int
    cpu_ns: Callable[[], int | None]
    """Total CPU time of latency-sensitive pods; None: unknown."""
    stall: Callable[[int], PressureLook | None] | None = None
    """Stalls of latency-sensitive cgroups since the previous look, by monotonic time in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadSettings:
    """What triggers a sample ahead of the tick; None: disabled."""

    pressure: Waited | None = None
    use: Looked | None = None


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

    def sampled(self, cause: Cause, seq: int, now_ns: int) -> None:
        """Record that a sample was taken."""
        self._last_ns = now_ns
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if cause == "stall":
            self._early_ns = now_ns
        elif cause in self._paces:
            self._early_ns = now_ns
            self._paces[cause].took(now_ns, seq)
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
        self._next_look = asyncio.get_running_loop().call_later(use.interval_ms / 1000, self._look, use)

    def _look(self, use: Looked) -> None:
        self._look_later(use)
        used_ns, capacity_milli = use.cpu_ns(), self._capacity_milli()
        if used_ns is None:
            self._rise = Rise()
        elif capacity_milli and self._rise.looked(self._clock.mono_ns(), used_ns, capacity_milli):
            self._ask("use")
        self._look_at_stall(use, capacity_milli)

    def _look_at_stall(self, use: Looked, capacity_milli: int | None) -> None:
        """Read stalls, only if the policy uses pressure, since reading costs CPU."""
        if use.stall is None or not capacity_milli or not self._by_pressure():
            self._kept, self._gate = self.gate() or self._kept, None
            return
        now_ns = self._clock.mono_ns()
        look = use.stall(now_ns)
        if look is None:
            return
        if self._gate is None:
            self._gate = LookedGate(self._kept)
        if self._gate.looked(look, capacity_milli) and self._timer is None:
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

    def looked(self, look: PressureLook, capacity_milli: int) -> bool:
        """Add a look. Return whether the gate closed or opened, so that a sample is due."""
        if len(self._looks) == LOOKS_MAX:
            self._before = step(self._before, self._looks.pop(0), capacity_milli).gate
        self._looks.append(look)
        before, self.gate = self.gate, step(self.gate, look, capacity_milli).gate
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
