"""``slacktide topics`` and ``dead-letter`` as an operator calls them, on both brokers."""

import asyncio
import concurrent.futures
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from click.testing import CliRunner, Result

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import encode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.headers import headers
from slacktide.schemas.heartbeat import Heartbeat
from slacktide.schemas.policy import DEFAULT
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, METRIC, OUTCOME, POLICY, SAMPLE, TOPICS
from slacktide.streams.kafka import Sender, describe_topics, read_topic
from slacktide.streams.kafka.admin import set_configs
from slacktide.streams.records import Out, Record, Writer, dead_letter
from testbed.brokers import DATED_BY_CLIENTS
from testbed.one_machine import eventually
from testbed.samples import body_of, sample

SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))


def slacktide(broker, *arguments: str) -> Result:
    """Call the command line, in a thread: it brings a loop of its own."""
    env = {"SLACKTIDE_BOOTSTRAP": broker.bootstrap}
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(CliRunner().invoke, cli, list(arguments), env=env).result()


async def write(broker, *records: Out) -> None:
    sender = Sender(broker.cluster, client_id="test", acks="1", timeout_s=5)
    await sender.connect(sorted({record.topic for record in records}))
    await sender.send(records)
    await sender.close()


def policies(count: int, first: int = 0) -> list[Out]:
    """Records that tell themselves apart by ce_id."""
    return [
        Out(
            topic=POLICY.name,
            key=b"policy",
            value=encode(DEFAULT),
            headers=headers(
                kind=POLICY.name, source="publisher", subject="policy", event_id=f"p{number}", event_ms=1763712000000
            ),
        )
        for number in range(first, first + count)
    ]


def ids(lines: Sequence[str]) -> list[str]:
    return [line.partition("ce_id=")[2].partition(" ")[0] for line in lines]


def test_plan_then_apply_then_nothing_is_left_to_do(broker) -> None:
    """Exit code 2 while something differs, 0 when the cluster is as in the table of topics. Apply may be repeated."""
    first = slacktide(broker, "topics", "plan")
    assert first.exit_code == 2
    assert [line.split(":")[0] for line in first.stdout.splitlines()[:-1]] == [f"+ {topic.name}" for topic in TOPICS]

    applied = slacktide(broker, "topics", "apply")
    assert (applied.exit_code, applied.stdout) == (0, first.stdout)
    again = slacktide(broker, "topics", "apply")
    assert (again.exit_code, again.stdout) == (
        0,
        "nothing to do: all topics match the table of topics\n",
    )
    assert slacktide(broker, "topics", "plan").exit_code == 0


def test_apply_waits_for_a_broker_that_is_away(embedded_broker, tmp_path) -> None:
    """As before the workers of a cluster, whose Kafka may start later or be away for hours."""
    embedded_broker.stop()
    assert slacktide(embedded_broker, "topics", "apply").exit_code == 1
    log = tmp_path / "apply.log"
    with log.open("wb") as out:
        waiting = subprocess.Popen(
            [SLACKTIDE, "topics", "apply", "--wait", "--bootstrap", embedded_broker.bootstrap], stdout=out, stderr=out
        )
    try:
        assert eventually(lambda: "waiting for Kafka: " in log.read_text())
        assert waiting.poll() is None
        embedded_broker.start()
        assert waiting.wait(60) == 0
    finally:
        waiting.kill()
    assert log.read_text().count("waiting for Kafka: ") < 4, "each reason once"
    assert slacktide(embedded_broker, "topics", "plan").exit_code == 0


@pytest.mark.kafka
async def test_apply_sets_a_drifted_setting_and_leaves_the_operators_own(kafka_broker) -> None:
    """Retention is the replay window: the table has the say. What else was set for the topic stays."""
    kafka_broker.apply_topics()
    drift = {"retention.ms": "60000", "segment.bytes": "20971520"}
    await set_configs(kafka_broker.cluster, {SAMPLE.name: drift})
    planned = slacktide(kafka_broker, "topics", "plan")
    assert planned.exit_code == 2
    assert planned.stdout.splitlines()[0] == f"~ {SAMPLE.name}: retention.ms 60000 -> {SAMPLE.retention_ms}"

    assert slacktide(kafka_broker, "topics", "apply").exit_code == 0
    config = (await describe_topics(kafka_broker.cluster, [SAMPLE.name]))[SAMPLE.name].config
    assert (config["retention.ms"], config["segment.bytes"]) == (str(SAMPLE.retention_ms), "20971520")
    assert slacktide(kafka_broker, "topics", "plan").exit_code == 0


