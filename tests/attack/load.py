"""What virtual nodes do meanwhile: their services use more or less."""

import random
import time
from collections.abc import Sequence

from testbed.one_machine import VirtualNode

EACH_S = 0.25
SERVICE_MILLI = 200, 6_000


class Load:
    """Moved by whoever waits."""

    def __init__(self, nodes: Sequence[VirtualNode], dice: random.Random) -> None:
        self._nodes, self._dice = nodes, dice

    def wait(self, seconds: float) -> None:
        """One service after the other changes its use, until the time is over."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._dice.choice(self._nodes).service.demand_milli = self._dice.randrange(*SERVICE_MILLI)
            time.sleep(min(EACH_S, left_s))
