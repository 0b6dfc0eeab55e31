"""Apache Kafka behind TLS and logins: who gets in and by what, and what is told to who does not."""

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slacktide.schemas.access import AGENT, BRIDGE, PUBLISHER, SCHEDULER, WEBHOOK, Part
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, RightsError
from slacktide.schemas.topics import MISSED_POD, PLACEMENT, POLICY
from slacktide.streams.kafka import Sender, create_topics, describe_topics, read_topic
from testbed.brokers import running
from testbed.guarded import GuardedKafka
from testbed.one_machine import NODE, SLACKTIDE, VirtualNode, eventually

pytestmark = [pytest.mark.kafka]
TOLD_S = 60.0
Lines = dict[str, str]


@pytest.fixture(scope="module")
def kafka() -> Iterator[GuardedKafka]:
    """With a user for each part, who may do what is printed; topics are there."""
    with running(GuardedKafka) as broker:
        broker.grant(subprocess.run([SLACKTIDE, "topics", "acl"], capture_output=True, text=True, check=True).stdout)
        asyncio.run(create_topics(broker.doors["topics"]))
        yield broker


def slacktide(door: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user calls it; within seconds it has ended."""
    where = ["--bootstrap", str(door), "--kafka-config", door.security.file]
    return subprocess.run([SLACKTIDE, *arguments, *where], capture_output=True, text=True, timeout=TOLD_S, check=False)


@pytest.mark.parametrize(
    ("lines", "known_as"),
    [
        pytest.param(lambda one: one.as_user("slacktide-reader", "PLAIN"), "PLAIN as slacktide-reader", id="PLAIN"),
        pytest.param(
            lambda one: one.as_user("slacktide-reader", "SCRAM-SHA-256"),
            "SCRAM-SHA-256 as slacktide-reader",
            id="SCRAM",
        ),
        pytest.param(GuardedKafka.with_token, "OAUTHBEARER as the token in file:///", id="a token"),
        pytest.param(GuardedKafka.with_certificate, "SSL, certificate /", id="a certificate"),
    ],
)
def test_a_reader_gets_in_by_each_means(
    kafka: GuardedKafka, lines: Callable[[GuardedKafka], Lines], known_as: str
) -> None:
    """And is told by what, and as whom."""
    said = lines(kafka)
    door = kafka.door("reader", said, kafka.mutual if said["security.protocol"] == "SSL" else "")
    asked = json.loads(slacktide(door, "doctor", "--output", "json").stdout)
    found = {check["check"]: check for check in asked["checks"]}

    assert known_as in found["log.connection"]["found"]
    assert found["log.broker"]["verdict"] == found["log.topics"]["verdict"] == "ok"


def login(one: GuardedKafka) -> Lines:
    return one.as_user("slacktide-reader")


REFUSED = {
    "a wrong password": (
        lambda one: (login(one) | {"sasl.password": "hunter2"}, one.login),
        "login as slacktide-reader by SCRAM-SHA-512 refused (",
    ),
    "a name that nobody has": (
        lambda one: (login(one) | {"sasl.username": "nobody"}, one.login),
        "login as nobody by SCRAM-SHA-512 refused (",
    ),
    "a token that has expired": (
        lambda one: (one.with_token(life_s=-60), one.login),
        "login by OAUTHBEARER refused (",
    ),
    "an authority that it does not know": (
        lambda one: ({key: value for key, value in login(one).items() if key != "ssl.ca.location"}, one.login),
        "its certificate could not be verified (unable to get local issuer certificate): set ssl.ca.location to the CA",
    ),
    "a name that its certificate is not for": (
        lambda one: (login(one), one.login.replace("127.0.0.1", "localhost")),
        "its certificate could not be verified (Hostname mismatch, certificate is not valid for 'localhost'.)",
    ),
    "no TLS at a port for TLS": (lambda one: ({}, one.login), "it closed the connection; check with"),
    "no login at a port for logins": (
        lambda one: ({"security.protocol": "SSL", "ssl.ca.location": str(one.certificates.ca)}, one.login),
        "it closed the connection; check with --kafka-config, security.protocol",
    ),
    "TLS at a port without": (
        lambda one: (login(one), one.bootstrap),
        "it closed the connection; check with",
    ),
    "no certificate where one is asked for": (
        lambda one: ({"security.protocol": "SSL", "ssl.ca.location": str(one.certificates.ca)}, one.mutual),
        "TLS failed (SSLV3_ALERT_BAD_CERTIFICATE): check that this port accepts TLS",
    ),
}
"""What is tried: the lines of a file and where to; and what is told."""
EACH = pytest.mark.parametrize("tried", [pytest.param(name, id=name) for name in REFUSED])


def refused(kafka: GuardedKafka, tried: str) -> tuple[Cluster, str]:
    made, said = REFUSED[tried]
    lines, address = made(kafka)
    return kafka.door("refused.conf", lines, address), said


@EACH
async def test_who_is_refused_is_told_why_at_once_by_each_door(kafka: GuardedKafka, tried: str) -> None:
    """Agents' and command line's; a worker's is in the log of the test below, and here in `explain`."""
    door, said = refused(kafka, tried)
    began_s = time.monotonic()
    with pytest.raises(LogError) as told:
        await Sender(door, client_id="refused", acks="all").connect([POLICY.name])
    by_stream = await asyncio.to_thread(slacktide, door, "explain", "node", "node-1")

    assert time.monotonic() - began_s < TOLD_S
    assert str(told.value).startswith(f"{door}: {said}")
    assert said in by_stream.stderr
    assert by_stream.returncode == 1
    assert "hunter2" not in f"{told.value}{by_stream.stdout}{by_stream.stderr}"


async def test_a_broker_that_calls_itself_by_another_name_is_told_by_that(kafka: GuardedKafka) -> None:
    """Where ``advertised.listeners`` is not what the certificate is for the first connection is well, and no other."""
    door = kafka.door("alias.conf", login(kafka), kafka.alias)
    said = f"localhost:{kafka.alias.partition(':')[2]}: its certificate could not be verified (Hostname mismatch"
    with pytest.raises(LogError) as told:
        await Sender(door, client_id="refused", acks="all").connect([POLICY.name])

    assert said in str(told.value)
    assert said in (await asyncio.to_thread(slacktide, door, "topics", "list")).stderr


@pytest.mark.parametrize(
    ("part", "tried"),
    [
        ("agent", "a wrong password"),
        ("agent", "an authority that it does not know"),
        ("stream", "no TLS at a port for TLS"),
        ("publish", "a wrong password"),
    ],
)
def test_a_part_that_is_refused_waits_and_says_so_once(
    kafka: GuardedKafka, tmp_path: Path, part: str, tried: str
) -> None:
    """It tries again every few seconds; told to stop, it stops."""
    door, said = refused(kafka, tried)
    where = [
        "--bootstrap",
        str(door),
        "--kafka-config",
        door.security.file,
        "--metrics-port",
        "0",
        "--log-format",
        "json",
    ]
    with VirtualNode(tmp_path) as node, (tmp_path / "log").open("wb") as log:
        more = {
            "agent": [*node.arguments, "--state-folder", str(tmp_path / "state")],
            "publish": ["--policy", str(node.policy), "--inventory", str(node.inventory), "--node-name", NODE],
        }
        process = subprocess.Popen([SLACKTIDE, part, *where, *more.get(part, [])], stdout=log, stderr=log)
    try:
        assert eventually(lambda: said in (tmp_path / "log").read_text(), TOLD_S), (tmp_path / "log").read_text()
        time.sleep(2.5)
    finally:
        process.terminate()
        process.wait(TOLD_S)
    written = (tmp_path / "log").read_text()

    told = [line for line in map(json.loads, written.splitlines()) if said in str(line)]
    assert told
    assert not {name for name, times in Counter(map(named, told)).items() if times > 1}, "once for each connection"
    assert "hunter2" not in written
    assert "Traceback" not in written


def named(line: dict[str, str]) -> tuple[str, str, str]:
    """Of a line of a log: its message, and which connection is away and why, where it has these."""
    return line["message"], line.get("for", ""), line.get("why", "")


@pytest.mark.parametrize("part", [PUBLISHER, BRIDGE], ids=lambda part: part.name)
async def test_who_begins_by_looking_for_topics_may_see_all(kafka: GuardedKafka, part: Part) -> None:
    assert await create_topics(kafka.doors[part.name]) == []


async def test_a_scheduler_reads_what_the_other_replica_has_answered(kafka: GuardedKafka) -> None:
    assert [record async for record in read_topic(kafka.doors[SCHEDULER.name], PLACEMENT.name)] == []


def test_doctor_in_a_part_s_place_says_what_it_may_not_look_at(kafka: GuardedKafka) -> None:
    """All else it tells: an agent's rights are for its own topics."""
    asked = json.loads(slacktide(kafka.doors[AGENT.name], "doctor", "--output", "json").stdout)
    found = {check["check"]: check for check in asked["checks"] if check["check"].startswith("log.")}

    assert found["log.topics"]["verdict"] == "warning"
    assert "slacktide topics acl reader" in found["log.topics"]["advice"]
    assert {check["verdict"] for check in found.values() if check["check"] != "log.topics"} == {"ok"}


async def test_a_right_that_is_lacking_is_named_with_whose_it_would_be(kafka: GuardedKafka) -> None:
    with pytest.raises(RightsError, match=r"pod.missed.v1.*, by SASL_SSL, SCRAM-SHA-512 as slacktide-webhook: slackt"):
        await describe_topics(kafka.doors[WEBHOOK.name], [MISSED_POD.name])


async def test_a_token_is_read_anew_at_each_login(kafka: GuardedKafka) -> None:
    """As whoever issues it renews it, without a restart."""
    door = kafka.door("token.conf", kafka.with_token(life_s=-60))
    sender = Sender(door, client_id="renewed", acks="1")
    with pytest.raises(LogError, match="login by OAUTHBEARER refused"):
        await sender.connect([POLICY.name])
    kafka.with_token()

    await sender.connect([POLICY.name])
    await sender.close()
