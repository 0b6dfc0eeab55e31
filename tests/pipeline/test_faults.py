"""What breaks under load, on Apache Kafka: a broker, a worker, a worker that stands still, the topics themselves."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.engine.writing import SEND_S
from slacktide.streams.kafka import read_topic
from testbed.agent_rig import agent_of
from testbed.brokers import KafkaBroker, KafkaCluster
from testbed.feed import Feed, Workers, agree
from testbed.history.acts import done_twice
from testbed.one_machine import NODE, VirtualNode
from testbed.sampled import sampled
from testbed.samples import SUPPRESS, keyframe
from testbed.stream_rig import PARTITIONS, Rig, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    return kafka_broker


async def outcomes(bootstrap: str) -> list[NodeOutcome]:
    """What came of each act; told twice, where the first time was not acknowledged, in the same words."""
    told = {record.value async for record in read_topic(Cluster(bootstrap), OUTCOME.name)}
    return [decode(value, NodeOutcome) for value in told]


async def samples(bootstrap: str) -> list[NodeSample]:
    return await sampled(Cluster(bootstrap))


def answerers(rig: Rig, since_ms: int) -> list[str]:
    """Who has answered the agent's node since then, the last one last."""
    answers = [several[-1] for key, several in rig.answers.items() if key[0] == NODE]
    return [answer.worker for answer in answers if answer.decided_ms > since_ms]


async def test_one_of_three_brokers_killed_under_load_costs_no_answer_and_repeats_no_act(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Also the one that leads the nodes' partition; it comes back as a follower."""
    kafka_cluster.apply_topics(PARTITIONS)
    async with Rig(kafka_cluster.bootstrap) as rig, Workers(rig) as workers:
        await rig.publish(SUPPRESS)
        workers.start("worker")
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, kafka_cluster.bootstrap, tmp_path):
                feed = Feed(rig)
                await until(lambda: len(rig.commands) > 200, "the worker answers")
                victim = await asyncio.to_thread(kafka_cluster.leader_of, SAMPLE.name, 0)
                await asyncio.to_thread(victim.stop, signal.SIGKILL)
                killed_at = len(feed.sent)
                await until(lambda: len(feed.sent) > killed_at + 400, "samples can be written again")
                await asyncio.to_thread(victim.start)
                await rig.answered(await feed.stop())
        heard = await outcomes(kafka_cluster.bootstrap)

    assert agree(rig.answers)
    assert heard
    assert not done_twice(heard)
    assert {outcome.node for outcome in heard} == {NODE}


@pytest.mark.nightly
async def test_a_broker_that_stands_still_for_longer_than_a_write_may_take_costs_no_answer(
    rig: Rig, kafka_broker: KafkaBroker
) -> None:
    """The write fails while its samples are at hand: the session ends with them, and the next one answers them."""
    async with Workers(rig) as workers:
        workers.start("worker")
        feed = Feed(rig)
        await workers.answering("worker")
        os.kill(kafka_broker.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(2 * SEND_S + 2.0)
        finally:
            os.kill(kafka_broker.pid, signal.SIGCONT)
        await rig.answered(await feed.stop())

    assert agree(rig.answers)


async def test_a_worker_killed_beside_another_is_covered_by_the_guard_and_nothing_is_lost_or_done_twice(
    rig: Rig, tmp_path: Path
) -> None:
    async with Workers(rig) as workers:
        for name in ("first", "second"):
            workers.start(name)
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, rig.bootstrap, tmp_path):
                feed = Feed(rig)
                await workers.answering("first", "second")
                shared_ms = time.time_ns() // 1_000_000  # answers of before may be of who had the node then
                await until(lambda: bool(answerers(rig, shared_ms)), "the agent's node is answered")
                owner = answerers(rig, shared_ms)[-1]
                heir = "second" if owner == "first" else "first"
                workers.tell(owner, signal.SIGKILL)
                killed_ms = time.time_ns() // 1_000_000
                await workers.answering(heir)
                await until(lambda: heir in answerers(rig, killed_ms), "the heir answers the agent's node")
                sent = await feed.stop()
                await rig.answered(sent)
        own = await samples(rig.bootstrap)
        await rig.answered(own)
        heard = await outcomes(rig.bootstrap)

    assert agree(rig.answers)
    assert heard
    assert not done_twice(heard)
    gap = [outcome for outcome in heard if outcome.acted_ms > killed_ms and outcome.origin == "guard"]
    assert gap, "the guard acted while nobody answered"


