"""Answers that keep: written together, read apart, in the order of each node."""

from collections import defaultdict

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import KEEP_KEY, KEPT_MAX, NodeCommand, NodesKept, Origin, command_id, kept_command
from slacktide.schemas.headers import traceparent
from slacktide.schemas.heartbeat import RESERVED
from slacktide.schemas.topics import COMMAND, METRIC, SAMPLE, SHADOW_COMMAND
from slacktide.streams.kept import answers_in, folded
from slacktide.streams.records import Out, Record, Writer

WRITER = Writer("stream/blue")
NODES = ("node-1", "node-10", 'no"de', "n\\1", "ö" * 30)


def command(node: str, seq: int, answer: str, *, reason: str = "", proof: str = "") -> NodeCommand:
    return NodeCommand(
        id=command_id(node, "1-a", seq, "answer", node, "p"),
        node=node,
        boot_id="1-a",
        seq=seq,
        observed_ms=500,
        policy_version="p",
        facts_revision="f",
        pods_revision="q",
        answer=answer,  # type: ignore[arg-type]
        reason=reason,
        decided_ms=600,
        worker="blue",
        sample=Origin(topic=SAMPLE.name, partition=seq % 2, offset=seq),
        proof=proof,  # type: ignore[arg-type]
    )


def record(out: Out, offset: int = 7) -> Record:
    assert out.partition is not None
    place = {"topic": out.topic, "partition": out.partition, "offset": offset}
    return Record(timestamp_ms=700, key=out.key, value=out.value, headers=out.headers, **place)  # type: ignore[arg-type]


def kept(*nodes: str) -> Record:
    [out] = folded(WRITER.answer(command(node, 2 * number, "keep"), 0) for number, node in enumerate(nodes))
    return record(out)


def identity(value: bytes | None) -> tuple[object, ...]:
    its = msgspec.structs.asdict(decode(value, NodeCommand))
    its.pop("sample")
    return tuple(str(one) for one in its.values())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NODES),
            st.sampled_from(("keep", "keep", "keep", "set", "skipped")),
            st.sampled_from(("", "off")),
            st.sampled_from(("", "ok")),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_every_answer_is_read_as_it_was_given_and_each_node_reads_its_own_in_order(
    answers: list[tuple[str, str, str, str, bool]],
) -> None:
    outs = []
    for seq, (node, answer, reason, proof, shadow) in enumerate(answers):
        write = WRITER.shadow_answer if shadow else WRITER.answer
        outs.append(write(command(node, seq, answer, reason=reason, proof=proof), NODES.index(node) % 2))
    given_by_node, read_by_node = defaultdict(list), defaultdict(list)
    for out in outs:
        given_by_node[out.topic, out.partition, out.key].append(identity(out.value))
    for written in folded(outs):
        for one in answers_in(record(written)):
            read_by_node[one.topic, one.partition, one.key].append(identity(one.value))
    assert read_by_node == given_by_node
    for node in NODES:
        of_one = [one for written in folded(outs) for one in answers_in(record(written), node.encode())]
        assert {one.key for one in of_one} <= {node.encode()}
        assert len(of_one) == sum(out.key == node.encode() for out in outs)


def test_a_turn_of_a_partition_is_one_record_with_its_last_sample() -> None:
    outs = [WRITER.answer(command(f"node-{seq}", seq, "keep"), 3) for seq in range(100)]
    [out] = folded(outs)
    body = decode(out.value, NodesKept)
    assert (out.topic, out.partition, out.key) == (COMMAND.name, 3, KEEP_KEY.encode())
    assert [seq for _, _, seq in body.kept] == list(range(100))
    assert body.sample == Origin(topic=SAMPLE.name, partition=3, offset=99)
    *others, last = [decode(one.value, NodeCommand) for one in answers_in(record(out))]
    assert [one.sample for one in others] == [None] * 99
    assert last.sample == body.sample
    assert last.id == command_id("node-99", "1-a", 99, "answer", "node-99", "p")


def test_each_answer_is_in_the_trace_of_its_sample() -> None:
    boot, source = "node-1/1-a", "stream/blue"
    [said] = answers_in(kept("node-1", "node-2"), b"node-1")
    assert dict(said.headers)["traceparent"] == traceparent(boot, COMMAND.name, source) % (0, 0)
    assert dict(said.headers)["ce_subject"] == b"node-1"


def test_a_record_has_at_most_so_many_answers() -> None:
    outs = folded(WRITER.answer(command(f"node-{seq}", seq, "keep"), 0) for seq in range(2 * KEPT_MAX + 1))
    assert [len(decode(out.value, NodesKept).kept) for out in outs] == [KEPT_MAX, KEPT_MAX, 1]


def test_a_node_is_answered_by_its_whole_name() -> None:
    read = kept("node-10", "node-1")
    assert [one.key for one in answers_in(read, b"node-1")] == [b"node-1"]
    assert answers_in(read, b"node-") == []
    assert answers_in(read, KEEP_KEY.encode()) == []


def test_what_cannot_be_read_stays_for_its_reader_to_refuse() -> None:
    for value in (b"{", b"[]", b'{"kept":[["node-1","1-a",-1]],"policy_version":"p"}', b'"node-1"'):
        bad = msgspec.structs.replace(kept("node-1"), value=value)
        assert answers_in(bad) == [bad]
        assert answers_in(bad, b"node-1") == ([bad] if b'"node-1"' in value else [])


def test_only_topics_of_commands_hold_many_answers_in_one() -> None:
    read = kept("node-1", "node-2")
    for topic, count in ((COMMAND, 2), (SHADOW_COMMAND, 2), (METRIC, 1)):
        assert len(answers_in(msgspec.structs.replace(read, topic=topic.name))) == count
    deleted = msgspec.structs.replace(read, value=None)
    assert answers_in(deleted) == [deleted]


def test_no_node_has_the_name_of_the_key() -> None:
    assert KEEP_KEY.startswith(RESERVED)


def test_a_record_names_no_more_than_the_sample_and_what_all_have_in_common() -> None:
    [out] = folded([WRITER.answer(command("node-1", 1, "keep", reason="off"), 1)])
    turn = decode(out.value, NodesKept)
    assert encode(turn) == (
        b'{"policy_version":"p","reason":"off","decided_ms":600,"worker":"blue",'
        b'"sample":{"topic":"slacktide.node.sample.v2","partition":1,"offset":1},"kept":[["node-1","1-a",1]]}'
    )
    assert kept_command(turn, turn.kept[0]).answer == "keep"
