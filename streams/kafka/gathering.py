"""Turns that are not too close together: samples that come one by one share what a turn costs."""

from __future__ import annotations

import asyncio

GATHER_S = 0.02


class Gathering:
    """A turn is a fetch, its answers, and their way into the log: a millisecond or two, for one sample or fifty.

    A sample that comes alone does not wait, nor does a worker that is behind: its turns take longer than this.
    """

    def __init__(self) -> None:
        self._began_s = 0.0

    async def turn(self) -> None:
        """Wait until the next turn may begin."""
        wait_s = self._began_s + GATHER_S - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def began(self) -> None:
        """Something was fetched."""
        self._began_s = asyncio.get_running_loop().time()
