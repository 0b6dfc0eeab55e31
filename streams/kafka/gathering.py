"""Turns that are not too close together: samples that come one by one share what a turn costs."""

from __future__ import annotations

import asyncio
import math

GATHER_S = 0.1
FEW = 32
"""Of samples: after a turn of more there may be as many again, and who is behind does not wait."""


class Gathering:
    """A turn is a fetch, its answers, and their way into the log: milliseconds, for one sample or for fifty.

    A sample that comes after a while without any, and the one behind it, do not wait; where there are many nodes each
    waits a tenth of its second at most, and at a hundred the worker costs half.
    """

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._may_s = 0.0

    async def turn(self) -> None:
        """Wait until the next turn may begin."""
        wait_s = self._may_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def began(self, samples: int) -> None:
        """So many were fetched."""
        before_s, self._began_s = self._began_s, asyncio.get_running_loop().time()
        crowded = self._began_s < before_s + 2 * GATHER_S
        self._may_s = self._began_s + GATHER_S if crowded and samples <= FEW else 0.0
