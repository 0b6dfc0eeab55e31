"""The gate of rule ``cpu_pressure`` between two samples. It uses each look at once; the next sample carries it."""

from __future__ import annotations

from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.suppress.cpu_pressure import step


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
