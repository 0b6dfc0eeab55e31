"""Apache Kafka with its authorizer: what ``slacktide topics acl`` prints is enough for each part, and no more."""

import asyncio
import concurrent.futures
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from click.testing import CliRunner

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.doctor import kafka_facts
from slacktide.deploy.cli.doctor.agent_checks import login_findings
from slacktide.deploy.cli.log_side import LogSide
from slacktide.deploy.cli.machine import OperatorFiles
from slacktide.deploy.cli.main import cli
from slacktide.deploy.console.history.follower import Follower
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.store import Store
from slacktide.schemas.access import (
    ADMINISTRATOR,
    CONSOLE,
    FOLDS_GROUP,
    GOVERNOR_GROUP,
    PARTS,
    PUBLISHER,
    QUEUE_GROUP,
    READER,
    REPLAYER,
    STREAM,
    STREAM_GROUP,
    Part,
)
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.topics import COMMAND, POLICY, SERVICE_SLOPE, TOPICS
from slacktide.streams.kafka import NodeReader, Sender, describe_topics
from slacktide.streams.kafka.admin import creation_trouble
from slacktide.streams.kafka.connecting import client
from slacktide.streams.kafka.probe import lacking
from slacktide.streams.records import Out
from testbed.brokers import running
from testbed.guarded import GuardedKafka
from testbed.one_machine import NODE, SLACKTIDE, VirtualNode, eventually
from testbed.parts import running_part
from testbed.waiting import soon

pytestmark = [pytest.mark.kafka]
PATIENCE_S = 60.0
EACH = pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS])


def slacktide(door: Cluster, *arguments: str) -> tuple[int, str]:
    """Call the command line through a door, in a thread: it brings a loop of its own."""
    where = {"SLACKTIDE_BOOTSTRAP": str(door), "SLACKTIDE_KAFKA_CONFIG": door.security.file}
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        done = thread.submit(CliRunner().invoke, cli, list(arguments), env=where).result()
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def granted() -> Iterator[GuardedKafka]:
    """Each part has the rights that are printed; the topics were made by who may make them."""
    with running(GuardedKafka) as broker:
        code, commands = slacktide(broker.doors[READER.name], "topics", "acl")
        assert code == 0
        broker.grant(commands)
        applied(broker)
        yield broker


def applied(broker: GuardedKafka) -> None:
    code, said = slacktide(broker.doors[ADMINISTRATOR.name], "topics", "apply")
    assert code == 0, said


async def writable(door: Cluster) -> set[str]:
    """Topics into which whoever comes through this door can write."""
    producer = AIOKafkaProducer(**client(door), enable_idempotence=False)
    await producer.start()
    found = set()
    try:
        for topic in TOPICS:
            with contextlib.suppress(TopicAuthorizationFailedError):
                await producer.send_and_wait(topic.name, b"{}", b"key", partition=topic.partitions - 1)
                found.add(topic.name)
    finally:
        await producer.stop()
    return found


async def readable(door: Cluster) -> set[str]:
    """Topics, each with a record at its end, that can be read through this door."""
    consumer = AIOKafkaConsumer(**client(door), group_id=None, auto_offset_reset="earliest")
    await consumer.start()
    found = set()
    try:
        seen = await consumer.topics()
        for topic in TOPICS:
            if topic.name in seen:  # one that cannot even be seen cannot be read
                place = TopicPartition(topic.name, topic.partitions - 1)
                consumer.assign([place])
                consumer.seek(place, 0)
                with contextlib.suppress(TopicAuthorizationFailedError):
                    if await consumer.getmany(place, timeout_ms=int(PATIENCE_S * 1_000)):
                        found.add(topic.name)
    finally:
        await consumer.stop()
    return found


async def commits(door: Cluster, part: Part) -> set[str]:
    """Groups for which offsets can be committed; of a topic that the part may read, if there is one."""
    found = set()
    place = TopicPartition((part.reads or TOPICS)[0].name, 0)
    for group in (STREAM_GROUP, GOVERNOR_GROUP, FOLDS_GROUP, QUEUE_GROUP, "somebody-elses"):
        consumer = AIOKafkaConsumer(**client(door), group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([place])
            with contextlib.suppress(GroupAuthorizationFailedError, TopicAuthorizationFailedError):
                await consumer.commit({place: 0})
                found.add(group)
        finally:
            await consumer.stop()
    return found


@EACH
async def test_a_part_reads_writes_and_joins_what_the_table_says_and_nothing_else(
    granted: GuardedKafka, part: Part
) -> None:
    """So an agent cannot write commands, and a reader can write nothing."""
    door = granted.doors[part.name]
    assert await writable(granted.cluster) == {topic.name for topic in TOPICS}, "there is something to read"

    assert await writable(door) == {topic.name for topic in part.writes}
    assert await readable(door) == {topic.name for topic in part.reads}
    assert await commits(door, part) == set(part.joins)


async def test_whether_topics_could_be_made_is_asked_without_making_any(granted: GuardedKafka) -> None:
    granted.forget()
    reader, administrator = (granted.doors[part.name] for part in (READER, ADMINISTRATOR))

    assert await creation_trouble(administrator, TOPICS) == ""
    assert "uthorization" in await creation_trouble(reader, TOPICS)
    assert await describe_topics(granted.cluster, [topic.name for topic in TOPICS]) == {}
    applied(granted)


@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part is not ADMINISTRATOR])
async def test_only_who_is_there_for_it_can_make_a_topic(granted: GuardedKafka, part: Part) -> None:
    granted.forget()
    code, _ = slacktide(granted.doors[part.name], "topics", "apply")

    assert code == 1
    assert await describe_topics(granted.cluster, [topic.name for topic in TOPICS]) == {}
    applied(granted)


