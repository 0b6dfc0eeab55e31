"""Samples in columns on real brokers: agents and workers of both forms side by side, and one that changes over."""

from __future__ import annotations

from pathlib import Path

import msgspec

from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.tick import WorkerTick
from slacktide.schemas.topics import METRIC, SAMPLE, SAMPLE_COLUMNS, TICK
from slacktide.streams.rows import Rows
from testbed.agent_rig import agent_of
from testbed.one_machine import NODE, VirtualNode
from testbed.samples import PODS, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig, until
from testbed.waiting import soon

ROWS = ["node-0", "node-2"]
COLUMNS = ["node-1", "node-3"]


async def test_both_forms_are_answered_and_committed(rig: Rig) -> None:
    """Over a stop and a start nothing is answered twice, and lists that were carried before are known again."""
    first = [keyframe(1, node) for node in (*ROWS, *COLUMNS)]
    first += [sample(seq, node) for seq in range(2, 5) for node in (*ROWS, *COLUMNS)]
    await rig.send(one for one in first if one.node in ROWS)
    await rig.send_columns([one for one in first if one.node in COLUMNS], PODS)
    async with rig.worker() as running:
        answers = await rig.answered(first)
        await running.stopped()
    done = [sum((await rig.committed(topic)).values()) for topic in (SAMPLE.name, SAMPLE_COLUMNS.name)]
    second = [sample(seq, node) for seq in range(5, 8) for node in (*ROWS, *COLUMNS)]
    await rig.send(one for one in second if one.node in ROWS)
    await rig.send_columns([one for one in second if one.node in COLUMNS], PODS)
    async with rig.worker():
        answers += await rig.answered(second)

        async def ticks() -> list[WorkerTick]:
            return [decode(record.value, WorkerTick) for record in await rig.read(TICK.name)]

        told = await soon(
            ticks, "a tick of all places", 60.0, enough=lambda found: len(found[-1:]) and whole(found[-1])
        )

    assert {answer.answer for answer in answers} == {"set"}
    assert {(answer.node in COLUMNS, answer.sample.topic) for answer in answers if answer.sample is not None} == {
        (False, SAMPLE.name), (True, SAMPLE_COLUMNS.name),
    }  # fmt: skip
    assert all(len(each) == 1 for each in rig.answers.values()), "answered once"
    assert done == [8, 8]
    assert len(told[-1].partitions) == 2 * PARTITIONS


def whole(tick: WorkerTick) -> bool:
    return len(tick.partitions) == 2 * PARTITIONS and all(one.end is not None for one in tick.partitions)


async def test_members_of_a_group_hold_the_same_partitions_of_both_topics(rig: Rig) -> None:
    """Else a node that changes its form would change its worker, and the other one would call it stale."""
    async with rig.worker("blue") as blue, rig.worker("green") as green:

        def shared() -> bool:
            held = [running.worker for running in (blue, green)]
            return len(held) == 2 and not blue.health.not_ready and not green.health.not_ready

        await until(shared, "the group is shared out")
        asked = [keyframe(1, f"node-{number}") for number in range(PARTITIONS)]
        changed = [msgspec.structs.replace(one, boot_id="000000000002-0000000b") for one in asked]
        await rig.send(asked)
        before = {answer.node: answer.worker for answer in await rig.answered(asked)}
        await rig.send_columns(changed, PODS)
        after = {answer.node: answer.worker for answer in await rig.answered(changed)}

    assert set(before.values()) == {"blue", "green"}
    assert after == before


async def test_an_agent_writes_columns_and_a_worker_answers_them(rig: Rig, tmp_path: Path) -> None:
    """Then it starts again and writes rows: its node is answered all along, and no record is a dead letter."""
    with VirtualNode(tmp_path) as node:
        async with rig.worker():
            async with agent_of(node, rig.bootstrap, tmp_path, sample_format="v2"):
                await soon_answered(rig, SAMPLE_COLUMNS.name)
            async with agent_of(node, rig.bootstrap, tmp_path, sample_format="v1"):
                await soon_answered(rig, SAMPLE.name)
        rows = Rows()
        written = [rows.value(record.key, record.value) for record in await rig.read(SAMPLE_COLUMNS.name)]

    assert all(value.startswith(b'{"node":') for value in written), "each list was carried before it was named"
    assert not [one for one in every(rig) if one.answer == "skipped" and one.reason.startswith("not a")]
    metrics = [decode(record.value, NodeMetric) for record in await rig.read(METRIC.name)]
    assert not [one for one in metrics if one.stale_ms]


def every(rig: Rig) -> list[NodeCommand]:
    return [one for answers in rig.answers.values() for one in answers if one.node == NODE]


async def soon_answered(rig: Rig, topic: str) -> None:
    def answered() -> bool:
        said = [one for one in every(rig) if one.sample is not None and one.sample.topic == topic]
        return len([one for one in said if one.answer in {"set", "keep"}]) >= 5

    await until(answered, f"samples of {topic} are answered")
