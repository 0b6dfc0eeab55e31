"""Whether a session still owns its partitions, and whether what it publishes is current."""

from __future__ import annotations

import asyncio

from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.streams.engine.ticking import Ticking
from slacktide.streams.worker import Worker

FRESH_S = 5.0
BEAT_S = 0.25
JOIN_SESSIONS = 5
"""A rebalance takes a session timeout or two. After so many the worker connects again."""


class Liveness:
    """Detects a process that stood still, a group that assigns nothing, and late answers.

    It fills ``health``. A worker that was silent for ``session_timeout_s`` has lost its partitions.
    """

    def __init__(self, worker: Worker, ticking: Ticking, health: Health, session_timeout_s: float) -> None:
        self._worker, self._ticking, self._health = worker, ticking, health
        self._session_timeout_s = session_timeout_s
        self._beat_s = 0.0
        self._joining_since_s: float | None = None
        """When the group began to owe this worker its partitions."""
        self._owns: bool | None = None
        """None: the group has not assigned anything yet."""
        self._answered_at_s: float | None = None

    def begin(self) -> None:
        """Start the clocks: the worker joins the group."""
        self._beat_s = self._joining_since_s = asyncio.get_running_loop().time()

    def joining(self) -> None:
        """Note that the group rebalances."""
        self._joining_since_s = asyncio.get_running_loop().time()

    def assigned(self, *, owns: bool) -> None:
        """Note what the group assigned: whether any partition."""
        self._joining_since_s, self._owns = None, owns

    def answered(self) -> None:
        """Note that samples were answered."""
        self._answered_at_s = asyncio.get_running_loop().time()
        self._health.not_fresh = self._late()

    def check_awake(self) -> None:
        """Check that the process did not stand still for a session: it would be the last to learn of its loss.

        Raises:
            LogError: it did. Other workers have answered what it fetched, and it must join again.
        """
        still_s = asyncio.get_running_loop().time() - self._beat_s
        if still_s > self._session_timeout_s:
            raise LogError(
                f"the worker was blocked for {still_s:.1f} s; other workers may have taken over its partitions"
            )

    async def beat(self) -> None:
        """Record that the process runs, until cancelled."""
        while True:
            self.check_awake()
            self._beat_s = asyncio.get_running_loop().time()
            await asyncio.sleep(BEAT_S)

    async def watch(self) -> None:
        """Update the health each second, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            self._health.not_fresh = self._late()
            self._check_joined()

    def _check_joined(self) -> None:
        """Check that the group does not owe partitions for much longer than a rebalance takes.

        Raises:
            LogError: it does.
        """
        since_s, most_s = self._joining_since_s, JOIN_SESSIONS * self._session_timeout_s
        if since_s is not None and asyncio.get_running_loop().time() - since_s > most_s:
            raise LogError(f"the group assigned no partitions within {most_s:g} s")

    def _late(self) -> str:
        """Why the published figures may be stale; "": they are not."""
        if self._worker.policies.refused:
            return f"a policy is rejected: {self._worker.policies.refused}"
        if self._owns is False:
            return ""  # other workers own all partitions
        if self._ticking.alarm:
            return self._ticking.alarm
        if self._answered_at_s is None:
            return "no sample answered yet"
        silent_s = asyncio.get_running_loop().time() - self._answered_at_s
        return f"no sample answered for {silent_s:.0f} s" if silent_s > FRESH_S else ""
