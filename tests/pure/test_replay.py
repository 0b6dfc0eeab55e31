"""A trace replayed: equal where a worker rightly said what it said, different wherever something was changed."""

import re
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.traces import in_order, replayed

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeInventory, revision_of
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import NodeSample, NodeUse
from slacktide.schemas.topics import COMMAND, METRIC
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker
from testbed.samples import FACTS, GIB, START_MS, SUPPRESS, inventory_record, keyframe, policy_record, sample
from testbed.samples import record_of as bare_record

TIGHT = policy_of(
    Colocation(enable=True, metric_aggregate_duration_s=10),
    ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_pct=40),
)
POLICY_AT = msgspec.structs.replace(policy_record(), timestamp_ms=START_MS - 60_000)


def at(said: NodeSample, offset: int | None = None) -> Record:
    """The sample in the log at its own second."""
    return msgspec.structs.replace(bare_record(said, offset=offset), timestamp_ms=START_MS + said.seq * 1_000)


def answers(worker: Worker, asked: Sequence[Record], late_ms: int = 20) -> list[Record]:
    """What a worker writes about each, a moment later."""
    written = []
    for record in asked:
        when = record.timestamp_ms + late_ms
        written += [
            Record(topic=out.topic, partition=0, offset=record.offset, timestamp_ms=when, key=out.key, value=out.value)
            for out in worker.samples([record], when)
        ]
    return written


def worker(policy: Policy = SUPPRESS, name: str = "blue") -> Worker:
    made = Worker(name)
    made.policy(policy_record(policy))
    return made


def minute(count: int = 25, **changes: object) -> list[Record]:
    """Samples of one node, a keyframe every ten seconds; evictions and knobs not asked for."""
    return [at((keyframe if seq % 10 == 0 else sample)(seq, **changes)) for seq in range(count)]


def trace(*more: Record, count: int = 25) -> list[Record]:
    """A worker that answered everything in time."""
    asked = minute(count)
    return in_order([POLICY_AT, *asked, *answers(worker(), asked), *more])


def changed(records: list[Record], which: Record, value: bytes) -> list[Record]:
    return [msgspec.structs.replace(one, value=value) if one is which else one for one in records]


def commands(records: list[Record]) -> list[Record]:
    return [record for record in records if record.topic == COMMAND.name]


def test_what_a_worker_said_is_equal() -> None:
    result = replayed(trace())

    assert result.equal
    assert result.commands == {"equal": 25}
    assert result.figures == {"equal": 10}


def test_who_said_it_and_when_is_not_compared() -> None:
    """Evidence, not content: another worker, another time, another offset."""
    records = trace()
    asked = commands(records)[7]
    command = decode(asked.value, NodeCommand)
    moved = msgspec.structs.replace(
        command, worker="other", decided_ms=1, sample=msgspec.structs.replace(command.sample, offset=99)
    )

    assert replayed(changed(records, asked, encode(moved))).equal


RECORDS = trace()
COMMANDS = commands(RECORDS)
SHORT = trace(count=6)


@settings(deadline=None)  # each example is a replay
@given(st.data())
def test_a_flipped_digit_anywhere_in_a_command_is_found(data: st.DataObject) -> None:
    """In every field but those that say who decided, when, and where the sample stood."""
    asked = data.draw(st.sampled_from(commands(SHORT)))
    body = asked.value.decode()
    content = body.partition(',"decided_ms":')[0]
    place = data.draw(st.sampled_from([found.start() for found in re.finditer(r"\d", content)]))
    digit = data.draw(st.sampled_from([other for other in "0123456789" if other != body[place]]))

    result = replayed(changed(SHORT, asked, f"{body[:place]}{digit}{body[place + 1 :]}".encode()))

    assert not result.equal
    assert result.differences[0].offset == asked.offset


def test_a_difference_names_the_record_and_the_field() -> None:
    asked = COMMANDS[11]
    command = decode(asked.value, NodeCommand)
    hold = msgspec.structs.replace(
        command.hold[0], limits=msgspec.structs.replace(command.hold[0].limits, be_cfs_quota_us=12_345)
    )
    result = replayed(changed(RECORDS, asked, encode(msgspec.structs.replace(command, hold=[hold]))))
    found = result.differences[0]

    assert (found.topic, found.partition, found.offset, found.key) == (COMMAND.name, 0, 11, "node-1")
    assert [(one.path, one.recorded) for one in found.fields] == [("hold[0].limits.be_cfs_quota_us", 12_345)]
    assert found.fields[0].replayed == command.hold[0].limits.be_cfs_quota_us


def test_a_figure_that_was_changed_is_found() -> None:
    asked = next(record for record in RECORDS if record.topic == METRIC.name and record.offset >= 10)
    body = asked.value.replace(b'"node_use":{"cpu_milli":1500', b'"node_use":{"cpu_milli":1501')
    assert body != asked.value

    result = replayed(changed(RECORDS, asked, body))

    assert [(one.topic, [field.path for field in one.fields]) for one in result.differences] == [
        (METRIC.name, ["node_use.cpu_milli"])
    ]


