"""How close together a worker's turns come."""

from __future__ import annotations

import asyncio

import pytest

from slacktide.streams.kafka.gathering import FEW, GATHER_S, Gathering


async def test_a_turn_right_after_another_waits_for_samples_to_gather() -> None:
    gathering, loop = Gathering(), asyncio.get_running_loop()
    gathering.began(1)
    began_s = loop.time()
    await gathering.turn()

    assert loop.time() - began_s > GATHER_S / 2


async def test_a_turn_that_comes_later_waits_for_nothing() -> None:
    gathering = Gathering()
    gathering.began(1)
    await asyncio.sleep(2 * GATHER_S)

    with pytest.raises(StopIteration):  # it ends without giving way to anything else
        gathering.turn().send(None)


async def test_a_worker_that_is_behind_does_not_wait() -> None:
    gathering = Gathering()
    gathering.began(FEW + 1)

    with pytest.raises(StopIteration):
        gathering.turn().send(None)
