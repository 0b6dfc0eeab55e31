"""Runs work beside the worker, and restarts it after errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from slacktide.schemas.backoff import Backoff
from slacktide.schemas.errors import LogError

log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_S_MAX = 30.0
"""After programming errors."""
OUTAGE_S_MAX = 5.0
STOP_S = 1.0


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
            await asyncio.wait_for(stop.wait(), pause_s)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Wait for the work. After ``stop`` it has ``STOP_S`` to return: a join can take longer."""
    working, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((working,), timeout=STOP_S)
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.wait((working,))
    if not working.cancelled():
        working.result()
