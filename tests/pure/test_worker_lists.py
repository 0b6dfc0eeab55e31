"""At a takeover: facts and pod lists out of segments, and out of older samples where these lack something."""

from collections.abc import Sequence

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import revision_of
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, SAMPLE, WINDOW
from slacktide.schemas.window import NodeWindowSegment
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.samples import BATCH, FACTS, PODS, SERVICE, START_MS, keyframe, policy_record, record_of, sample

OTHERS = [BATCH, SERVICE]
CHANGED = {"pods_revision": revision_of(OTHERS)}


def of_list(said: NodeSample) -> Record:
    pods = OTHERS if said.pods_revision == revision_of(OTHERS) else PODS
    return msgspec.structs.replace(record_of(said), topic=SAMPLE.name, value=encoded(said, pods))


def owner() -> Worker:
    worker = Worker("owner")
    worker.policy(policy_record())
    return worker


def answers(outs: Sequence[Out]) -> list[tuple[str, str]]:
    commands = [decode(out.value, NodeCommand) for out in outs if out.topic == COMMAND.name]
    return [(command.answer, command.reason) for command in commands]


def segments_of(worker: Worker, first: int, last: int) -> list[Record]:
    """What the worker writes of windows while it answers a node's samples, the first of which is a keyframe."""
    said = [keyframe(first), *(sample(seq) for seq in range(first + 1, last))]
    outs = [out for one in said for out in worker.samples([of_list(one)], START_MS)]
    return [
        Record(topic=out.topic, partition=0, offset=at, timestamp_ms=START_MS, key=out.key, value=out.value)
        for at, out in enumerate(outs)
        if out.topic == WINDOW.name
    ]


def test_a_segment_names_facts_and_pods_so_that_the_next_sample_is_answered() -> None:
    [*_, segment] = segments_of(owner(), 1, 150)
    asked = of_list(sample(150))
    after = owner()

    assert after.lists.lacking([asked])
    after.lists.adopt([segment])
    assert not after.lists.lacking([asked])
    assert answers(after.samples([asked], START_MS)) == [("set", "")]
    body = decode(segment.value, NodeWindowSegment)
    assert (body.facts_revision, body.facts) == (revision_of(FACTS), FACTS)
    assert (body.pods_revision, body.listed) == (revision_of(PODS), PODS)


def test_a_list_that_changed_since_the_segment_is_in_a_sample_before() -> None:
    [*_, segment] = segments_of(owner(), 1, 150)
    changed = of_list(keyframe(150, pods=OTHERS, **CHANGED))
    asked = of_list(sample(190, **CHANGED))
    after = owner()
    after.lists.adopt([segment])

    assert after.lists.lacking([asked]) == {(b"node-1", revision_of(OTHERS))}
    after.lists.adopt([of_list(sample(160, **CHANGED)), changed])
    assert not after.lists.lacking([asked])
    assert answers(after.samples([asked], START_MS)) == [("set", "")]


def test_what_no_segment_names_is_answered_skipped_as_before() -> None:
    """An owner of the version before writes segments without lists."""
    [*_, segment] = segments_of(owner(), 1, 150)
    body = msgspec.json.decode(segment.value or b"")
    old = {name: body[name] for name in body if name not in {"facts", "facts_revision", "listed", "pods_revision"}}
    after = owner()
    after.lists.adopt([msgspec.structs.replace(segment, value=encode(old))])

    assert len(after.lists.lacking([of_list(sample(150))])) == 2
    assert answers(after.samples([of_list(sample(150))], START_MS)) == [("skipped", "no pods")]
    assert after.restore([msgspec.structs.replace(segment, value=encode(old))]) == []


def test_a_segment_with_lists_is_read_like_one_without() -> None:
    [*_, segment] = segments_of(owner(), 1, 150)
    after = owner()

    assert after.restore([segment]) == []


def test_the_newest_segment_of_several_minutes_has_the_lists() -> None:
    """They are those of the samples now, not of the minute: once is enough."""
    worker = owner()
    worker.samples([of_list(keyframe(1))], START_MS)
    outs = worker.samples([of_list(sample(300, interval_ms=299_000))], START_MS)
    bodies = [decode(out.value, NodeWindowSegment) for out in outs if out.topic == WINDOW.name]

    assert len(bodies) > 1
    assert [body.listed is not None for body in bodies] == [False] * (len(bodies) - 1) + [True]


def test_records_that_cannot_be_read_are_passed_over() -> None:
    """They are dead letters where their figures are read."""
    after = owner()
    bad = [b'{"pods":[', b'{"node":"node-1","listed":[{"uid":1}],"pods":[],"facts":{}}', b'{"of":{"pods":[', None]
    after.lists.adopt([Record(topic=topic, partition=0, offset=0, timestamp_ms=0, key=b"node-1", value=value)
                       for value in bad for topic in (WINDOW.name, SAMPLE.name)])  # fmt: skip
    foreign = msgspec.structs.replace(of_list(keyframe(1)), key=b"node-2")
    after.lists.adopt([foreign])

    assert after.lists.lacking([of_list(sample(2))])


def test_what_a_sample_carries_itself_does_not_lack() -> None:
    assert not owner().lists.lacking([of_list(keyframe(1))])


def test_of_nodes_that_do_not_exist_nothing_lacks() -> None:
    worker = owner()
    closed = msgspec.structs.replace(worker.in_force, node_source="inventory")
    worker.policy(policy_record(closed))

    assert not worker.lists.lacking([of_list(sample(2))])


def test_lists_of_samples_are_read_once_though_they_come_again() -> None:
    """What was adopted counts for samples that name it and for the keyframe that carries it."""
    worker = owner()
    worker.lists.adopt([of_list(keyframe(1))])
    outs = worker.samples([of_list(sample(2)), of_list(keyframe(3)), of_list(sample(4))], START_MS)

    assert answers(outs) == [("set", "")] * 3
    assert not [out for out in outs if out.topic == DEAD_LETTER.name]