def test_a_sample_that_was_never_answered_is_found() -> None:
    lacking = [record for record in RECORDS if not (record.topic == COMMAND.name and record.offset == 5)]

    result = replayed(lacking)

    assert (result.unanswered, result.equal) == (1, False)
    assert result.differences[0].why == "unanswered, although a later sample of its partition was answered"


def test_what_was_not_answered_yet_at_the_end_is_no_difference() -> None:
    result = replayed([record for record in RECORDS if record.topic != COMMAND.name or record.offset < 20])

    assert (result.waiting, result.equal) == (5, True)


def test_an_answer_to_no_sample_is_found() -> None:
    """A well-formed one, with an id of its own."""
    stray = answers(worker(), [at(keyframe(77), offset=3)])[0]

    assert not replayed(in_order([*RECORDS, msgspec.structs.replace(stray, timestamp_ms=START_MS + 9_000)])).equal


def test_answers_that_come_twice_are_equal_and_counted() -> None:
    twice = [msgspec.structs.replace(record, offset=record.offset + 100) for record in COMMANDS[3:9]]
    result = replayed(in_order([*RECORDS, *twice]))

    assert (result.equal, result.commands) == (True, {"equal": 31, "repeated": 6})


def test_a_policy_that_reaches_a_worker_later_is_no_false_alarm() -> None:
    """It answers by the old one for a while, and refuses samples that name the new one."""
    asked = [*minute(12), *(at(sample(seq, policy_version=TIGHT.version)) for seq in range(12, 20))]
    blue = worker()
    heard = answers(blue, asked[:15])
    blue.policy(policy_record(TIGHT))
    told = msgspec.structs.replace(policy_record(TIGHT), timestamp_ms=asked[11].timestamp_ms + 1, offset=1)
    result = replayed(in_order([POLICY_AT, told, *asked, *heard, *answers(blue, asked[15:])]))

    assert (result.equal, result.policies) == (True, 2)
    assert result.commands["equal, by the policy that its worker held"] == 3


def test_a_policy_that_no_longer_held_is_found() -> None:
    """A minute after the change nobody may answer by the old one."""
    asked = [*minute(12), *(at((keyframe if seq % 10 == 0 else sample)(seq)) for seq in range(12, 80))]
    told = msgspec.structs.replace(policy_record(TIGHT), timestamp_ms=asked[5].timestamp_ms, offset=1)
    result = replayed(in_order([POLICY_AT, told, *asked, *answers(worker(), asked)]))

    assert not result.equal
    assert result.differences[0].timestamp_ms > told.timestamp_ms + 30_000


def test_a_policy_that_was_compacted_away_is_said_and_not_judged() -> None:
    """Only the newest record of a compacted topic is sure to be there."""
    asked = minute()
    newest = msgspec.structs.replace(policy_record(TIGHT), timestamp_ms=START_MS + 3_600_000)
    result = replayed(in_order([newest, *asked, *answers(worker(), asked)]))

    assert result.commands == {"not compared: by a policy that the trace does not have": 25}
    assert not result.equal


def test_the_newest_policy_alone_holds_from_the_beginning() -> None:
    """Its writer repeats it every minute, and older records of it are compacted away."""
    again = msgspec.structs.replace(POLICY_AT, timestamp_ms=START_MS + 3_600_000)

    assert replayed(in_order([again, *RECORDS[1:]])).equal


def test_a_takeover_is_no_false_alarm() -> None:
    """The new worker has read twenty seconds back, in which the pods were not said."""
    asked = [at((keyframe if seq in {0, 40} else sample)(seq)) for seq in range(60)]
    blue, green = worker(), worker(name="green")
    green.learn(asked[20:30])
    result = replayed(in_order([POLICY_AT, *asked, *answers(blue, asked[:30]), *answers(green, asked[30:], 900)]))

    assert (result.equal, result.takeovers) == (True, 1)
    assert result.commands["equal, by a worker that knew no more"] == 10


def test_a_window_that_began_at_a_takeover_is_compared_once_it_lies_behind_it() -> None:
    """Until then a new worker's averages are over less than the replay's; a changed figure is found afterwards."""
    used = [NodeUse(cpu_milli=1_500 + 200 * seq, mem_bytes=GIB) for seq in range(60)]
    asked = [at((keyframe if seq in {0, 30} else sample)(seq, use=used[seq])) for seq in range(60)]
    records = in_order([POLICY_AT, *asked, *answers(worker(), asked[:30]), *answers(worker(name="green"), asked[30:])])
    result = replayed(records)
    assert result.equal
    assert result.figures["not compared: a window began elsewhere"] > 0

    found = {}
    for record in (one for one in records if one.topic == METRIC.name and one.offset in {33, 34, 56, 57, 58}):
        wrong = re.sub(rb'"node_use":{"cpu_milli":', b'"node_use":{"cpu_milli":1', record.value or b"")
        found[record.offset] = not replayed(changed(records, record, wrong)).equal
    assert not any(different for offset, different in found.items() if offset < 40)
    assert any(different for offset, different in found.items() if offset > 45)