async def test_a_worker_that_stood_still_for_longer_than_its_session_says_nothing_of_what_it_missed(rig: Rig) -> None:
    """It neither answers what it had fetched nor takes back what another has committed; it works on as a new member."""
    async with Workers(rig) as workers:
        workers.start("sleeper")
        feed = Feed(rig)
        await workers.answering("sleeper")
        workers.start("heir")
        await workers.answering("sleeper", "heir")
        workers.tell("sleeper", signal.SIGSTOP)
        await workers.answering("heir", last=200)
        missed = {(one.node, one.boot_id, one.seq) for one in feed.sent if rig.answers.get(_key(one))}
        before = await rig.committed()
        workers.tell("sleeper", signal.SIGCONT)
        resumed_ms = time.time_ns() // 1_000_000
        resumed_at = len(feed.sent)
        await workers.answering("sleeper", "heir")
        after = await rig.committed()
        await rig.answered(await feed.stop())

    late = [
        answer
        for key, several in rig.answers.items()
        for answer in several
        if answer.worker == "sleeper" and answer.decided_ms >= resumed_ms and key in missed
    ]
    assert not late, "what others had answered it does not answer again"
    assert resumed_at, "it was under load"
    assert all(after[partition] >= offset for partition, offset in before.items())
    assert agree(rig.answers)


def _key(one: NodeSample) -> tuple[str, str, int]:
    return one.node, one.boot_id, one.seq


async def test_a_worker_says_that_its_topic_is_gone_and_goes_on_when_it_is_there_again(
    rig: Rig, kafka_broker: KafkaBroker
) -> None:
    """The one topic alone: else a worker without partitions would take others for their owners."""
    async with rig.worker() as worker:
        await rig.send(before := [keyframe(1, "node-1")])
        await rig.answered(before)
        admin = AIOKafkaAdminClient(bootstrap_servers=rig.bootstrap)
        await admin.start()
        await admin.delete_topics([SAMPLE.name])
        await admin.close()
        await until(lambda: f"these topics do not exist: {SAMPLE.name}" in worker.health.not_ready, "it says so")
        await asyncio.to_thread(kafka_broker.apply_topics, PARTITIONS)
        async with Rig(rig.bootstrap, group=rig.group) as anew:
            await anew.send(after := [keyframe(2, "node-1")])
            [answer] = await anew.answered(after)

    assert answer.answer == "set"


async def test_topics_deleted_and_made_anew_cost_worker_and_agent_no_restart(
    rig: Rig, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """All offsets begin at 0 again; samples of the new topics are answered, and the answers reach the agent."""
    worker = rig.start()
    try:
        await worker.ready()
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, rig.bootstrap, tmp_path) as health:
                await until(lambda: len(rig.answers) > 8, "the agent is answered")
                await asyncio.to_thread(kafka_broker.forget)
                await asyncio.to_thread(kafka_broker.apply_topics, PARTITIONS)
                async with Rig(rig.bootstrap, group=rig.group) as anew:
                    await anew.publish(SUPPRESS)
                    await until(lambda: len(anew.answers) > 8, "the agent is answered in the new topics")
                    await until(lambda: not health.not_fresh, "the agent hears it")
    finally:
        await worker.stopped()

    assert {several[-1].answer for several in list(anew.answers.values())[-4:]} <= {"set", "keep"}