def test_another_partition_count_is_told_and_left(broker) -> None:
    broker.apply_topics(partitions=3)
    applied = slacktide(broker, "topics", "apply")

    assert applied.exit_code == 0
    assert f"! {COMMAND.name}: 3 partitions, but the table has 12: not changed" in applied.stdout
    assert slacktide(broker, "topics", "plan").exit_code == 2


def test_list_shows_what_is_there_and_needs_no_broker_for_the_table_alone(broker) -> None:
    alone = CliRunner().invoke(cli, ["topics", "list", "--table"], env={"SLACKTIDE_BOOTSTRAP": None}).stdout
    lines = alone.splitlines()
    assert lines[0].split() == [
        "TOPIC", "KEY", "PARTITIONS", "KEPT", "CLEANUP", "REPLICATION", "ACKS", "PRODUCERS", "CONSUMERS",
    ]  # fmt: skip
    assert lines[1].split() == f"{SAMPLE.name} node 12 48 h delete 3 1 agent stream".split()
    assert len(lines) == 1 + len(TOPICS)

    assert "missing; create it: slacktide topics apply" in slacktide(broker, "topics", "list").stdout
    broker.apply_topics()
    assert "12 partitions, replication 1, 0 records" in slacktide(broker, "topics", "list").stdout


async def test_tail_shows_the_last_records_decoded_and_headers_if_asked(broker) -> None:
    broker.apply_topics()
    await write(broker, *policies(12))
    bare = slacktide(broker, "topics", "tail", "policy").stdout.splitlines()
    lines = slacktide(broker, "topics", "tail", "policy", "--headers").stdout.splitlines()

    assert bare[-1].endswith(f" 0:11 policy {encode(DEFAULT).decode()}")
    assert ids(lines) == [f"p{number}" for number in range(2, 12)]
    assert " 0:11 policy [ce_specversion=1.0 ce_id=p11 ce_type=slacktide.policy.v1 " in lines[-1]
    assert lines[-1].endswith(f"] {encode(DEFAULT).decode()}")
    three = slacktide(broker, "topics", "tail", "policy", "--headers", "-n", "3").stdout.splitlines()
    assert ids(three) == ["p9", "p10", "p11"]


async def test_tail_as_json_is_one_object_a_line_for_programs(broker) -> None:
    broker.apply_topics()
    await write(broker, *policies(1), Out(topic=POLICY.name, key=b"policy", value=b"{oops"))
    await write(broker, Out(topic=POLICY.name, key=b"policy", value=None))
    done = slacktide(broker, "topics", "tail", "policy", "-o", "json", "-n", "3")
    good, bad, deleted = [json.loads(line) for line in done.stdout.splitlines()]

    assert (good["topic"], good["partition"], good["offset"], good["key"]) == (POLICY.name, 0, 0, "policy")
    assert good["body"] == json.loads(encode(DEFAULT))
    assert good["headers"]["ce_id"] == "p0"
    assert bad["body"] is None
    assert "error" in bad
    assert (deleted["body"], "error" in deleted) == (None, False)


async def test_tail_shows_the_last_figures_and_no_heartbeats(broker) -> None:
    """However many heartbeats lie behind them, and however old they are."""
    broker.apply_topics()
    beat = Heartbeat(worker="w", epoch=1, ticked_ms=1, nodes=["node-1"])
    beats = [out for out in Writer("stream/w").heartbeats(beat, 3, 0) if out.topic == METRIC.name]
    figures = [Out(topic=METRIC.name, key=f"node-{number}".encode(), value=b"{}") for number in range(12)]
    await write(broker, *figures, *beats * 50)

    lines = slacktide(broker, "topics", "tail", "metric", "-n", "12").stdout.splitlines()
    assert sorted(line.split()[2] for line in lines) == sorted(f"node-{number}" for number in range(12))
    assert len(slacktide(broker, "topics", "tail", "metric", "-n", "20").stdout.splitlines()) == 12
    assert len(slacktide(broker, "topics", "tail", "metric", "--since", "1h").stdout.splitlines()) == 12


async def test_tail_since_prints_all_of_that_time(broker) -> None:
    broker.apply_topics(settings=DATED_BY_CLIENTS)
    now_ms = time.time_ns() // 1_000_000
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for number, out in enumerate(policies(15)):
            at_ms = now_ms - 1_800_000 if number < 3 else now_ms
            await producer.send_and_wait(
                out.topic, out.value, key=out.key, headers=list(out.headers), timestamp_ms=at_ms
            )

    assert len(slacktide(broker, "topics", "tail", "policy", "--since", "1h").stdout.splitlines()) == 15
    recent = ids(
        slacktide(broker, "topics", "tail", "policy", "--since", "10m", "-n", "4", "--headers").stdout.splitlines()
    )
    assert recent == ["p11", "p12", "p13", "p14"]


