"""A record that crashes two workers in a row becomes a dead letter, whoever they are; the third goes on."""

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.inventory import Resources, revision_of
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import DEAD_LETTER, METRIC, SAMPLE
from testbed.brokers import KafkaBroker
from testbed.samples import BATCH, SERVICE, keyframe
from testbed.stream_rig import Rig
from testbed.worker_process import POISON, RAISES

PARTITION = 1
CRASH_S = 90


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    return kafka_broker


@contextlib.contextmanager
def worker(rig: Rig, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that each sample of the node ``poison`` kills."""
    process = rig.process(name)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def killed_by_the_poison(rig: Rig, name: str) -> None:
    with worker(rig, name) as process:
        assert await asyncio.to_thread(process.wait, CRASH_S) == -signal.SIGKILL


@pytest.mark.kafka
async def test_what_kills_two_workers_is_quarantined_and_the_third_goes_on(rig: Rig) -> None:
    """The samples around it are answered, those of its own node that come later, too: each cost one more life."""
    before, after = keyframe(1, "node-a"), keyframe(1, "node-b")
    await rig.send([before, keyframe(1, POISON), after], lambda _: PARTITION)
    await killed_by_the_poison(rig, "first")
    await killed_by_the_poison(rig, "second")
    with worker(rig, "third") as third:
        answers = await rig.answered([before, after])
        later = keyframe(2, "node-a")
        await rig.send([later], lambda _: PARTITION)
        answers += await rig.answered([later])
        assert third.poll() is None

    assert {answer.answer for answer in answers} == {"set"}
    [letter] = [decode(record.value, DeadLetter) for record in await rig.read(DEAD_LETTER.name)]
    assert (letter.partition, letter.offset, letter.key) == (PARTITION, 1, POISON)
    assert "two workers crashed" in letter.reason


@pytest.mark.kafka
async def test_an_error_that_nothing_isolates_ends_one_worker_and_the_next_goes_on(rig: Rig) -> None:
    """It ends the first one without a clean handover; the second finds the record in a fork, and lays it aside."""
    others = [keyframe(1, "node-a"), keyframe(1, "node-b")]
    await rig.send([others[0], keyframe(1, RAISES), others[1]], lambda _: PARTITION)
    with worker(rig, "first") as process:
        assert await asyncio.to_thread(process.wait, CRASH_S) == 1
    with worker(rig, "second") as second:
        answers = await rig.answered(others)
        [letter] = await rig.dead_letters()
        later = keyframe(2, "node-a")
        await rig.send([later], lambda _: PARTITION)
        answers += await rig.answered([later])
        assert second.poll() is None

    assert {answer.answer for answer in answers} == {"set"}
    assert (letter.partition, letter.offset, letter.key) == (PARTITION, 1, RAISES)
    assert "not isolated" in letter.reason


@pytest.mark.kafka
async def test_invalid_text_behind_sound_numbers_ends_no_worker(rig: Rig) -> None:
    """Its node's figures are computed by the rules, which read all of the sample; each comes to a dead letter."""
    pods = [SERVICE, msgspec.structs.replace(BATCH, requests=Resources(free_cpu_milli=100))]
    good = [keyframe(seq, node) for seq in range(1, 9) for node in ("node-1", "node-5")]
    bad = [encoded(keyframe(seq, "bad", pods=pods, pods_revision=revision_of(pods)), pods) for seq in range(1, 9)]
    records = [(b"bad", value if seq < 3 else value[:-1] + b',"psi":"x"}', PARTITION) for seq, value in enumerate(bad)]
    with worker(rig, "only") as only:
        for at, record in enumerate(records):
            await rig.put(SAMPLE.name, [record])
            its = good[2 * at : 2 * at + 2]
            await rig.send(its)
            answers = await rig.answered(its)
            assert {answer.answer for answer in answers} == {"set"}
        letters = await rig.dead_letters()
        assert only.poll() is None

    assert all("$.psi" in letter.reason for letter in letters)
    assert {record.key for record in await rig.read(METRIC.name)} == {b"node-1", b"node-5", b"bad"}
