"""Tasks that are ended, or that nobody waits for any more: asyncio logs nothing of them."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slacktide.streams.tasks import ended, given_up, unwatched


async def fails_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise OSError("closed in the middle")


async def fails() -> None:
    raise OSError("the broker is away")


def left(work: Callable[[], Awaitable[object]]) -> list[str]:
    """What asyncio reports of errors that nobody looked at."""
    told: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        await work()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())
    return told


@pytest.mark.parametrize("works", [fails, fails_when_cancelled])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_an_error_of_a_task_that_is_ended_is_dropped(works: Callable[[], Any], turns: int) -> None:
    async def waited() -> None:
        task = asyncio.create_task(works())
        for _ in range(turns):
            await asyncio.sleep(0)
        await ended(task)
        assert task.done()

    async def not_waited() -> None:
        task = asyncio.create_task(works())
        for _ in range(turns):
            await asyncio.sleep(0)
        given_up(task)

    assert left(waited) == left(not_waited) == []


def test_a_future_that_fails_after_nobody_waits_for_it_is_not_reported_and_another_one_is() -> None:
    async def two() -> None:
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        unwatched(futures[0])
        for one in futures:
            one.set_exception(OSError("no answer"))

    assert left(two) == ["Future exception was never retrieved"]


def test_a_dropped_error_is_in_the_log_of_who_asks_for_all(caplog: pytest.LogCaptureFixture) -> None:
    async def dropped() -> None:
        task = asyncio.create_task(fails())
        await asyncio.wait([task])
        await ended(task)

    with caplog.at_level(logging.DEBUG, "slacktide"):
        left(dropped)
    assert [record.getMessage() for record in caplog.records] == ["nobody waited for an error"]


def test_a_task_that_has_ended_keeps_its_error() -> None:
    async def looked_at() -> None:
        task = asyncio.create_task(fails())
        await asyncio.wait([task])
        await ended(task)
        with pytest.raises(OSError, match="away"):
            task.result()

    assert left(looked_at) == []
