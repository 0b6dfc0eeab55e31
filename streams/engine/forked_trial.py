"""Whether work that may kill this process does so: a forked copy of it is put to the risk first."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable


async def survives(work: Callable[[], object], within_s: float) -> bool:
    """Do the work in a copy of this process, and return whether that lives to the end of it.

    The copy shares no memory: what the work changes or returns is lost. It must write to no socket or file.

    Args:
        work: what to do. An exception is no crash.
        within_s: a copy that takes longer is killed, and has not survived.

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
    """End the process after the work, without what else is done at an end: all that belongs to the other one."""
    try:
        signal.set_wakeup_fd(-1)
        logging.disable(logging.CRITICAL)
        work()
    except BaseException:  # noqa: BLE001, S110 - it is handled where the work is done for good
        pass
    finally:
        os._exit(0)
