"""Runs coroutines concurrently."""

import asyncio
from collections.abc import Coroutine

from slacktide.streams.tasks import ended


async def until_one_ends(*works: Coroutine[object, object, object]) -> None:
    """Run all until one ends, then cancel the others. Raise its error, if any."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await ended(*tasks)
