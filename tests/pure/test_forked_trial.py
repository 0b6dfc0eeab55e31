"""A copy of a process takes the risk of work that may kill it."""

import os
import signal
import time

from slacktide.streams.engine.quarantine import survives


async def test_work_that_ends_survives_and_changes_nothing_here() -> None:
    done: list[int] = []
    assert await survives(lambda: done.append(1), 10)
    assert done == []


async def test_an_exception_is_no_crash() -> None:
    assert not await survives(lambda: 1 // 0, 10)


async def test_work_that_kills_its_process_does_not_survive() -> None:
    assert not await survives(lambda: os.kill(os.getpid(), signal.SIGKILL), 10)


async def test_work_that_hangs_is_ended() -> None:
    began_s = time.monotonic()
    assert not await survives(lambda: time.sleep(600), 0.1)
    assert time.monotonic() - began_s < 60
