"""Work beside the worker that begins again after every trouble: the worker goes on whatever happens to it."""

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
"""After faults of the program."""
OUTAGE_S_MAX = 5.0
STOP_S = 1.0


async def run_until_stopped(
    work: Callable[[], Coroutine[Any, Any, None]], stop: asyncio.Event, *, away: str, failed: str
) -> None:
    """Do it until ``stop`` is set; nothing but that ends it.

    Args:
        work: begun anew each time; it ends soon after ``stop``.
        stop: ends it.
        away: to be logged while the log is away, with ``%s`` for the reason.
        failed: to be logged with a fault of the program.

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
            if logged != str(exc):  # not once a second while a broker is away
                logged = str(exc)
                log.warning(away, exc)
        except Exception:
            log.exception(failed)
            pause_s = failure.next_s()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Wait for the work; once it shall stop, it has a moment: it may stand in a join that takes the broker longer."""
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
