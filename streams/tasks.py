"""Ends tasks so that none is left with an error that nobody looked at, which asyncio would log without its cause."""

import asyncio
import logging
from typing import Any

log = logging.getLogger(__name__)

Task = asyncio.Future[Any]


async def ended(*tasks: Task) -> None:
    """Cancel tasks and wait for their end. Their errors are dropped: whoever ends them has a reason of its own."""
    given_up(*tasks)
    await asyncio.gather(*tasks, return_exceptions=True)


def given_up(*tasks: Task) -> None:
    """Cancel tasks for whose end nobody waits, and drop their errors."""
    for task in tasks:
        task.cancel()
        unwatched(task)


def unwatched(task: Task) -> None:
    """Drop the error of a task, or of a future, that nobody waits for any more. The log has it at level debug."""
    if task.done():
        _seen(task)
    else:
        task.add_done_callback(_seen)


def _seen(task: Task) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("nobody waited for an error", exc_info=error)
