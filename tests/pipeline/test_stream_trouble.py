"""A stream worker in trouble: killed, joined by another, and its broker gone."""

import asyncio
import os
import signal
from itertools import islice
from pathlib import Path

import pytest

from slacktide.deploy.runtime.process import DRAIN_S
from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.feed import NODES, Feed, agree
from testbed.parts import END_S, Part
from testbed.samples import SUPPRESS, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig, until


async def test_a_worker_killed_in_mid_stream_loses_nothing(rig: Rig) -> None:
    """Every sample is answered at least once, and where twice, with the same decision."""
    victim = rig.process("victim")
    heir = None
    try:
        feed = Feed(rig)
        await until(lambda: len(rig.commands) > 100, "the first worker answers")
        victim.kill()
        victim.wait()
        killed_at = len(rig.commands)
        heir = rig.process("heir")
        await until(lambda: len(rig.commands) > killed_at + 400, "the second worker answers")
        answers = await rig.answered(await feed.stop())
    finally:
        for process in filter(None, (victim, heir)):
            process.kill()
            process.wait()

    assert {answer.answer for answer in answers} == {"set"}
    assert {answer.worker for answer in answers} == {"victim", "heir"}
    assert agree(rig.answers)


async def test_partitions_move_to_a_worker_that_joins_and_back_when_it_leaves(rig: Rig) -> None:
    """A new owner knows the pods that were said before it came."""
    async with rig.worker("first"):
        feed = Feed(rig)
        await until(lambda: len(rig.commands) > 50, "the first worker answers")
        async with rig.worker("second"):
            await until(lambda: "second" in workers(rig, last=50), "the second worker answers")
            await until(lambda: workers(rig, last=50) == {"first", "second"}, "both answer")
        await until(lambda: workers(rig, last=50) == {"first"}, "the first one answers again")
        answers = await rig.answered(await feed.stop())

    assert {answer.answer for answer in answers} == {"set"}
    assert agree(rig.answers)


def workers(rig: Rig, last: int) -> set[str]:
    return {several[-1].worker for several in islice(reversed(rig.answers.values()), last)}


async def test_a_worker_outlives_a_broker_that_loses_everything(embedded_broker: EmbeddedBroker) -> None:
    """Topics made anew begin at offset 0, with another policy; the worker reads both from the start."""
    embedded_broker.apply_topics(PARTITIONS)
    async with Rig(embedded_broker.bootstrap) as before:
        await before.publish(SUPPRESS)
        worker = before.start()
        try:
            await worker.ready()
            await before.send(first := [keyframe(seq, node) for seq in range(1, 30) for node in NODES])
            await before.answered(first)
            embedded_broker.stop(signal.SIGKILL)
            embedded_broker.start()
            embedded_broker.apply_topics(PARTITIONS)
            async with Rig(embedded_broker.bootstrap, group=before.group) as after:
                await after.publish(SUPPRESS)
                await after.send(second := [keyframe(seq, node) for seq in range(30, 33) for node in NODES])
                answers = await after.answered(second)
        finally:
            await worker.stopped()

    assert {answer.answer for answer in answers} == {"set"}


@pytest.mark.kafka
async def test_a_worker_outlives_a_broker_that_was_away(kafka_broker: KafkaBroker) -> None:
    """What was sent before and after is answered."""
    kafka_broker.apply_topics(PARTITIONS)
    async with Rig(kafka_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        worker = rig.start()
        try:
            await worker.ready()
            await rig.send(first := [keyframe(seq, node) for seq in range(1, 30) for node in NODES])
            await rig.answered(first)
            await asyncio.to_thread(kafka_broker.stop)
            await asyncio.sleep(3)
            away = worker.health.not_live
            await asyncio.to_thread(kafka_broker.start)
            await rig.send(second := [sample(seq, node) for seq in range(30, 33) for node in NODES])
            answers = await rig.answered(second)
        finally:
            await worker.stopped()

    assert away == ""
    assert {answer.answer for answer in answers} == {"set"}


@pytest.mark.kafka
async def test_a_worker_outlives_a_broker_that_died_under_load(kafka_broker: KafkaBroker) -> None:
    """With answers on their way that nobody will ever acknowledge."""
    kafka_broker.apply_topics(PARTITIONS)
    async with Rig(kafka_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        worker = rig.start()
        try:
            feed = Feed(rig)
            await until(lambda: len(rig.commands) > 100, "the worker answers")
            await asyncio.to_thread(kafka_broker.stop, signal.SIGKILL)
            await until(lambda: worker.task.done() or "cannot list" in worker.health.not_ready, "it connects anew")
            await feed.stop()
            await asyncio.to_thread(kafka_broker.start)
            async with Rig(kafka_broker.bootstrap, group=rig.group) as anew:
                await anew.send(after := [keyframe(seq, node) for seq in range(50_000, 50_003) for node in NODES])
                answers = await anew.answered(after)
        finally:
            await worker.stopped()

    assert {answer.answer for answer in answers} == {"set"}


@pytest.mark.kafka
@pytest.mark.parametrize("working", [pytest.param(False, id="connects"), pytest.param(True, id="works")])
async def test_a_worker_ends_in_time_where_the_log_stands_still(
    kafka_broker: KafkaBroker, tmp_path: Path, *, working: bool
) -> None:
    """As it does not with a broker that is gone, for nobody refuses the connection."""
    kafka_broker.apply_topics(PARTITIONS)
    async with Rig(kafka_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        options = ["--bootstrap", rig.bootstrap, "--group", rig.group]
        worker = Part("stream", tmp_path, ["stream", *options])
        feed = Feed(rig)
        try:
            if working:
                worker.start()
            await until(lambda: bool(feed.sent) and (not working or len(rig.commands) > 100), "there is work")
            os.kill(kafka_broker.pid, signal.SIGSTOP)
            worker.start()
            await asyncio.to_thread(worker.wait, lambda: "serving" in worker.log_text, "it serves")
            await asyncio.sleep(0.5)
            code = await asyncio.to_thread(worker.stop)
        finally:
            os.kill(kafka_broker.pid, signal.SIGCONT)
            worker.kill()
            await feed.stop()

    assert DRAIN_S < END_S, "it ends by itself before it would be killed"
    assert code == 0, worker.log_text


async def test_a_worker_without_a_broker_or_topics_waits_and_says_for_what(embedded_broker: EmbeddedBroker) -> None:
    embedded_broker.stop()
    rig = Rig(embedded_broker.bootstrap)
    worker = rig.start()
    await until(lambda: "cannot" in worker.health.not_ready, "it says that nobody answers")
    embedded_broker.start()
    await until(lambda: "slacktide topics apply" in worker.health.not_ready, "it says that there are no topics")
    embedded_broker.apply_topics(PARTITIONS)
    await worker.ready()
    embedded_broker.stop(signal.SIGKILL)
    await worker.stopped()

    assert worker.health.not_live == "", "it ends in time also where nobody hears it leave"
