"""Clients whose clocks are wrong, on Apache Kafka: they stop nobody, and with the broker's time nothing is refused."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import SAMPLE, TOPICS
from slacktide.streams.kafka import History, Span, Spans, Tail, TailReader, describe_topics, read_topic
from slacktide.streams.records import Record
from testbed.agent_rig import agent_of
from testbed.batches import append, batch
from testbed.brokers import DATED_BY_CLIENTS, KafkaBroker
from testbed.feed import Workers
from testbed.one_machine import NODE, VirtualNode
from testbed.samples import SUPPRESS, body_of, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig, partition_of, until

AS_BEFORE = DATED_BY_CLIENTS | {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Older installations: records carry the times of their producers, and Kafka before 3.6 took any."""
ODD_TIMES_MS = (0, -1, 1, 86_400_000, 253_402_300_800_000, 2**62)
"""None, the beginning of 1970 and its second day, the year 10000, and one that no calendar has."""
TWO_HOURS_S = 7_200

pytestmark = pytest.mark.kafka


async def test_records_of_any_time_stop_no_worker(kafka_broker: KafkaBroker) -> None:
    """Each is the first that a worker finds when it starts: from there it reads back."""
    kafka_broker.apply_topics(PARTITIONS, AS_BEFORE)
    node, other = "node-1", "node-2"
    async with Rig(kafka_broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        async with rig.worker():
            await rig.answered([one for each in (node, other) for one in await sent(rig, [keyframe(1, each)])])
        for seq, time_ms in enumerate(ODD_TIMES_MS, start=2):
            odd = sample(seq, node)
            made = batch(0, [body_of(odd)], timestamp_ms=time_ms, key=odd.node.encode())
            await append(rig.bootstrap, SAMPLE.name, partition_of(odd.node), made)
            good = await sent(rig, [keyframe(seq, "node-5"), sample(seq, other)])
            async with rig.worker():
                await rig.answered([odd, *good])


async def sent(rig: Rig, samples: list[NodeSample]) -> list[NodeSample]:
    await rig.send(samples)
    return samples


async def test_records_of_any_time_are_read_by_every_reader(kafka_broker: KafkaBroker) -> None:
    """And none behind them is passed by."""
    kafka_broker.apply_topics(1, AS_BEFORE)
    bootstrap, now_ms = kafka_broker.bootstrap, time.time_ns() // 1_000_000
    times_ms = [now_ms - 3_000, *ODD_TIMES_MS, now_ms - 2_000, now_ms - 1_000]
    for number, time_ms in enumerate(times_ms):
        await append(bootstrap, SAMPLE.name, 0, batch(0, [b"%d" % number], timestamp_ms=time_ms))
    recent = {0, len(times_ms) - 2, len(times_ms) - 1}
    whole = set(range(len(times_ms)))
    place = (SAMPLE.name, 0)

    for since_ms, wanted in ((now_ms - 10_000, recent), (-1, whole), (-(2**62), whole), (2**62, set())):
        async with History(Cluster(bootstrap), 100) as history:
            assert offsets(await history.span(*place, before=None, since_ms=since_ms)) >= wanted - {2}
        async with Tail(Cluster(bootstrap), 100, most=1_000) as tail:
            assert offsets((await tail.read({place: since_ms})).records) >= wanted - {2}
        async with Tail(Cluster(bootstrap), 100) as tail:
            assert offsets((await tail.read({place: since_ms})).records) >= wanted
        found = [record async for record in read_topic(Cluster(bootstrap), SAMPLE.name, since_ms=since_ms)]
        assert offsets(found) >= wanted - {2}
        late = TailReader(
            Cluster(bootstrap), [SAMPLE.name], client_id="test", back_ms=10_000, now_ms=partial(int, since_ms + 10_000)
        )
        await late.connect()
        await late.close()
    async with Spans(Cluster(bootstrap), 100) as spans:
        span = Span(topics=[SAMPLE.name], whole=frozenset(), since_ms=now_ms - 10_000, until_ms=now_ms)
        assert offsets([record async for record in spans.read(span, {SAMPLE.name: 1})]) == recent


def offsets(records: list[Record]) -> set[int]:
    return {record.offset for record in records}


def test_any_time_is_printed(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    kafka_broker.apply_topics(1, AS_BEFORE)
    for seq, time_ms in enumerate(ODD_TIMES_MS):
        one = batch(0, [body_of(keyframe(seq, NODE))], timestamp_ms=time_ms, key=NODE.encode())
        asyncio.run(append(kafka_broker.bootstrap, SAMPLE.name, 0, one))
    for arguments in (
        ("topics", "tail", "sample"),
        ("topics", "tail", "sample", "--since", "99999d"),
        ("topics", "export", str(tmp_path / "all.jsonl")),
        ("topics", "lag"),
        ("dead-letter", "list", "--since", "99999d"),
        ("explain", "node", NODE),
        ("doctor",),
    ):
        done = CliRunner().invoke(cli, [*arguments, "--bootstrap", kafka_broker.bootstrap])
        assert done.exception is None or isinstance(done.exception, SystemExit), arguments
        assert "Traceback" not in done.output


@pytest.mark.parametrize("wrong_by_s", [TWO_HOURS_S, -1_700_000_000], ids=["two hours ahead", "at 1970"])
async def test_an_agent_whose_clock_is_wrong_is_answered(
    kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_by_s: int
) -> None:
    kafka_broker.apply_topics(PARTITIONS)
    async with Rig(kafka_broker.bootstrap) as rig, Workers(rig) as workers:
        await rig.publish(SUPPRESS)
        workers.start("worker")
        true_ns = time.time_ns
        monkeypatch.setattr(time, "time", lambda: true_ns() / 10**9 + wrong_by_s)
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() + wrong_by_s * 10**9)
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, rig.bootstrap, tmp_path):
                await until(lambda: any(is_decided(record) for record in rig.commands), "the agent is answered")
        monkeypatch.undo()
        newest_ms = max(record.timestamp for record in await rig.read(SAMPLE.name))
    assert abs(newest_ms - time.time_ns() // 1_000_000) < 60_000


def is_decided(record: ConsumerRecord) -> bool:
    return decode(record.value, NodeCommand).answer != "skipped"


@pytest.mark.nightly
def test_topics_of_older_installations_are_told_and_mended(kafka_broker: KafkaBroker) -> None:
    kafka_broker.apply_topics(settings=DATED_BY_CLIENTS)

    def slacktide(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, [*arguments, "--bootstrap", kafka_broker.bootstrap])
        return done.exit_code, done.output

    code, text = slacktide("topics", "plan")
    assert code == 2
    assert f"~ {SAMPLE.name}: message.timestamp.type CreateTime -> LogAppendTime" in text
    told = " ".join(slacktide("doctor")[1].split())
    assert f"warning log.timestamps CreateTime: {min(topic.name for topic in TOPICS)}, " in told
    assert f"run slacktide topics apply --bootstrap {kafka_broker.bootstrap}. With CreateTime" in told
    assert slacktide("topics", "apply")[0] == 0
    assert slacktide("topics", "plan")[0] == 0
    state = asyncio.run(describe_topics(kafka_broker.cluster, [SAMPLE.name]))[SAMPLE.name]
    assert state.config["message.timestamp.type"] == "LogAppendTime"
