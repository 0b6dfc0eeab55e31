"""The worker on plain aiokafka: fetch, decide, commit. The reference for the Faust shell, with the same ``run``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slacktide.schemas.health import Health
from slacktide.schemas.topics import SAMPLES
from slacktide.streams.columns.batches import Turns
from slacktide.streams.engine.session import Session, ShellSettings, keep_connected
from slacktide.streams.kafka import WholeGroup
from slacktide.streams.records import Place
from slacktide.streams.taken import Records
from slacktide.streams.worker import Worker

COMMIT_EVERY_S = 1.0


async def run(
    worker: Worker, settings: ShellSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]
) -> None:
    """Decide samples until ``stop`` is set, then finish the batch, commit, and leave the group.

    Raises:
        Exception: a programming error; Kafka outages are waited out.
    """
    await keep_connected(lambda session: _Member(session, settings).run(stop), worker, settings, stop, health, now_ms)


class _Member:
    def __init__(self, session: Session, settings: ShellSettings) -> None:
        self._session = session
        self._done: dict[Place, int] = {}
        self._turns = Turns()
        self._ends: dict[Place, int | None] = {}
        # Held from a fetch to its commit: partitions are revoked between batches.
        self._busy = asyncio.Lock()
        self._group = WholeGroup(
            settings.bootstrap,
            [topic.name for topic in SAMPLES],
            settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            fetch_wait_ms=settings.fetch_wait_ms,
            assigned=self._assigned,
            revoked=self._revoked,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Join the group, decide until ``stop``, and leave."""
        try:
            self._session.quarantine.offsets = self._group
            if await self._session.until(stop, self._group.join()):
                await self._session.until(asyncio.Event(), self._answer(stop))
        finally:
            await self._group.leave()

    async def _answer(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        commit_at_s = loop.time() + COMMIT_EVERY_S
        while not stop.is_set() and (self._turns or await self._fetched(stop)):
            async with self._busy:
                if self._turns:
                    self._done |= await self._session.answer(self._records(), self._ends)
                if loop.time() >= commit_at_s:
                    await self._commit()
                    commit_at_s = loop.time() + COMMIT_EVERY_S
        async with self._busy:
            await self._give_back()

    def _records(self) -> dict[Place, Records]:
        return {place: taken.records(*place) for place, taken in self._turns.next().items()}

    async def _fetched(self, stop: asyncio.Event) -> bool:
        """Fetch, and return False to stop. Does not hold ``busy``, because a fetch waits during a rebalance."""
        fetching = asyncio.ensure_future(self._group.fetch_whole())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((fetching, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if stop.is_set():
            fetching.cancel()
            return False
        fetched, self._ends = fetching.result()
        self._turns.add(fetched)
        return True

    async def _commit(self) -> None:
        if self._done and await self._group.commit(self._session.quarantine.marked(self._done)):
            self._done = {}

    async def _give_back(self) -> None:
        """Commit without notes, so that the next owner sees a clean handover."""
        await self._group.commit({place: (at, "") for place, at in self._session.positions.items()})
        self._done = {}  # the next owner may have committed further

    async def _assigned(self, places: frozenset[Place]) -> None:
        self._session.assigned(places, self._group.generation)

    async def _revoked(self, _: frozenset[Place]) -> None:
        async with self._busy:
            await self._give_back()
            self._turns.clear()
        self._session.revoked()
