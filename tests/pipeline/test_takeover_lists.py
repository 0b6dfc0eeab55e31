"""Who takes a partition over answers its first samples: what they name is in segments, not in keyframes alone."""

import time
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from slacktide.schemas.inventory import Pod, revision_of
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import SAMPLE, WINDOW
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, KafkaBroker
from testbed.samples import BATCH, PODS, SERVICE, SUPPRESS, keyframe, policy_record, record_of, sample
from testbed.stream_rig import PARTITIONS, Rig, partition_of

OTHERS = [BATCH, SERVICE]
LISTS: dict[str, Sequence[Pod]] = {revision_of(PODS): PODS, revision_of(OTHERS): OTHERS}
STAYS, CHANGES, OLD = "node-1", "node-2", "node-3"
PAST_S, CHANGED_AT = 120, 90
"""The keyframes of the first second are older than what is searched, and the change is older than what is read back."""


@pytest.fixture
async def rig(broker: EmbeddedBroker | KafkaBroker) -> AsyncIterator[Rig]:
    broker.apply_topics(PARTITIONS, DATED_BY_CLIENTS)
    async with Rig(broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        yield rig


def said(seq: int, node: str) -> NodeSample:
    changed = node == CHANGES and seq >= CHANGED_AT
    pods = OTHERS if changed else PODS
    make = keyframe if seq == 1 or (changed and seq == CHANGED_AT) else sample
    carried = {"pods": pods} if make is keyframe else {}
    return make(seq, node, pods_revision=revision_of(pods), **carried)


def body(each: NodeSample) -> bytes:
    return encoded(each, LISTS[each.pods_revision])


def columns_of(each: NodeSample) -> Record:
    placed = record_of(each, partition=partition_of(each.node))
    return msgspec.structs.replace(placed, topic=SAMPLE.name, value=body(each))


def without_lists(segment: bytes) -> bytes:
    """As an owner of the version before wrote it."""
    fields = msgspec.json.decode(segment)
    for name in ("facts", "facts_revision", "listed", "pods_revision"):
        fields.pop(name, None)
    return msgspec.json.encode(fields)


async def test_the_first_samples_after_a_takeover_are_answered_although_no_keyframe_was_read(rig: Rig) -> None:
    before, nodes = Worker("before"), [STAYS, CHANGES, OLD]
    before.policy(policy_record())
    now_ms = time.time_ns() // 1_000_000
    for seq in range(1, PAST_S + 1):
        at_ms = now_ms - (PAST_S + 1 - seq) * 1_000
        samples = [said(seq, node) for node in nodes]
        outs = before.samples([columns_of(each) for each in samples], at_ms)
        places = [(each.node.encode(), body(each), partition_of(each.node)) for each in samples]
        await rig.put(SAMPLE.name, places, at_ms)
        segments = [(out.key, out.value or b"", out.partition or 0) for out in outs if out.topic == WINDOW.name]
        segments = [(key, without_lists(one) if key == OLD.encode() else one, part) for key, one, part in segments]
        await rig.put(WINDOW.name, segments, at_ms)
    await rig.commit(dict.fromkeys(map(partition_of, nodes), PAST_S), SAMPLE.name)
    coming = [said(PAST_S + 1, node) for node in nodes]
    # Dated, too: on a busy machine all that was sent has grown older meanwhile.
    await rig.put(SAMPLE.name, [(each.node.encode(), body(each), partition_of(each.node)) for each in coming], now_ms)
    async with rig.worker("after"):
        answers = {answer.node: (answer.answer, answer.reason) for answer in await rig.answered(coming)}

    assert answers == {STAYS: ("set", ""), CHANGES: ("set", ""), OLD: ("skipped", "no pods")}
    assert len(rig.answers) == len(coming), "what was committed is not answered again"
