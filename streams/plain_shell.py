"""The worker on aiokafka alone: fetch, answer, commit. The yardstick for the Faust shell, behind the same ``run``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slacktide.schemas.health import Health
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.kafka import Group
from slacktide.streams.shell import Session, ShellSettings, keep_connected
from slacktide.streams.worker import Worker

COMMIT_EVERY_S = 1.0


async def run(
    worker: Worker, settings: ShellSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]
) -> None:
    """Answer samples until told to stop.

    Args:
        worker: decides.
        settings: of the connection.
        stop: set: finish the batch at hand, commit, leave the group, return.
        health: filled here.
        now_ms: wall clock, UTC epoch milliseconds.

    Raises:
        Exception: a fault of the program; trouble with the log is waited out.

    """

    async def session() -> None:
        async with Session(worker, settings, health, now_ms) as connected:
            await _Member(connected, settings).run(stop)

    await keep_connected(session, stop, health)


class _Member:
    """One membership in the group."""

    def __init__(self, session: Session, settings: ShellSettings) -> None:
        self._session = session
        self._done: dict[int, int] = {}
        # Held from a fetch to its answers: partitions are given back between batches, not within one.
        self._busy = asyncio.Lock()
        self._group = Group(
            settings.bootstrap,
            SAMPLE.name,
            settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            fetch_wait_ms=settings.fetch_wait_ms,
            assigned=self._assigned,
            revoked=self._revoked,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Join, answer until the end, leave."""
        try:
            if await self._session.until(stop, self._group.join()):
                await self._session.until(asyncio.Event(), self._answer(stop))
        finally:
            await self._group.leave()

    async def _answer(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        commit_at_s = loop.time() + COMMIT_EVERY_S
        while not stop.is_set():
            async with self._busy:
                batches, ends = await self._group.fetch()
                if batches:
                    self._done |= await self._session.answer(batches, ends)
            if loop.time() >= commit_at_s:
                await self._commit()
                commit_at_s = loop.time() + COMMIT_EVERY_S
        await self._commit()

    async def _commit(self) -> None:
        done, self._done = self._done, {}
        if done and not await self._group.commit(done):
            self._done = done | self._done

    async def _assigned(self, partitions: frozenset[int]) -> None:
        self._done = {partition: offset for partition, offset in self._done.items() if partition in partitions}
        self._session.assigned(partitions)

    async def _revoked(self, _: frozenset[int]) -> None:
        async with self._busy:
            await self._commit()
        self._done = {}
        self._session.revoked()
