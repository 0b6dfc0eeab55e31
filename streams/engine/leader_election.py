"""Runs work beside the worker, restarts it after errors, and elects a leader by a consumer group.

The member that is assigned the topic's only partition leads. The leader commits offsets to confirm its membership. A
leader without a commit for one session timeout stops acting, since the group may have elected another.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import Topic
from slacktide.streams.kafka import Group
from slacktide.streams.kafka.reader import POLL_S
from slacktide.streams.records import Place
from slacktide.streams.tasks import ended

log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_S_MAX = 30.0
"""After programming errors."""
OUTAGE_S_MAX = 5.0
WORK_STOP_S = 1.0


async def run_until_stopped(
    work: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event, *, away: str, failed: str
) -> None:
    """Run work until ``stop`` is set; restart it after any error.

    ``away``, ``failed``: log lines of outages and errors.
    """
    logged = ""
    outage, failure = Backoff(RETRY_S, OUTAGE_S_MAX), Backoff(RETRY_S, RETRY_S_MAX)
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        pause_s, began_s = RETRY_S, loop.time()
        try:
            await _until(stop, work())
        except LogError as exc:
            if loop.time() > began_s + RETRY_S_MAX:
                outage.reset()
            pause_s = outage.next_s()
            if logged != str(exc):  # once per outage
                logged = str(exc)
                log.warning(away, exc)
        except Exception:
            log.exception(failed)
            pause_s = failure.next_s()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await stop.wait()


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Wait for the work. After ``stop`` it has ``WORK_STOP_S`` to return: a join can take longer."""
    working, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((working,), timeout=WORK_STOP_S)
    finally:
        await ended(stopped, working)
    if not working.cancelled():
        working.result()


MEMBER_WAIT_MS = 5_000
"""Nothing waits for what a member reads."""


class LeaderElection:
    """One membership in the group. The owner of the topic's only partition leads.

    The group elects another leader after ``session_timeout_ms`` without a heartbeat.
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
            sticky=True,  # nobody acts while the leader changes
        )
        self.join, self.leave = self._group.join, self._group.leave

    @property
    def leads(self) -> bool:
        """Check whether this process may act now. It may not during a rebalance."""
        return self.elected and not self._rebalancing

    async def stay(self, done: int | None = None, wait_s: float = POLL_S) -> None:
        """Remain a member; a leader also commits, three times per session timeout.

        ``done``: the offset to commit, up to which the leader has finished its work; None: what was read. ``wait_s``:
        how long to wait for records, or for the end of a rebalance. Raises LogError if the topic cannot be read.
        """
        batches, _ = await self._group.fetch(wait_s)
        for records in batches.values():
            self._read = records[-1].offset + 1
        asked_ms = mono_ms()
        due = asked_ms - self._confirmed_ms > self._session_timeout_ms // 3
        if self.leads and due and await self._group.commit({self._place: self._read if done is None else done}):
            self._confirmed_ms = asked_ms

    async def done(self) -> int | None:
        """Return the last committed offset; None: there is none, or the broker does not answer."""
        found = await self._group.notes([self._place])
        return found[self._place][0] if self._place in found and found[self._place][0] >= 0 else None

    def check(self) -> None:
        """Check that the last commit is recent.

        Raises LogError if the last commit is older than the session timeout.
        """
        if mono_ms() - self._confirmed_ms > self._session_timeout_ms:
            raise LogError("no commit succeeded within the session timeout: another leader may be elected")

    async def _assigned(self, places: frozenset[Place]) -> None:
        self.elected, self._rebalancing = bool(places), False
        self._confirmed_ms = mono_ms()

    async def _revoked(self, _: frozenset[Place]) -> None:
        self._rebalancing = True


async def campaign(run: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event, role: str) -> None:
    """Run memberships until ``stop`` is set; ``role``: what the leader does, for the logs."""
    await run_until_stopped(
        run,
        stop,
        away=f"this process is no candidate for {role}: %s; retrying",
        failed=f"the {role} failed; another candidate may take over",
    )


def mono_ms() -> int:
    """Return the event loop's monotonic time, in milliseconds."""
    return round(asyncio.get_running_loop().time() * 1_000)