async def test_tail_of_one_key_reads_only_that_key(broker) -> None:
    broker.apply_topics()
    nodes = [f"node-{number}" for number in range(30)]
    await write(broker, *(Out(topic=OUTCOME.name, key=node.encode(), value=b"{}") for node in nodes))
    lines = slacktide(broker, "topics", "tail", "outcome", "--key", "node-7").stdout.splitlines()

    assert [line.split()[2] for line in lines] == ["node-7"]
    assert "(not a NodeOutcome: " in lines[0]


async def test_tail_follows_until_ctrl_c(broker) -> None:
    """First the last there are, then what comes, each once; it ends without a word of complaint."""
    broker.apply_topics()
    await write(broker, *policies(3))
    process = subprocess.Popen(  # noqa: ASYNC220 - its lines are read in a thread
        [SLACKTIDE, "topics", "tail", "policy", "--headers", "--follow", "-n", "1", "--bootstrap", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        lines = [await asyncio.to_thread(process.stdout.readline)]
        await write(broker, *policies(2, first=3))
        lines += [await asyncio.to_thread(process.stdout.readline) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        rest, complaint = process.communicate(timeout=60)
    finally:
        process.kill()

    assert ids(lines) == ["p2", "p3", "p4"]
    assert (process.returncode, rest.strip(), complaint) == (0, "", "")


def test_tail_of_an_unknown_or_missing_topic_says_what_to_do(broker) -> None:
    unknown = slacktide(broker, "topics", "tail", "comand")
    missing = slacktide(broker, "topics", "tail", "command")

    assert (unknown.exit_code, unknown.stderr) == (
        1,
        "Error: no topic comand; did you mean node.command or node.command.shadow?\n",
    )
    assert missing.exit_code == 1
    assert missing.stderr.endswith(f"topic {COMMAND.name} does not exist; create it: slacktide topics apply\n")


async def test_lag_counts_what_no_worker_has_read(broker) -> None:
    broker.apply_topics()
    await write(broker, *(Out(topic=SAMPLE.name, key=b"node-1", value=b"{}") for _ in range(5)))
    done = slacktide(broker, "topics", "lag")

    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 1 + 2, "the partition that lags, and no others"
    assert done.stdout.splitlines()[-2].startswith("5 records, ")
    assert done.stdout.splitlines()[-2].endswith(f" in 1 of {SAMPLE.partitions} partitions")
    assert "group slacktide-stream has no committed offsets" in done.stdout


async def test_dead_letters_are_listed_and_shown(broker) -> None:
    broker.apply_topics()
    assert slacktide(broker, "dead-letter", "list").stdout == "no dead letters\n"
    letter = DeadLetter(
        topic=SAMPLE.name,
        partition=3,
        offset=1042,
        reason="not a NodeSample",
        reader="stream/blue",
        refused_ms=1763712000000,
        key="node-1",
        value_base64="e29vcHM=",
        value_bytes=5,
    )
    await write(broker, *(Out(topic=DEAD_LETTER.name, key=b"node-1", value=encode(letter)) for _ in range(2)))
    listed = slacktide(broker, "dead-letter", "list", "--since", "1h").stdout.splitlines()
    shown = slacktide(broker, "dead-letter", "show", "1").stdout

    assert [line.split()[1:] for line in listed[1:]] == [
        [offset, "node.sample", "3:1042", "node-1", "stream/blue", "not", "a", "NodeSample"] for offset in ("0", "1")
    ]
    assert shown.splitlines()[0] == "offset   1"
    assert shown.splitlines()[-1] == "{oops"
    absent = slacktide(broker, "dead-letter", "show", "2")
    assert absent.exit_code == 1
    assert "no dead letter at offset 2; list offsets: slacktide dead-letter list" in absent.stderr


def refused(offset: int, out: Out) -> Out:
    """The dead letter about a record in partition 2 of the samples."""
    at = Record(
        topic=out.topic, partition=2, offset=offset, timestamp_ms=0, key=out.key, value=out.value, headers=out.headers
    )
    return dead_letter(at, reader="stream/blue", reason="not a NodeSample", now_ms=SystemClock().wall_ms())


def samples(*nodes: str) -> list[Out]:
    return [
        Out(
            topic=SAMPLE.name,
            key=node.encode(),
            value=body_of(sample(1, node)),
            partition=2,
            headers=(("ce_id", b"x"),),
        )
        for node in nodes
    ]


async def expire(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Delete a partition's records before an offset, as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before_offset=before)})
    await admin.close()


REPLAY = "dead-letter", "replay", "--topic", "node.sample"


async def test_refused_records_are_written_again_once(broker) -> None:
    """To the partition that they came from, with key and headers; shown before it is done."""
    broker.apply_topics(4)
    bad = samples("a", "b")
    await write(broker, *bad)
    await write(broker, *(refused(offset, out) for offset, out in enumerate(bad)))

    planned = slacktide(broker, *REPLAY, "--key", "a", "--dry-run").stdout.splitlines()
    assert " 2:0 a [ce_id=x] {" in planned[2]
    assert json.loads(planned[2].partition("] ")[2])["of"]["node"] == "a"
    assert planned[1].split() == ["0", "node.sample", "2:0", "a", "put", "back", str(len(bad[0].value or b""))]
    assert planned[-1] == "would be written: 1, written earlier: 0, not written: 0"
    assert len([record async for record in read_topic(broker.cluster, SAMPLE.name)]) == 2

    done = slacktide(broker, *REPLAY, "--key", "a", "--since", "1h").stdout.splitlines()
    assert done[-2] == f"written to {SAMPLE.name} 2:2"
    assert slacktide(broker, *REPLAY).stdout.splitlines()[-1] == "written: 1, written earlier: 1, not written: 0"
    assert slacktide(broker, *REPLAY).stdout.splitlines()[-1] == "written: 0, written earlier: 2, not written: 0"
    back = [record async for record in read_topic(broker.cluster, SAMPLE.name, start={2: 2})]
    assert [(one.partition, one.offset, one.key, one.value) for one in back] == [
        (2, 2, b"a", bad[0].value),
        (2, 3, b"b", bad[1].value),
    ]
    assert [name for name, _ in back[0].headers] == ["ce_id", "ce_deadletter"]
    assert slacktide(broker, *REPLAY, "--key", "c").stdout == "written: 0, written earlier: 0, not written: 0\n"


async def test_a_forged_dead_letter_never_gets_its_content_written(broker) -> None:
    """Every agent may write dead letters: one that carries a policy, one that renames a sample."""
    broker.apply_topics(4)
    await write(broker, *samples("a"), *policies(1))
    policy = Record(topic=POLICY.name, partition=0, offset=0, timestamp_ms=0, key=b"policy", value=b"{}", headers=())
    renamed = samples("victim")[0]
    await write(
        broker,
        refused(0, renamed),
        dead_letter(policy, reader="stream/blue", reason="?", now_ms=SystemClock().wall_ms()),
    )

    both = slacktide(broker, *REPLAY).stdout.splitlines()
    named = slacktide(broker, "dead-letter", "replay", "--topic", "policy")

    assert both[-1] == "written: 0, written earlier: 0, not written: 1"
    assert "the record is not the one in the dead letter" in both[1]
    assert named.exit_code == 2
    assert "slacktide.policy.v1 cannot be replayed, because its writer republishes it" in named.stderr
    assert len([record async for record in read_topic(broker.cluster, POLICY.name)]) == 1
    assert len([record async for record in read_topic(broker.cluster, SAMPLE.name)]) == 1


async def test_a_record_of_a_re_created_topic_is_left(broker) -> None:
    """Its offset lies beyond the end, or holds another record."""
    broker.apply_topics(4)
    await write(broker, *samples("b"))
    await write(broker, refused(0, samples("a")[0]), refused(1, samples("a")[0]))

    said = slacktide(broker, *REPLAY).stdout.splitlines()

    assert said[-1] == "written: 0, written earlier: 0, not written: 2"
    assert "check whether the topic was re-created" in said[1]
    assert "no such partition or record; check whether the topic was re-created" in said[2]


@pytest.mark.kafka
async def test_an_expired_record_is_left(kafka_broker) -> None:
    kafka_broker.apply_topics(4)
    bad = samples("a")
    await write(kafka_broker, *bad, *samples("b"))
    await write(kafka_broker, refused(0, bad[0]))
    await expire(kafka_broker.bootstrap, SAMPLE.name, 2, 1)

    said = slacktide(kafka_broker, *REPLAY).stdout.splitlines()

    assert said[-1] == "written: 0, written earlier: 0, not written: 1"
    assert "not written: the original record has expired" in said[1]


def test_replay_names_the_topics_that_may_be_written(embedded_broker) -> None:
    done = slacktide(embedded_broker, "dead-letter", "replay", "--since", "1h")

    assert done.exit_code == 2
    assert "Missing option '--topic'" in done.stderr
