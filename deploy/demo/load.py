"""The load of the latency-sensitive service: low, with spikes at random moments. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from slacktide.deploy.demo.ls_worker import REQUEST_CPU_MS

LOW_PART, HIGH_PART = 0.15, 0.45
"""Parts of the machine used between and during spikes."""
FIRST_STEP_S = (0.2, 0.8)
STEP_EVERY_S = (2.0, 2.7)
SPIKE_S = (0.5, 0.7)
ROOM_S = 1.5
"""Minimum time from a step to the end, so that each step can be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Phases of a time span, and where they step up."""

    phases: list[tuple[float, float]]
    """Pairs of seconds and part of the machine."""
    steps_s: list[float]
    """Offsets at which a spike begins."""

    def rates(self, capacity_milli: int, workers: int) -> list[tuple[float, float]]:
        """Return the phases as (seconds, requests per second) for each worker."""
        full_per_s = capacity_milli / REQUEST_CPU_MS / workers
        return [(seconds, part * full_per_s) for seconds, part in self.phases]


def spiky(seed: int, seconds: float, *, quiet_s: float = 0.0, tail_s: float = 10.0) -> Load:
    """Return a low base load with a spike of 0.5-0.7 s every 2.0-2.7 s, at a random phase.

    Spikes are shorter than the sample interval, as those of real services.

    Args:
        seed: equal seed, equal load.
        seconds: duration of the spikes.
        quiet_s: base load before, for settling.
        tail_s: base load afterwards.
    """
    dice = random.Random(seed)  # noqa: S311 a load, not a secret
    phases, steps = [(quiet_s, LOW_PART)], []
    at_s = dice.uniform(*FIRST_STEP_S)
    phases.append((at_s, LOW_PART))
    while at_s <= seconds - ROOM_S:
        steps.append(quiet_s + at_s)
        spike_s, every_s = dice.uniform(*SPIKE_S), dice.uniform(*STEP_EVERY_S)
        phases += [(spike_s, HIGH_PART), (every_s - spike_s, LOW_PART)]
        at_s += every_s
    phases.append((max(0.0, seconds - at_s) + tail_s, LOW_PART))
    return Load(phases=phases, steps_s=steps)


def steady(seconds: float) -> Load:
    """Return only the low base load."""
    return Load(phases=[(seconds, LOW_PART)], steps_s=[])
