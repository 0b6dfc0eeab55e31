"""The stream worker on Faust and on aiokafka alone, on real brokers: in, out, what is committed."""

import msgspec
import pytest
from aiokafka import ConsumerRecord

from slacktide.schemas.policy import policy_of
from slacktide.schemas.sample_columns_codec import identity_of
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, METRIC, POLICY, SAMPLE
from slacktide.streams.engine import transport
from slacktide.streams.kafka import POLL_RECORDS_MAX
from testbed.samples import SUPPRESS, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig, until
from testbed.waiting import soon

NODES = [f"node-{number}" for number in range(6)]


async def test_every_sample_is_answered_in_its_partition_and_only_then_committed(rig: Rig) -> None:
    """Across a clean stop and a start nothing is answered twice, and what was said before is known again."""
    first = [keyframe(1, node) for node in NODES] + [sample(seq, node) for seq in range(2, 5) for node in NODES]
    await rig.send(first)
    async with rig.worker() as running:
        answers = await rig.answered(first)
        await running.stopped()
    committed = await rig.committed()
    second = [sample(seq, node) for seq in range(5, 8) for node in NODES]
    await rig.send(second)
    async with rig.worker():
        answers += await rig.answered(second)
        # Nothing is published of a partition until its windows are whole; then with the next sample.
        for seq in range(8, 60):
            published = {record.key for record in await rig.read(ALLOCATABLE.name)}
            if published == {node.encode() for node in NODES}:
                break
            third = [sample(seq, node) for node in NODES]
            await rig.send(third)
            await rig.answered(third)

    assert {answer.answer for answer in answers} == {"set"}
    assert all(len(each) == 1 for each in rig.answers.values()), "answered once"
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for record in await rig.read(SAMPLE.name):
        ends[record.partition] += identity_of(record.value or b"")[1] < 5
    assert committed == {number: end for number, end in ends.items() if end}, "committed is what was processed"
    said = {record.key: record.partition for record in await rig.read(SAMPLE.name)}
    for records in (rig.commands, await rig.read(METRIC.name), await rig.read(ALLOCATABLE.name)):
        assert {record.key: record.partition for record in records} == said


async def test_what_operators_say_takes_effect_while_the_worker_runs(rig: Rig) -> None:
    """A policy, a bad policy, and the end of a node."""
    off = policy_of(SUPPRESS.colocation, msgspec.structs.replace(SUPPRESS.resource_threshold, enable=False))
    async with rig.worker() as running:
        await rig.send([keyframe(1, "node-1")])
        [first] = await rig.answered([keyframe(1, "node-1")])
        await rig.put(POLICY.name, [(b"policy", b"{", 0)])
        letters = await rig.dead_letters()  # a bad policy that a good one has overwritten is nobody's
        await rig.publish(off)
        await until(lambda: running.worker.in_force.version == off.version, "the policy is in force")
        new = sample(2, "node-1", policy_version=off.version)
        await rig.send([new])
        [second] = await rig.answered([new])
        await rig.put(INVENTORY.name, [(b"node-1", None, 1)])

        async def removals() -> list[ConsumerRecord]:
            read = [await rig.read(topic.name) for topic in (METRIC, ALLOCATABLE)]
            return [record for records in read for record in records if not record.value]

        gone = await soon(removals, "figures of the node are removed", enough=lambda found: len(found) >= 2)

    assert [limits.be_cfs_quota_us for limits in (first.hold[0].limits, second.hold[0].limits)] == [150_000, None]
    assert [(record.topic, record.partition) for record in gone] == [(METRIC.name, 1), (ALLOCATABLE.name, 1)]
    assert {letter.topic for letter in letters} == {POLICY.name}


async def test_no_partition_waits_for_the_others_where_a_worker_falls_behind(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust pauses the partition of what comes to a full buffer: under a steady load for minutes."""
    paused: list[object] = []
    monkeypatch.setattr(transport.Consumer, "on_buffer_full", lambda _, place: paused.append(place))
    backlog = [sample(seq, node) for seq in range(1, 2 * POLL_RECORDS_MAX) for node in NODES]
    await rig.send(backlog)
    async with rig.worker():
        await rig.answered(backlog)

    assert paused == []


async def test_health_says_when_the_worker_can_work_and_when_it_has(rig: Rig) -> None:
    running = rig.start()
    before = running.health.not_ready
    await running.ready()
    joined = running.health.not_fresh
    await rig.send([keyframe(1)])
    await rig.answered([keyframe(1)])
    await until(lambda: not running.health.not_fresh, "it is fresh")
    await running.stopped()

    assert before == "starting"
    assert joined in {"nothing seen yet", "no sample answered yet"}
    assert (running.health.not_live, running.health.not_ready) == ("", "stopped")