@contextlib.contextmanager
def process(folder: Path, door: Cluster, *arguments: str) -> Iterator[None]:
    """A part as a process of its own; its log is in the folder."""
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        where = ["--bootstrap", str(door), "--kafka-config", door.security.file]
        command = [SLACKTIDE, *arguments, *where, "--metrics-port", "0", "--log-format", "json"]
        running_part = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        running_part.terminate()
        running_part.wait(60)


@contextlib.asynccontextmanager
async def published(door: Cluster, node: VirtualNode, folder: Path) -> AsyncIterator[asyncio.Task[None]]:
    """What ``slacktide up`` does itself: files are published, first decisions heard; the task ends when they were."""
    files = OperatorFiles(node.policy, node.inventory, NODE, folder / "state of up")
    side, stop = LogSide(door, NODE, "inventory"), asyncio.Event()

    async def receive() -> None:
        assert [said async for said in side.first_decisions(0)]

    tasks = [asyncio.create_task(side.publish(files, stop, Health())), asyncio.create_task(receive())]
    try:
        yield tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def shows(door: Cluster, folder: Path) -> None:
    """A console that comes through this door shows the node."""
    store = Store(folder / "history.sqlite")
    follower = Follower(door, store, SystemClock())
    following = asyncio.create_task(follower.run())
    history = History(store.path, lambda: follower.recorder)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not history.nodes():
                assert "uthorization" not in follower.trouble
                await asyncio.sleep(0.3)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        store.close()


async def test_the_loop_closes_with_each_part_under_its_own_name(granted: GuardedKafka, tmp_path: Path) -> None:
    """Agent and worker with governor as processes, beside them the publisher. What came of it is read as a reader."""
    granted.forget()
    applied(granted)
    doors, reader = granted.doors, granted.doors[READER.name]

    def logged() -> str:
        return "".join((tmp_path / f"{name}.log").read_text() for name in ("agent", "stream"))

    async def soon(true: Callable[[], bool]) -> None:
        assert await asyncio.to_thread(eventually, true, PATIENCE_S, every_s=0.3), logged()

    with VirtualNode(tmp_path) as node:
        agent = ["agent", *node.arguments, "--state-folder", str(tmp_path / "state")]
        with process(tmp_path, doors["agent"], *agent), process(tmp_path, doors["stream"], "stream"):
            async with published(doors[PUBLISHER.name], node, tmp_path) as heard:
                await soon(heard.done)
                heard.result()
                await soon(lambda: "elected as the eviction governor" in logged())
                await soon(lambda: '"origin":"stream"' in slacktide(reader, "topics", "tail", "outcome")[1])
                await shows(doors[CONSOLE.name], tmp_path)
            for command in (
                ["topics", "plan"],
                ["topics", "list"],
                ["topics", "lag"],
                ["dead-letter", "list"],
                ["explain", "node", NODE],
                ["topics", "export", str(tmp_path / "day.jsonl")],
            ):
                code, said = slacktide(reader, *command)
                assert code == 0, (command, said)
            assert slacktide(doors[REPLAYER.name], "dead-letter", "replay", "--topic", "node.sample")[0] == 0
            asked = json.loads(slacktide(reader, "doctor", "--output", "json")[1])
    of_log = {check["check"]: check["verdict"] for check in asked["checks"] if check["check"].startswith("log.")}
    assert of_log["log.topics"] == "ok"
    assert "failed" not in of_log.values()
    assert "uthorization" not in logged()


async def test_a_worker_that_may_not_join_its_group_names_the_right_and_joins_once_it_may(
    granted: GuardedKafka, tmp_path: Path
) -> None:
    """The client stops all work for the group until somebody takes its error."""
    granted.forget()
    applied(granted)
    door = granted.doors["stream"]
    where = ["--bootstrap", str(door), "--kafka-config", door.security.file]
    with running_part(tmp_path, "stream", *where) as worker:
        async with granted.group_denied("User:slacktide-stream", STREAM_GROUP):
            await asyncio.to_thread(worker.wait, lambda: "serving" in worker.log_text, "endpoints")
            ready = partial(asyncio.to_thread, worker.ask, "ready")
            await soon(ready, "the error", enough=lambda said: "GroupAuthorizationFailedError" in said, part=worker)
        await asyncio.to_thread(worker.wait_ready)


