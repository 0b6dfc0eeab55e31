"""The demo's conditions, their order and duration, and the load of the service. Pure."""

import random
from dataclasses import dataclass
from typing import Literal

from slacktide.deploy.demo.ls_worker import REQUEST_CPU_MS
from slacktide.deploy.demo.pods import Form

BLOCKS = 3
COMPARED_S = 5.0
SETTLE_MEMORY_S = 6.0
"""Time for batch work to fill the memory, or for the service to reload its data."""
Name = Literal["alone", "uncontrolled", "weights", "controlled"]
Scenario = Literal["cpu", "memory"]
NAMES: dict[Scenario, tuple[Name, ...]] = {
    "cpu": ("alone", "uncontrolled", "weights", "controlled"),
    "memory": ("alone", "weights", "controlled"),
}
"""The conditions of each scenario, in order."""
SETTLE_S: dict[Name, float] = {"alone": 1.5, "uncontrolled": 1.5, "weights": 1.5, "controlled": 3.0}
"""Under control, time for the first limit and its first steps."""
MEANINGS: dict[Name, str] = {
    "alone": "no batch work",
    "uncontrolled": "batch as ordinary Burstable pods",
    "weights": "batch best-effort, no limit",
    "controlled": "idle best-effort, limited by Slacktide",
}
LOW_PART, HIGH_PART = 0.15, 0.45
"""Parts of the machine used between and during spikes."""
FIRST_STEP_S = (0.2, 0.8)
STEP_EVERY_S = (2.0, 2.7)
SPIKE_S = (0.5, 0.7)
ROOM_S = 1.5
"""Minimum time from a step to the end, so that each step can be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One phase of the demo: settling without measurement, then measurement."""

    name: Name
    block: int
    settle_s: float
    measured_s: float
    scenario: Scenario = "cpu"

    @property
    def seed(self) -> int:
        """Return the block's seed: all its conditions have the same load."""
        return 1 + self.block

    @property
    def limited(self) -> bool:
        """Return whether the policy limits best-effort work."""
        return self.name == "controlled"

    @property
    def batch(self) -> Form:
        """Return how the batch work runs."""
        if self.name == "alone":
            return "none"
        if self.name == "weights" and self.scenario == "memory":
            return "plain"
        return "burstable" if self.name == "uncontrolled" else "besteffort"


def conditions(
    controlled_s: float, blocks: int = BLOCKS, compared_s: float = COMPARED_S, scenario: Scenario = "cpu"
) -> list[Condition]:
    """Return blocks of all conditions, so that drift of the machine affects all conditions equally.

    The controlled time is divided among the blocks. Each other condition takes ``compared_s`` per block.
    """
    return [
        Condition(
            name=name,
            block=block,
            settle_s=SETTLE_MEMORY_S if scenario == "memory" else SETTLE_S[name],
            measured_s=controlled_s / blocks if name == "controlled" else compared_s,
            scenario=scenario,
        )
        for block in range(blocks)
        for name in NAMES[scenario]
    ]


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
    """Return a low base load with a spike of 0.5-0.7 s every 2.0-2.7 s, at a random phase, for some seconds.

    Spikes are shorter than the sample interval, as those of real services. Base load of ``quiet_s`` before is for
    settling; ``tail_s`` is base load afterwards. Equal seeds give equal loads.
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
