"""A flood of records that nobody can use, between good ones, on a worker of its own process."""

from collections.abc import Iterator
from itertools import islice

import psutil
import pytest

from slacktide.schemas.topics import SAMPLE
from testbed.bad_headers import MARKER, put_bad_header
from testbed.brokers import KafkaBroker
from testbed.feed import Workers
from testbed.malformed import malformed
from testbed.samples import body_of, keyframe
from testbed.stream_rig import PARTITIONS, Rig

BAD = 100_000
DIFFERENT = 2_000
"""The rest repeats them; making each anew would take longer than reading it."""
CHUNK = 5_000
LARGE_BYTES = 4_096
"""Larger ones come once: 100,000 brackets, say."""
GROWS_BYTES_MAX = 150 << 20
"""Fetched, decoded and refused in passing: what is read at once, and what the client has fetched ahead."""


def flood() -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """Mixed garbage: wrong keys, huge numbers, deep nesting, noise."""
    made = [(bad.key, bad.value) for bad in malformed(DIFFERENT, seed=2)]
    small = [(key, value) for key, value in made if len(value) <= LARGE_BYTES]
    for number in range(BAD):
        key, value = made[number] if number < len(made) else small[number % len(small)]
        yield key, value, number % PARTITIONS


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    return kafka_broker


@pytest.mark.kafka
async def test_100000_records_that_nobody_can_use_stop_nothing(rig: Rig) -> None:
    """Each is one dead letter, each good one is answered, and the worker does not grow. Some have bad header names."""
    bad = flood()
    good = [keyframe(seq, "node-5") for seq in range(1, BAD // CHUNK + 2)]
    async with Workers(rig) as workers:
        process = psutil.Process(workers.start("worker"))
        await rig.send(good[:1])
        await rig.answered(good[:1])
        before_bytes = process.memory_info().rss
        for one in good[1:]:
            await rig.put(SAMPLE.name, list(islice(bad, CHUNK)))
            strange = [(b"node-5", b"{", MARKER), (b"node-5", body_of(one), MARKER)]
            await put_bad_header(rig.bootstrap, SAMPLE.name, 1, strange)
        answers = await rig.answered(good)
        letters = await rig.dead_letters(BAD + len(good) - 1)
        grown_bytes = process.memory_info().rss - before_bytes

    assert {answer.answer for answer in answers} == {"set"}
    told = {(letter.partition, letter.offset) for letter in letters}
    assert len(told) == len(letters) == BAD + len(good) - 1, "each is laid aside once"
    assert grown_bytes < GROWS_BYTES_MAX
