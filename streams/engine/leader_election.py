"""An office that one process holds at a time: whoever has the one partition of a topic; all others wait.

The holder has the group confirm it now and then. Who was not confirmed for a session's time may have a successor, and
acts no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import Topic
from slacktide.streams.engine.lasting import lasting
from slacktide.streams.kafka import Group
from slacktide.streams.records import Place

MEMBER_WAIT_MS = 1_000
"""A member of the group reads nothing that is in a hurry."""


class LeaderElection:
    """One membership in the group.

    Args:
        bootstrap: the Kafka cluster.
        topic: whose one partition is the office.
        group: of the candidates.
        session_timeout_ms: a holder silent for this long has lost it.

    """

    def __init__(self, bootstrap: Cluster, topic: Topic, group: str, session_timeout_ms: int) -> None:
        self.elected = False
        self._place = Place(topic.name, 0)
        self._session_timeout_ms = session_timeout_ms
        self._rebalancing = False
        self._confirmed_ms = 0
        self._read = 0
        self._group = Group(
            bootstrap,
            [topic.name],
            group,
            session_timeout_ms=session_timeout_ms,
            fetch_wait_ms=MEMBER_WAIT_MS,
            assigned=self._assigned,
            revoked=self._revoked,
            sticky=True,  # each change of holder costs a while in which nobody acts
        )

    @property
    def held(self) -> bool:
        """Whether this process may act now: nothing is done until it is known who holds it; it may be the same one."""
        return self.elected and not self._rebalancing

    async def join(self) -> None:
        """Become a candidate.

        Raises:
            LogError: nobody answers.

        """
        await self._group.join()

    async def leave(self) -> None:
        """Be no candidate any more."""
        await self._group.leave()

    async def stay(self, done: int | None = None) -> None:
        """Remain a member; in office, have it confirmed: who was silent for too long learns so before it acts.

        Args:
            done: what is committed with it: the offset up to which the holder's work is done; None: what was read.

        Raises:
            LogError: it cannot be read.

        """
        batches, _ = await self._group.fetch()
        for records in batches.values():
            self._read = records[-1].offset + 1
        asked_ms = mono_ms()
        due = asked_ms - self._confirmed_ms > self._session_timeout_ms // 3
        if self.held and due and await self._group.commit({self._place: self._read if done is None else done}):
            self._confirmed_ms = asked_ms

    async def done(self) -> int | None:
        """The offset that was committed last; None: none, or the broker does not answer."""
        found = await self._group.notes([self._place])
        return found[self._place][0] if self._place in found and found[self._place][0] >= 0 else None

    def check(self) -> None:
        """Look whether it was confirmed in time.

        Raises:
            LogError: it was not.

        """
        if mono_ms() - self._confirmed_ms > self._session_timeout_ms:
            raise LogError("the group has not confirmed for a session's time that this process governs")

    async def _assigned(self, places: frozenset[Place]) -> None:
        self.elected, self._rebalancing = bool(places), False
        self._confirmed_ms = mono_ms()

    async def _revoked(self, _: frozenset[Place]) -> None:
        self._rebalancing = True


async def campaign(run: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event, office: str) -> None:
    """Be a candidate until ``stop`` is set; nothing else ends it.

    Args:
        run: one candidacy, until something fails.
        stop: set: leave, return.
        office: its name, for the logs.

    """
    await lasting(
        run,
        stop,
        away=f"no candidate for {office}: %s; trying until it works",
        failed=f"the {office} has failed; another candidate may take over",
    )


def mono_ms() -> int:
    """The loop's time."""
    return round(asyncio.get_running_loop().time() * 1_000)
