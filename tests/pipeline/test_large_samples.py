"""Nodes with very many pods, and records that a broker refuses: samples go on."""

import asyncio
import copy
import gc
import hashlib
import json
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from slacktide.agents.http import Access
from slacktide.agents.node import outbox
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.inventory import Kubelet
from slacktide.agents.node.link import Link, LinkError
from slacktide.agents.node.spool import DiskSpool
from slacktide.agents.node.state import State
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import BACKFILL, COMMAND, CREDIT, DEAD_LETTER, OUTCOME, SAMPLE
from slacktide.streams.kafka import Refused, Sender, read_topic
from slacktide.streams.records import Out
from testbed.agent_rig import agent_of
from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.kubelet import TOKEN, Certificates, KubeletServer, pod
from testbed.one_machine import NODE, VirtualNode
from testbed.parts import running_part
from testbed.sampled import sampled
from testbed.waiting import soon

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]
"""A client that is cancelled as it connects anew, as after a refusal, leaves its socket to the collector."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("pki") / "kubelet")


@pytest.fixture
def server(certificates) -> Iterator[KubeletServer]:
    server = KubeletServer(certificates)
    yield server
    server.close()


@pytest.fixture
def kubelet(server, certificates, tmp_path) -> Iterator[Kubelet]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    kubelet = Kubelet(Access(url=server.url, token=token, ca=certificates.ca))
    yield kubelet
    kubelet.close()


def pods(count: int, phase: str) -> list[dict]:
    """Pods as a kubelet lists them, with names and ids as long as real ones."""
    found = []
    for number in range(count):
        one = pod(
            f"{phase.lower()}-{number:05}-x7k2p", qos="BE", container=hashlib.sha256(str(number).encode()).hexdigest()
        )
        one["metadata"]["uid"] = str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128))
        one["status"]["phase"] = phase
        found.append(one)
    return found


async def samples(bootstrap: str) -> list[NodeSample]:
    return await sampled(Cluster(bootstrap))


async def dead_letters(bootstrap: str) -> list[DeadLetter]:
    return [decode(record.value, DeadLetter) async for record in read_topic(Cluster(bootstrap), DEAD_LETTER.name)]


async def sent(bootstrap: str, count: int, within_s: float = 60.0) -> list[NodeSample]:
    """All samples, when so many more have come."""
    begin, until_s = len(await samples(bootstrap)), time.monotonic() + within_s
    while len(found := await samples(bootstrap)) < begin + count:
        assert time.monotonic() < until_s, f"{len(found) - begin} samples within {within_s:g} s"
        await asyncio.sleep(0.2)
    return found


async def until(true: Callable[[], bool], within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until_s, f"not within {within_s:g} s"
        await asyncio.sleep(0.05)


def serve(server: KubeletServer, listed: list[dict]) -> None:
    """The kubelet's list from now on, put together once."""
    server.pods = listed
    body = KubeletServer.body(server)
    server.body = lambda: body


