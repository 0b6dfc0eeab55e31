"""Whether work that may kill this process does so: a forked copy of it is put to the risk first."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable

POLL_S = 0.005


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
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    try:
        while (ended := os.waitpid(copy, os.WNOHANG)) == (0, 0):
            if loop.time() > until_s:
                break
            await asyncio.sleep(POLL_S)
    except BaseException:
        ended = 0, 0
        raise
    finally:
        if ended == (0, 0):
            os.kill(copy, signal.SIGKILL)
            ended = os.waitpid(copy, 0)
    return os.waitstatus_to_exitcode(ended[1]) == 0


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
