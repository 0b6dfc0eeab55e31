"""Extreme values in any field of any record cost the node that the record names, and nobody else."""

from collections.abc import Iterator
from itertools import islice, product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.sample_columns import SampleColumns
from slacktide.schemas.topics import (
    ALLOCATABLE,
    BACKFILL,
    BY_NAME,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    INVENTORY,
    METRIC,
    OUTCOME,
    POLICY,
    SAMPLE,
    SCORE,
    WINDOW,
)  # fmt: skip
from slacktide.schemas.window import NodeWindowSegment
from slacktide.streams.governor.governor import Governor
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from slacktide.streams.worker.published import recalled
from testbed.extremes import EXTREMES, Path, Verbatim, full, paths, with_value
from testbed.governed import metric_record
from testbed.samples import START_MS, body_of, keyframe, policy_record, record_of

pytestmark = pytest.mark.exhaustive

BAD, GOOD = "bad", "good"
MINUTE_MS = 60_000


def full_body(kind: type[Message]) -> dict[str, Any]:
    """A full record of the bad node, which the worker can use as it stands."""
    body = full(kind)
    if kind is SampleColumns:
        del body["pods_part"]
        body = {name: body.pop(name) for name in ("of", "now", "looks", "more")} | body
        body |= msgspec.json.decode(body_of(keyframe(3, BAD))) | {
            "looks": [9, 0, 0, 0, 0, 0, 500, 0, *[1] * 7],
            "psi": [1] * 5,
            "throttled": [0, 1, 1],
        }
    if kind is NodeWindowSegment:
        body |= {"begin_ms": START_MS // MINUTE_MS * MINUTE_MS} | {
            name: [1] * 60 for name in body if name.endswith(("_milli", "_bytes")) or name == "covered_ms"
        }
    if kind is Policy:
        body |= {"resource_threshold": {"enable": True}, "colocation": {"enable": True}}
    if "node" in body:
        body["node"] = BAD
    return body


def poisons(kind: type[Message], every: int = 1) -> Iterator[bytes]:
    """One extreme value in one field, for all fields and values, or of so many one."""
    body = full_body(kind)
    for path, value in islice(product(paths(body), EXTREMES), 0, None, every):
        yield with_value(body, path, value)


def poison_record(topic: str, value: bytes, offset: int = 1_000) -> Record:
    key = KEY if topic == POLICY.name else BAD
    return Record(topic=topic, partition=0, offset=offset, timestamp_ms=START_MS, key=key.encode(), value=value)


def worker() -> Worker:
    made = Worker("w")
    made.policy(policy_record())
    return made


def said_of_the_good(poison: list[Record]) -> list[Out]:
    """A worker reads the good node's samples, and poison between them in every stage: what it says of the good one."""
    reader, outs = worker(), []
    samples = [one for one in poison if one.topic == SAMPLE.name]
    own = [record_of(keyframe(seq, GOOD), offset=seq) for seq in range(1, 5)]
    reader.learn([own[0], *samples])
    outs += reader.restore([one for one in poison if one.topic == WINDOW.name])
    for one in poison:
        outs += reader.inventory(one) if one.topic == INVENTORY.name else []
    half = len(samples) // 2
    outs += reader.samples([*samples[:half], own[1], *samples[half:]], START_MS)
    outs += reader.samples([own[2]], START_MS)
    said = recalled([one for one in poison if one.topic in {METRIC.name, ALLOCATABLE.name, SCORE.name}], [BAD])
    reader.recall(0, said)
    outs += reader.fill([one for one in poison if one.topic == BACKFILL.name])
    outs += reader.samples([own[3]], START_MS)
    outs += reader.silent({BAD: 9_000, GOOD: 9_000})
    for _ in reader.aside().fill_from(reader, 0, 2):
        pass
    return [out for out in outs if out.key == GOOD.encode()]


ALONE = said_of_the_good([])
AT_ONCE = 100
STREAM = pytest.mark.parametrize(
    "topic",
    [pytest.param(one.name, id=one.name) for one in (SAMPLE, BACKFILL, INVENTORY, WINDOW, METRIC, ALLOCATABLE, SCORE)],
)


def chunks(topic: str) -> Iterator[list[Record]]:
    found = [poison_record(topic, value) for value in poisons(BY_NAME[topic].message)]
    return (found[begin : begin + AT_ONCE] for begin in range(0, len(found), AT_ONCE))


