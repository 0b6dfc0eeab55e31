"""Finds out whether an agent that ends is being uninstalled. `agents/workload.py` has the rule."""

from __future__ import annotations

import asyncio
import logging

from slacktide.agents.http import Access, HttpError
from slacktide.agents.node.apiserver import ApiServer
from slacktide.agents.workload import Standing, is_removed, namespace_of, path_of, standing
from slacktide.schemas.backoff import Backoff

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""How long an ending agent waits for the API server. Without an answer it leaves limits in force."""
RETRY_S, RETRY_MAX_S = 1.0, 60.0


class Removal:
    """Reads the agent's DaemonSet (NAMESPACE/NAME) and namespace from the API server at start and at exit."""

    def __init__(self, access: Access, daemon_set: str) -> None:
        self._access = access
        self._daemon_set = daemon_set
        self._was_there = False

    async def run(self) -> None:
        """Retry until the API server has answered, then wait until cancelled."""
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        while (now := await self._ask()) == "unknown":  # noqa: ASYNC110 - nothing signals that the server is back
            await asyncio.sleep(backoff.next_s())
        self._was_there = now == "there"
        if not self._was_there:
            log.warning(
                "the DaemonSet cannot be read: if it is deleted, limits may stay in force",
                extra={"daemon_set": self._daemon_set, "standing": now, "remedy": "slacktide agent restore"},
            )
        await asyncio.Event().wait()

    async def removed(self) -> bool:
        """Return whether the DaemonSet is deleted; False if the API server does not answer within 2 s."""
        now: Standing = "unknown"
        try:
            async with asyncio.timeout(ANSWER_S):
                now = await self._ask()
        except TimeoutError:
            pass
        removed = is_removed(now, was_there=self._was_there)
        log.info(
            "the agent is being removed: it removes all limits" if removed else "the agent stops: limits stay in force",
            extra={"daemon_set": self._daemon_set, "standing": now},
        )
        return removed

    async def _ask(self) -> Standing:
        return await asyncio.to_thread(self._asked)

    def _asked(self) -> Standing:
        """Use a new connection, since an earlier request may still be open on another thread."""
        server = ApiServer(self._access)
        try:
            answer = server.get(path_of("daemonsets", self._daemon_set))
            now = standing(answer.status, answer.body)
            if now == "there":
                around = server.get(namespace_of(self._daemon_set))
                now = "deleted" if standing(around.status, around.body) == "deleted" else now
        except HttpError as exc:
            log.info("no answer about the DaemonSet", extra={"daemon_set": self._daemon_set, "why": str(exc)})
            return "unknown"
        finally:
            server.close()
        return now
