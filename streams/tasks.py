"""Runs and ends tasks. None is left with an error that nobody looked at: asyncio would log it without its cause."""

import asyncio
import logging
from collections.abc import Coroutine
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


async def until_one_ends(*works: Coroutine[object, object, object]) -> None:
    """Run all until one ends, then cancel the others. Raise its error, if any."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await ended(*tasks)