@pytest.mark.parametrize("operation", ["Read", "Describe"])
async def test_an_agent_without_the_right_to_slopes_gets_all_else_and_slopes_once_it_may(
    granted: GuardedKafka, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    granted.forget()
    applied(granted)
    sender = Sender(granted.cluster, client_id="test", acks="all", timeout_s=5)
    await sender.connect([POLICY.name, SERVICE_SLOPE.name])
    for topic in (POLICY, SERVICE_SLOPE):
        await sender.send([Out(topic=topic.name, key=topic.name.encode(), value=b"{}", partition=0)])
    await sender.close()
    reader = NodeReader(granted.doors["agent"], NODE, client_id="test", fetch_wait_ms=50, due=lambda: True)

    async def read() -> set[str]:
        got = await reader.read()
        return {one.topic for one in (*got.policies, *got.slopes)}

    async with granted.topic_denied("User:slacktide-agent", SERVICE_SLOPE.name, operation):
        await reader.connect()
        assert await soon(read, "the policy") == {POLICY.name}
        assert await read() == set()
    [warned] = [one for one in caplog.records if "slopes" in one.getMessage()]
    assert (vars(warned)["topic"], "no right to" in vars(warned)["why"]) == (SERVICE_SLOPE.name, True)
    reader._slopes_look_s = 0.0
    assert await soon(read, "slopes") == {SERVICE_SLOPE.name}
    await reader.close()


async def test_the_preflight_names_the_consumer_group_and_the_operation_that_a_login_lacks(
    granted: GuardedKafka, tmp_path: Path
) -> None:
    door = granted.doors["stream"]
    assert await lacking(door, STREAM) == []
    async with granted.group_denied(STREAM.principal, FOLDS_GROUP):
        (tmp_path / "stream").mkdir()
        (tmp_path / "stream" / kafka_facts.FILE).symlink_to(door.security.file)
        [finding] = login_findings(await kafka_facts.gather_logins(granted.login, tmp_path))

    assert finding.verdict == "failed"
    assert finding.found.endswith(f"no right to group {FOLDS_GROUP} (Read)")
    assert f"{COMMAND.name} (Write)" in await lacking(granted.doors[READER.name], STREAM)
    granted.forget()
    assert await lacking(door, STREAM) == [], "asked before an installation"
    applied(granted)


async def test_the_preflight_tries_each_parts_login_with_the_files_of_its_secret(
    granted: GuardedKafka, tmp_path: Path
) -> None:
    user = granted.as_user("slacktide-agent") | {"ssl.ca.location": f"{kafka_facts.MOUNTED}/ca.crt"}
    token = granted.with_token(user="slacktide-bridge") | {"ssl.ca.location": f"{kafka_facts.MOUNTED}/ca.crt"}
    token |= {"sasl.oauthbearer.token.endpoint.url": "file:///var/run/secrets/kafka/token"}
    given = {
        "agent": user,
        "stream": user | {"sasl.username": "slacktide-webhook"},
        "topics": user | {"sasl.password": "wrong"},
        "bridge": token,
        "scheduler": token,
        "webhook": None,
        "reader": user,
    }
    for part, lines in given.items():
        (tmp_path / part).mkdir()
        (tmp_path / part / "ca.crt").write_bytes(granted.certificates.ca.read_bytes())
        if lines is not None:
            file = tmp_path / part / kafka_facts.FILE
            file.touch(0o600)
            file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    shutil.move(granted.folder / "token", tmp_path / "bridge/token")
    facts = await kafka_facts.gather_logins(granted.login, tmp_path)
    found = {one.check.removeprefix("log.login-"): one for one in login_findings(facts)}

    assert {part: one.verdict for part, one in found.items()} == {
        "agent": "ok",
        "stream": "failed",
        "bridge": "ok",
        "scheduler": "warning",
        "webhook": "failed",
        "topics": "failed",
    }
    assert "kubectl create token slacktide-scheduler -n slacktide-system" in found["scheduler"].advice
    assert "SCRAM-SHA-512 as slacktide-webhook: no right to slacktide.dead-letter.v1 (Write), " in found["stream"].found
    assert found["stream"].advice == "grant the ACLs that slacktide topics acl stream prints"
    assert "No such file or directory" in found["webhook"].found
    assert "Secret slacktide-kafka-webhook" in found["webhook"].advice
    assert "login as slacktide-agent by SCRAM-SHA-512 refused" in found["topics"].found