@STREAM
def test_no_field_of_a_record_that_a_worker_reads_harms_another_node(topic: str) -> None:
    """What it says of the good node is the same to the byte."""
    for poison in chunks(topic):
        assert said_of_the_good(poison) == ALONE


@pytest.mark.parametrize("topic", [SAMPLE.name])
def test_a_sample_with_an_extreme_value_is_answered_or_a_dead_letter(topic: str) -> None:
    reader = worker()
    for value in poisons(SampleColumns):
        outs = reader.samples([poison_record(topic, value)], START_MS)
        commands = [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]
        letters = [decode(out.value, DeadLetter) for out in outs if out.topic == DEAD_LETTER.name]
        assert len(commands) == 1 or (not commands and len(letters) == 1)
        assert not letters or all(one.answer == "skipped" for one in commands)


def test_a_dead_letter_names_the_field_its_value_and_its_range() -> None:
    value = with_value(full_body(SampleColumns), ("now", 3), 2**60)
    command, letter = None, None
    for out in worker().samples([poison_record(SAMPLE.name, value)], START_MS):
        if out.topic == COMMAND.name:
            command = decode(out.value, NodeCommand)
        else:
            letter = decode(out.value, DeadLetter)

    assert command.answer == "skipped"
    for part in ("$.now[3]", str(2**60), str(2**50)):
        assert part in letter.reason
        assert part in command.reason


@pytest.mark.parametrize("value", [10**30, Verbatim("9" * 401)])
@pytest.mark.parametrize("path", [("facts", "allocatable", "cpu_milli"), ("facts", "capacity", "mem_bytes")])
def test_one_sample_that_stopped_every_worker_is_answered_skipped(path: Path, value: Any) -> None:
    """Both had 873 bytes: one overflowed where a node is marked as stale, the other where its figures are made."""
    reader = worker()
    outs = reader.samples([poison_record(SAMPLE.name, with_value(full_body(SampleColumns), path, value))], START_MS)
    outs += reader.silent({BAD: 9_000})

    assert [decode(out.value, NodeCommand).answer for out in outs if out.topic == COMMAND.name] == ["skipped"]
    assert len([out for out in outs if out.topic == DEAD_LETTER.name]) == 1
    assert len(outs) == 2


NUMBERS = st.sampled_from([value for value in EXTREMES if isinstance(value, int | float)])
SAMPLE_BODY = full_body(SampleColumns)
SAMPLE_PATHS = list(paths(SAMPLE_BODY))


@given(st.lists(st.tuples(st.sampled_from(SAMPLE_PATHS), NUMBERS), min_size=2, max_size=6))
def test_extreme_numbers_in_several_fields_at_once_harm_no_other_node(changes: list[tuple[Path, Any]]) -> None:
    body = SAMPLE_BODY
    for path, value in changes:
        try:
            body = msgspec.json.decode(with_value(body, path, value))
        except (TypeError, LookupError, msgspec.DecodeError):
            continue  # an earlier change took the place away
    assert said_of_the_good([poison_record(SAMPLE.name, msgspec.json.encode(body))]) == ALONE


def test_no_policy_stops_a_worker() -> None:
    reader = worker()
    for seq, value in enumerate(poisons(Policy, every=7), start=1):
        reader.policy(poison_record(POLICY.name, value))
        reader.samples([record_of(keyframe(seq, GOOD))], START_MS)


def granted(poison: list[Record]) -> list[bytes | None]:
    """What a governor grants the good node, with poison between its records."""
    governor = Governor("g")
    governor.begin([one for one in poison if one.topic == CREDIT.name], [], START_MS, 0)
    governor.receive([metric_record(GOOD, "000000000001-a"), *poison, metric_record(GOOD, "000000000001-a")], 1_000_000)
    outs = governor.tick(1_000_000, START_MS)
    return [out.key for out in outs if out.topic == CREDIT.name and out.key == GOOD.encode()]


@pytest.mark.parametrize("kind", [NodeOutcome, NodeMetric, EvictionCredit])
def test_no_record_stops_a_governor(kind: type[Message]) -> None:
    topic = {NodeOutcome: OUTCOME, NodeMetric: METRIC, EvictionCredit: CREDIT}[kind].name
    for value in poisons(kind):
        found = granted([poison_record(topic, value)])
        # A lease of a million evictions is believed while it lasts: only governors may write it.
        assert kind is EvictionCredit or found == [GOOD.encode()]
