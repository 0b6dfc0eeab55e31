"""A record that crashes two workers in a row becomes a dead letter, whoever they are; the third goes on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.topics import DEAD_LETTER
from testbed.brokers import KafkaBroker
from testbed.crashing_worker import POISON
from testbed.samples import SUPPRESS, keyframe
from testbed.stream_rig import PARTITIONS, SESSION_MS, Rig, Shell

PARTITION = 1
TESTS = Path(__file__).resolve().parent.parent
CRASH_S = 90


@pytest.fixture
async def rig(kafka_broker: KafkaBroker) -> AsyncIterator[Rig]:
    kafka_broker.apply_topics(PARTITIONS)
    async with Rig(kafka_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        yield rig


@contextlib.contextmanager
def worker(rig: Rig, shell: Shell, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that each sample of the node ``poison`` kills."""
    arguments = [sys.executable, "-m", "testbed.crashing_worker", shell, name, rig.bootstrap, rig.group]
    process = subprocess.Popen([*arguments, str(SESSION_MS)], stdin=subprocess.DEVNULL, cwd=TESTS)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def killed_by_the_poison(rig: Rig, shell: Shell, name: str) -> None:
    with worker(rig, shell, name) as process:
        assert await asyncio.to_thread(process.wait, CRASH_S) == -signal.SIGKILL


@pytest.mark.kafka
async def test_what_kills_two_workers_is_quarantined_and_the_third_goes_on(rig: Rig, shell: Shell) -> None:
    """The samples around it are answered, those of its own node that come later, too: each cost one more life."""
    before, after = keyframe(1, "node-a"), keyframe(1, "node-b")
    await rig.send([before, keyframe(1, POISON), after], lambda _: PARTITION)
    await killed_by_the_poison(rig, shell, "first")
    await killed_by_the_poison(rig, shell, "second")
    with worker(rig, shell, "third") as third:
        answers = await rig.answered([before, after])
        later = keyframe(2, "node-a")
        await rig.send([later], lambda _: PARTITION)
        answers += await rig.answered([later])
        assert third.poll() is None

    assert {answer.answer for answer in answers} == {"set"}
    [letter] = [decode(record.value, DeadLetter) for record in await rig.read(DEAD_LETTER.name)]
    assert (letter.partition, letter.offset, letter.key) == (PARTITION, 1, POISON)
    assert "two workers crashed" in letter.reason