async def limit(bootstrap: str, topic: str, size: int) -> None:
    """Set the topic's max.message.bytes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": str(size)})
    await admin.alter_configs([resource])
    await admin.close()


def outcome(**changed: object) -> NodeOutcome:
    raw = (Path(__file__).parents[2] / "schemas/examples" / OUTCOME.name / "1.json").read_bytes()
    example = json.loads(raw)
    body = example.get("value", example)
    return msgspec.structs.replace(msgspec.convert(body, NodeOutcome), **changed)


@pytest.mark.parametrize(
    ("count", "phase", "listed"),
    [
        (2_500, "Succeeded", 1),
        (10_000, "Failed", 1),
        (110, "Running", 111),
        (500, "Running", 501),
        (2_500, "Running", 2_501),
    ],
)
async def test_samples_go_out_however_many_pods_there_are(
    broker: EmbeddedBroker | KafkaBroker,
    server: KubeletServer,
    kubelet: Kubelet,
    tmp_path: Path,
    count: int,
    phase: str,
    listed: int,
) -> None:
    """Pods that have ended are in no list; a list above 1 MiB is compressed."""
    broker.apply_topics(1)
    serve(server, [pod("web"), *pods(count, phase)])
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, broker.bootstrap, tmp_path, lister=kubelet, keyframe_ms=1_000) as health:
            found = await sent(broker.bootstrap, 12)
            await until(lambda: health.not_ready == "")

    carried = [sample for sample in found if sample.pods is not None]
    assert {len(sample.pods) for sample in carried} == {listed}
    assert {sample.pods_revision for sample in found} == {carried[0].pods_revision}
    assert len(State(tmp_path / "state").inventory().pods) == listed


@pytest.mark.parametrize(
    ("count", "exceeds"),
    [
        (10_000, r"sample of 10,000 pods exceeds 5,000"),
        (300, r"sample of \d{3},\d{3} bytes exceeds 100,000"),
    ],
)
async def test_a_list_beyond_all_limits_is_left_out_and_named(
    broker: EmbeddedBroker | KafkaBroker,
    server: KubeletServer,
    kubelet: Kubelet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    exceeds: str,
) -> None:
    """The sample goes out: its worker answers that it lacks the pods. When the list fits again, so does it."""
    broker.apply_topics(1)
    monkeypatch.setattr(outbox, "COMPRESSED_BYTES_MAX", 100_000)  # 4 MiB take the test long
    monkeypatch.setattr(outbox, "PLAIN_BYTES_MAX", 50_000)
    serve(server, pods(count, "Running"))
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, broker.bootstrap, tmp_path, lister=kubelet, keyframe_ms=1_000) as health:
            found = await sent(broker.bootstrap, 8)
            await until(lambda: "exceeds" in health.not_ready)
            said = health.not_ready
            serve(server, pods(10, "Running"))
            await until(lambda: health.not_ready == "")
            last = await sent(broker.bootstrap, 1)

    assert re.fullmatch(f"{exceeds}: the sample is sent without its pods, and workers answer `skipped`", said)
    assert [sample.pods for sample in found] == [None] * len(found)
    named = {one.why for sample in found for one in sample.missing if one.what == "pods"}
    assert named
    assert all(re.fullmatch(exceeds, why) for why in named)
    assert [len(sample.pods) for sample in last if sample.pods is not None][-1] == 10


@pytest.mark.story
@pytest.mark.kafka
async def test_a_worker_decides_by_a_compressed_list(
    kafka_broker: KafkaBroker, server: KubeletServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    kafka_broker.apply_topics(1)
    where = kafka_broker.bootstrap
    serve(server, pods(2_500, "Running"))

    async def answers() -> Counter[tuple[str, str]]:
        said = [decode(record.value, NodeCommand) async for record in read_topic(Cluster(where), COMMAND.name)]
        return Counter((command.answer, command.reason) for command in said)

    with running_part(tmp_path, "stream", "--bootstrap", where) as worker, VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path, lister=kubelet, keyframe_ms=1_000):
            decided = lambda seen: {answer for answer, _ in seen} - {"skipped"}  # noqa: E731
            await soon(answers, "a sample is decided", enough=decided, part=worker)
            found = await samples(where)

    assert max(len(sample.pods or ()) for sample in found) == 2_500


@pytest.mark.story
@pytest.mark.kafka
async def test_what_a_topic_refuses_costs_only_itself(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """An operator has set max.message.bytes: a sample goes without its pods, an outcome becomes a dead letter."""
    kafka_broker.apply_topics(1)
    where, state = kafka_broker.bootstrap, tmp_path / "state"
    await limit(where, SAMPLE.name, 3_000)
    await limit(where, OUTCOME.name, 3_000)
    spool = DiskSpool(state / "spool")
    for number, size in enumerate((10, 10_000, 20)):
        spool.conclude(outcome(seq=number + 1, reason="x" * size))
    spool.close()
    with VirtualNode(tmp_path) as node:
        document = json.loads(node.inventory.read_text())
        for number in range(300):
            one = copy.deepcopy(document["items"][-1])
            one["metadata"] |= {"name": f"more-{number}", "uid": str(uuid.uuid4())}
            document["items"].append(one)
        node.inventory.write_text(json.dumps(document))
        async with agent_of(node, where, tmp_path, keyframe_ms=1_000) as health:
            found = await sent(where, 6)
            await until(lambda: "max.message.bytes" in health.not_ready)
            letters = await soon(lambda: dead_letters(where), "a dead letter")
            got = [decode(record.value, NodeOutcome) async for record in read_topic(Cluster(where), OUTCOME.name)]
        left = DiskSpool(state / "spool").pending(100)

    assert all(sample.pods is None for sample in found)
    sizes = [len(one.reason) for one in got if one.reason.startswith("x")]
    assert (sorted(set(sizes)), left) == ([10, 20], [])
    assert [(letter.topic, letter.value_base64) for letter in letters] == [(OUTCOME.name, None)]
    assert "MessageSizeTooLargeError; see max.message.bytes of the topic" in letters[0].reason


@pytest.mark.story
@pytest.mark.kafka
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
async def test_of_many_records_each_is_written_or_refused(kafka_broker: KafkaBroker, compress: bool) -> None:  # noqa: FBT001
    """As history is sent: five at once, one of them refused by the broker, one by the client."""
    kafka_broker.apply_topics(1)
    await limit(kafka_broker.bootstrap, BACKFILL.name, 3_000)
    sender = Sender(kafka_broker.cluster, client_id="test", acks="1", timeout_s=5, compress=compress)
    await sender.connect([BACKFILL.name])
    values = [b"a", os.urandom(5_000), b"b", os.urandom(5 << 20), b"c"]
    results = await sender.send_each([Out(topic=BACKFILL.name, key=b"node", value=value) for value in values])
    await sender.close()

    assert [isinstance(one, Refused) for one in results] == [False, True, False, True, False]
    written = {record.value async for record in read_topic(kafka_broker.cluster, BACKFILL.name)}
    assert written == {b"a", b"b", b"c"}


@pytest.mark.parametrize("task", ["_send_samples", "_send_history", "_send_outcomes", "_listen"])
@pytest.mark.parametrize("raises", [RuntimeError("a bug"), None], ids=["raises", "returns"])
async def test_a_link_task_that_ends_ends_the_agent(
    embedded_broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    raises: Exception | None,
) -> None:
    """It exits with an error, so that whoever supervises it starts it again."""
    embedded_broker.apply_topics(1)
    over = asyncio.Event()

    async def ends(_: Link) -> None:
        await asyncio.sleep(2)  # by then no client is cancelled as it connects
        over.set()
        if raises is not None:
            raise raises

    monkeypatch.setattr(Link, task, ends)
    ended = pytest.raises(LinkError, match=r"the task for \w+ ended: .*(a bug|it returned)")
    with VirtualNode(tmp_path) as node, ended:
        async with agent_of(node, embedded_broker.bootstrap, tmp_path):
            await over.wait()
            await asyncio.sleep(1)  # a few turns of the loop, after which it ends by itself


async def test_a_record_that_makes_the_agent_fail_costs_only_itself(
    embedded_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_broker.apply_topics(1)
    where = embedded_broker.bootstrap

    def fails(*_: object) -> None:
        raise OverflowError("int too large")

    monkeypatch.setattr(NodeAgent, "credit", fails)
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path):
            await sent(where, 1)
            sender = Sender(Cluster(where), client_id="test", acks="all", timeout_s=5)
            await sender.connect([CREDIT.name])
            credit = encode(EvictionCredit(node=NODE, boot_id="1", epoch=1, number=1, granted=1, ttl_ms=1))
            await sender.send([Out(topic=CREDIT.name, key=NODE.encode(), value=credit)])
            await sender.close()
            letters = await soon(lambda: dead_letters(where), "a dead letter")
            await sent(where, 3)

    assert [(letter.topic, letter.reason) for letter in letters] == [
        (CREDIT.name, "apply failed: OverflowError: int too large")
    ]