def test_a_worker_that_forgets_without_a_takeover_is_found() -> None:
    asked = [at((keyframe if seq in {0, 60} else sample)(seq)) for seq in range(70)]
    blue, blank = worker(), worker()
    result = replayed(in_order([POLICY_AT, *asked, *answers(blue, asked[:40]), *answers(blank, asked[40:])]))

    assert not result.equal
    assert [field.path for field in result.differences[0].fields] == ["answer", "reason", "hold"]


def test_a_stretch_without_a_worker_is_no_false_alarm() -> None:
    """The guards decided; a worker that came later answered all the same."""
    asked = minute(40)
    blue = worker()
    late = [
        msgspec.structs.replace(record, timestamp_ms=asked[30].timestamp_ms + 50)
        for record in answers(blue, asked[12:30])
    ]
    result = replayed(in_order([POLICY_AT, *asked, *answers(worker(), asked[:12]), *late, *answers(blue, asked[30:])]))

    assert result.equal


def test_a_span_that_begins_in_the_middle_compares_from_the_first_keyframe_on() -> None:
    middle = [record for record in RECORDS if record.topic != COMMAND.name or record.offset >= 5]
    middle = [record for record in middle if record.topic != METRIC.name or record.offset >= 5]
    middle = [r for r in middle if r.timestamp_ms >= START_MS + 5_000 or r is POLICY_AT]
    result = replayed(middle)

    assert result.equal
    assert result.commands == {"not compared: pods or facts were published before the span": 5, "equal": 15}
    assert result.compares_from_ms == {"node-1": START_MS + 10_020}


def test_samples_before_the_span_are_learned_from() -> None:
    result = replayed(RECORDS, since_ms=START_MS + 5_000)

    assert (result.equal, result.commands["equal"], result.samples) == (True, 20, 20)


def test_an_answer_that_the_log_refused_is_equal_to_what_stands_for_it() -> None:
    asked = minute(3)
    blue = worker()
    outs = [out for record in asked for out in blue.samples([record], record.timestamp_ms) if out.topic == COMMAND.name]
    instead = blue.refused(outs[1], "too large", START_MS)[-1]
    records = [
        Record(
            topic=out.topic, partition=0, offset=n, timestamp_ms=START_MS + n * 1_000 + 9, key=out.key, value=out.value
        )
        for n, out in enumerate([outs[0], instead, outs[2]])
    ]
    result = replayed(in_order([POLICY_AT, *asked, *records]))

    assert (result.equal, result.commands["equal, rejected by Kafka"]) == (True, 1)


def test_only_the_nodes_that_were_asked_for_are_compared() -> None:
    result = replayed(RECORDS, nodes=["node-2"])

    assert (result.samples, result.compared, result.equal) == (0, 0, False)


def test_a_removed_node_is_no_false_alarm() -> None:
    """Its worker forgot pods and facts a moment before or after the replay does."""
    asked = [at((keyframe if seq in {0, 15} else sample)(seq)) for seq in range(25)]
    blue = worker()
    first = answers(blue, asked[:12])
    blue.inventory(inventory_record(None))
    gone = msgspec.structs.replace(inventory_record(None), timestamp_ms=asked[10].timestamp_ms + 500)
    result = replayed(in_order([POLICY_AT, gone, *asked, *first, *answers(blue, asked[12:])]))

    assert result.equal


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b"\xff", b'{"node":7}'])
def test_a_command_that_is_none_is_told(value: bytes) -> None:
    result = replayed(changed(RECORDS, COMMANDS[3], value))

    assert "not an answer" in {found.why.partition(":")[0] for found in result.differences}


def test_two_agents_of_one_name_and_unknown_nodes_are_replayed_equal() -> None:
    """All that a worker of the inventory said: to both agents, to the one that was left, and to an invented node."""
    listed = msgspec.structs.replace(SUPPRESS, node_source="inventory")
    facts = inventory_record(NodeInventory(node="node-1", revision=revision_of(FACTS), facts=FACTS))
    described = msgspec.structs.replace(facts, timestamp_ms=START_MS - 50_000)
    made = worker(listed)
    made.inventory(described)
    lower, higher = "000000000001-0000000a", "000000000009-0000000b"
    said: list[Record] = []
    for seq in range(60):
        boots = [lower, higher] if 10 <= seq < 20 else [lower]
        for boot in boots:
            said.append(at(keyframe(seq, boot_id=boot), len(said)))
        if 5 <= seq < 8:
            said.append(at(keyframe(seq, "invented"), len(said)))
    policy = msgspec.structs.replace(policy_record(listed), timestamp_ms=START_MS - 60_000)
    written = answers(made, said)
    reasons = {decode(one.value, NodeCommand).reason.partition(":")[0] for one in written if one.topic == COMMAND.name}
    assert reasons == {"", "two boots", "unknown node"}

    result = replayed(in_order([policy, described, *said, *written]))
    assert (result.differences, result.equal) == ([], True)
    assert result.commands["equal"] == sum(one.topic == COMMAND.name for one in written)
