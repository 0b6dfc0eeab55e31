"""Runs work in a forked process first, in case it crashes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable


async def survives(work: Callable[[], object], within_s: float) -> bool:
    """Run work in a fork, and return whether the fork survives it.

    The fork shares no memory with this process. The work must not write to a socket or file. An exception does not
    count as a crash. A fork that exceeds ``within_s`` is killed, which counts as a crash.
    """
    copy = os.fork()
    if not copy:
        _run(work)
    ended = asyncio.create_task(asyncio.to_thread(os.waitpid, copy, 0))
    try:
        await asyncio.wait([ended], timeout=within_s)
    finally:
        if not ended.done():
            os.kill(copy, signal.SIGKILL)
    _, status = await ended
    return os.waitstatus_to_exitcode(status) == 0


def _run(work: Callable[[], object]) -> None:
    """Exit without handlers and flushes, which belong to the parent."""
    try:
        signal.set_wakeup_fd(-1)
        logging.disable(logging.CRITICAL)
        work()
    except BaseException:  # noqa: BLE001, S110 - the real run handles it
        pass
    finally:
        os._exit(0)
