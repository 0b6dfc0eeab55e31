"""The gate of ``cpu_pressure`` between two samples: each look is taken at once, and goes into the next sample."""

from __future__ import annotations

from slacktide.schemas.sample import LOOKS_MAX, LsPressure, PressureGate, PressureLook
from slacktide.streams.decisions.cpu_pressure import step


class LookedGate:
    """Pure: looks in, what a sample carries out.

    Args:
        gate: as an earlier run left it.

    """

    def __init__(self, gate: PressureGate | None = None) -> None:
        self._before = self.gate = gate or PressureGate()
        self._looks: list[PressureLook] = []

    def looked(self, look: PressureLook, capacity_milli: int) -> bool:
        """Take a look.

        Returns:
            Whether the gate closed or opened: a sample is due.

        """
        if len(self._looks) == LOOKS_MAX:
            self._before = step(self._before, self._looks.pop(0), capacity_milli).gate
        self._looks.append(look)
        before, self.gate = self.gate, step(self.gate, look, capacity_milli).gate
        return before.closed != self.gate.closed

    def sampled(self) -> LsPressure:
        """The gate at the sample before, and the looks since; the next sample begins where this one ends."""
        found = LsPressure(gate=self._before, looks=self._looks)
        self._before, self._looks = self.gate, []
        return found

    def kept(self) -> PressureGate:
        """What the next run shall know: the baseline and the pause. A cut ends with the run that made it."""
        gate = self.gate
        return PressureGate(base_permille=gate.base_permille, pause_ms=gate.pause_ms, wait_ms=gate.wait_ms)
