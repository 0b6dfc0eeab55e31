"""What the service is asked to do while the limit's reaction is measured. Pure."""

import random
from dataclasses import dataclass

BASE_PART = 0.05
STAIR_PARTS = (0.15, 0.25, 0.35)
"""Each step takes a tenth of the machine; together with the system's own use they stay below the ceiling."""
SPIKE_PART = 0.65
SPIKE_PROCESSES_PER_CPU = 3
"""So that the service stalls as one with many threads does: they wait for each other, too."""
STAIR_S = (1.3, 2.1)
PLATEAU_S = 5.2
RECOVERY_S = (3.8, 4.8)
"""The limit rises by a tenth of the machine a second: about this long until a step down is forgotten."""
SETTLED_S = 2.0
"""The end of a plateau, whose median is the limit's final value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Phases as (seconds, part of the machine), where load steps up, and the plateaus, as offsets in seconds."""

    phases: list[tuple[float, float]]
    steps_s: list[float]
    processes_per_cpu: int = 1
    plateaus_s: list[tuple[float, float]]

    @property
    def seconds(self) -> float:
        """From start to end."""
        return sum(seconds for seconds, _ in self.phases)

    def part_at(self, offset_s: float) -> float:
        """The part of the machine that is asked for; nothing after the end."""
        for seconds, part in self.phases:
            offset_s -= seconds
            if offset_s < 0:
                return part
        return 0.0


def stairs(seed: int, times: int) -> Plan:
    """Three steps up at random moments and down again, so many times; the last step of every other is held."""
    dice = random.Random(seed)
    phases, steps, plateaus = [(RECOVERY_S[1], BASE_PART)], [], []
    for turn in range(times):
        for part in STAIR_PARTS:
            steps.append(sum(seconds for seconds, _ in phases))
            phases.append((dice.uniform(*STAIR_S), part))
        if turn % 2 == 0:
            phases[-1] = PLATEAU_S, STAIR_PARTS[-1]
            plateaus.append((steps[-1], steps[-1] + PLATEAU_S))
        phases.append((dice.uniform(*RECOVERY_S), BASE_PART))
    return Plan(phases=phases, steps_s=steps, plateaus_s=plateaus)


def spikes(seed: int, times: int) -> Plan:
    """Steps up to more than the limit can give back and down again, at random moments."""
    dice = random.Random(seed)
    phases, steps = [(RECOVERY_S[1], BASE_PART)], []
    for _ in range(times):
        steps.append(sum(seconds for seconds, _ in phases))
        phases += [(dice.uniform(*STAIR_S), SPIKE_PART), (dice.uniform(*RECOVERY_S), BASE_PART)]
    return Plan(phases=phases, steps_s=steps, plateaus_s=[], processes_per_cpu=SPIKE_PROCESSES_PER_CPU)


def steady(part: float, seconds: float, *, processes_per_cpu: int = 1) -> Plan:
    """The same load all the time."""
    return Plan(phases=[(seconds, part)], steps_s=[], plateaus_s=[], processes_per_cpu=processes_per_cpu)


def wobble(seed: int, seconds: float) -> Plan:
    """Up and down, and long enough in between for some samples to change nothing."""
    dice = random.Random(seed)
    phases: list[tuple[float, float]] = []
    while sum(length for length, _ in phases) < seconds:
        phases += [(dice.uniform(1.5, 2.5), 0.20), (dice.uniform(2.5, 3.5), 0.05)]
    return Plan(phases=phases, steps_s=[], plateaus_s=[])
