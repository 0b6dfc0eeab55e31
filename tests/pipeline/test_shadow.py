"""A shadow beside real workers on real brokers: it says everything in topics of its own, and never costs an answer."""

import asyncio
import time

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import SHADOW_ALLOCATABLE, SHADOW_COMMAND
from slacktide.streams.engine import metrics
from slacktide.streams.engine.writing import LAG_MS, ShadowDoor
from slacktide.streams.kafka import each_answer
from slacktide.streams.worker.one_by_one import Shadow
from testbed.brokers import KafkaBroker, free_port
from testbed.policies import policy_from
from testbed.samples import SUPPRESS, inventory_record, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig, until

NODES = [f"node-{number}" for number in range(6)]
TIGHT = policy_from(
    colocation={"enable": True, "metricAggregateDurationSeconds": 10},
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 45}},
)


def skipped() -> float:
    """Samples of which shadows said nothing, so far."""
    value: float = metrics.SHADOW_SKIPPED._value.get()  # type: ignore[attr-defined]
    return value


async def shadow_commands(rig: Rig, count: int) -> list[NodeCommand]:
    """Wait for so many."""
    found: list[NodeCommand] = []
    until_s = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < until_s, f"{len(found)} of {count}"
        records = each_answer(await rig.read(SHADOW_COMMAND.name))
        found = [decode(record.value, NodeCommand) for record in records]
    return found


async def sold_by_shadows(rig: Rig, since: int) -> list[NodeAllocatable]:
    """Feed all nodes on until each has figures: a worker new to a partition holds them back for a while."""
    found: list[NodeAllocatable] = []
    for seq in range(since, since + 60):
        if {each.node for each in found} == set(NODES):
            break
        await rig.send([keyframe(seq, node) for node in NODES])
        await asyncio.sleep(0.3)
        found = [decode(record.value, NodeAllocatable) for record in await rig.read(SHADOW_ALLOCATABLE.name)]
    return found


async def test_two_workers_with_one_shadow_decide_every_sample_twice(rig: Rig) -> None:
    """Each share by its own worker; the real answers are one to a sample, and so are the shadow's."""
    samples = [keyframe(1, node) for node in NODES] + [sample(seq, node) for seq in range(2, 6) for node in NODES]
    async with (
        rig.worker("a", Shadow("a", TIGHT)) as first,
        rig.worker("b", Shadow("b", TIGHT)) as second,
    ):
        await until(lambda: not first.health.not_ready and not second.health.not_ready, "both have their share")
        await rig.send(samples)
        real = await rig.answered(samples)
        beside = await shadow_commands(rig, len(samples))
        sold = await sold_by_shadows(rig, since=6)

    wanted = sorted((each.node, each.seq) for each in samples)
    assert sorted((each.node, each.seq) for each in beside) == wanted
    assert {each.policy_version for each in real} == {SUPPRESS.version}
    assert {each.policy_version for each in beside} == {TIGHT.version}
    assert {each.hold[0].limits.be_cfs_quota_us for each in real} == {150_000}
    assert {each.hold[0].limits.be_cfs_quota_us for each in beside} == {80_000}
    assert {each.node for each in sold} == set(NODES)
    assert {each.policy_version for each in sold} == {TIGHT.version}


async def test_a_shadow_that_raises_or_has_no_topics_costs_no_answer(rig: Rig) -> None:
    """It is counted, and the worker's session goes on."""

    class Broken(Shadow):
        def answer(self, *_: object) -> NodeCommand:
            raise ZeroDivisionError

    before = skipped()
    samples = [keyframe(1, node) for node in NODES]
    async with rig.worker(shadow=Broken("w", TIGHT)) as running:
        await rig.send(samples)
        answers = await rig.answered(samples)
        await until(lambda: skipped() >= before + len(samples), "each is counted")

        assert not running.health.not_ready
    assert {each.answer for each in answers} == {"set"}
    assert await rig.read(SHADOW_COMMAND.name) == []


@pytest.mark.kafka
async def test_without_the_shadows_topics_the_worker_answers_all_the_same(kafka_broker: KafkaBroker) -> None:
    kafka_broker.apply_topics(PARTITIONS)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    await admin.delete_topics([SHADOW_COMMAND.name, SHADOW_ALLOCATABLE.name])
    await admin.close()
    before = skipped()
    samples = [keyframe(1, node) for node in NODES]
    async with Rig(kafka_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        async with rig.worker(shadow=Shadow("w", TIGHT)):
            await rig.send(samples)
            answers = await rig.answered(samples)

    assert {each.answer for each in answers} == {"set"}
    assert skipped() >= before + len(samples)


async def test_of_nodes_that_stay_silent_a_shadow_that_cannot_speak_keeps_the_last_word_alone() -> None:
    """Each is told of every 5 s: a week without the shadow's topics must not fill the worker's memory."""
    shadow = Shadow("w", TIGHT)
    async with ShadowDoor(shadow, Cluster(f"127.0.0.1:{free_port()}"), lambda: 0) as door:
        for _ in range(100):
            for node in NODES:
                shadow.removed(inventory_record(None, node), node)
            door.go_on()
        waiting = len(door._unasked)

    assert waiting == len(NODES)


async def test_samples_that_waited_in_the_log_are_left_to_the_real_policy(rig: Rig) -> None:
    """A worker that is behind has no time for a shadow; what comes once it has caught up, the shadow decides."""
    samples = [keyframe(1, node) for node in NODES]
    before = skipped()
    await rig.send(samples)
    await asyncio.sleep(LAG_MS / 1_000 + 0.1)
    async with rig.worker(shadow=Shadow("w", TIGHT)):
        await rig.answered(samples)
        fresh = [sample(2, node) for node in NODES]
        await rig.send(fresh)
        await rig.answered(fresh)
        beside = await shadow_commands(rig, len(fresh))

    assert {each.seq for each in beside} == {2}
    assert skipped() == before + len(samples)
