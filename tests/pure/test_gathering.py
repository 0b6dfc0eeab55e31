"""How close together a worker's turns come."""

from __future__ import annotations

import asyncio

import pytest

from slacktide.streams.kafka.gathering import FEW, GATHER_S, Gathering


async def test_where_samples_keep_coming_a_turn_waits_for_them_to_gather() -> None:
    gathering, loop = Gathering(), asyncio.get_running_loop()
    gathering.began(1)
    gathering.began(1)
    began_s = loop.time()
    await gathering.turn()

    assert loop.time() - began_s > GATHER_S / 2


async def test_what_follows_the_first_sample_after_a_while_waits_for_nothing() -> None:
    gathering = Gathering()
    gathering.began(1)
    await asyncio.sleep(2 * GATHER_S)
    gathering.began(1)

    with pytest.raises(StopIteration):  # it ends without giving way to anything else
        gathering.turn().send(None)


async def test_a_worker_that_is_behind_does_not_wait() -> None:
    gathering = Gathering()
    gathering.began(1)
    gathering.began(FEW + 1)

    with pytest.raises(StopIteration):
        gathering.turn().send(None)
