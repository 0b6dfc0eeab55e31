"""The shapes of a service's load over one phase. Pure."""

import math

from slacktide.deploy.demo import conditions

LOW_PART, HIGH_PART = 0.10, 0.45
STEP_S = 0.5


def shape(block: int, seconds: float, lead_s: float) -> list[tuple[float, float]]:
    """Spikes in odd blocks, and in even ones a day that lasts as long as the phase.

    Args:
        block: equal block, equal load.
        seconds: how long is measured.
        lead_s: steady load before that.

    Returns:
        Pairs of seconds and the part of the machine that the service shall use.

    """
    if block % 2:
        return conditions.spiky(block, seconds, quiet_s=lead_s, tail_s=0.0).phases
    steps = max(1, round(seconds / STEP_S))
    middle, half = (HIGH_PART + LOW_PART) / 2, (HIGH_PART - LOW_PART) / 2
    day = [(seconds / steps, middle - half * math.cos(2 * math.pi * (step + 0.5) / steps)) for step in range(steps)]
    return [(lead_s, LOW_PART), *day]
