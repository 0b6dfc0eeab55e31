"""``slacktide explain service`` as a process against a broker: what topics hold, and what to do where they lack it."""

import asyncio
import json
import subprocess

import msgspec

from slacktide.deploy.cli.explain.service_text import service_text
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import NODE_PARTITIONS, SAMPLE, SERVICE_PROFILE, SERVICE_SLOPE
from slacktide.streams.analysis.explain.service import colocation_in, explain_service
from slacktide.streams.kafka import Sender, partition_of
from slacktide.streams.records import Out, Record
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import SLACKTIDE
from testbed.samples import SERVICE, body_of, keyframe
from testbed.services import INSENSITIVE, WEB, profile, services


def explain(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [SLACKTIDE, "explain", "service", *arguments, "--bootstrap", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def put(bootstrap: str, records: list[Record]) -> None:
    async def send() -> None:
        sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
        await sender.connect(sorted({one.topic for one in records}))
        await sender.send([Out(topic=one.topic, key=one.key, value=one.value) for one in records])
        await sender.close()

    asyncio.run(send())


def test_a_service_is_explained_by_its_newest_profile_and_the_policy_in_force(embedded_broker: EmbeddedBroker) -> None:
    bootstrap = embedded_broker.bootstrap
    embedded_broker.apply_topics()
    records = services("shadow", [profile(node_hours=1.0), profile("shop/calm", **INSENSITIVE), profile()])
    put(bootstrap, records)

    text, listed, found = explain(bootstrap, WEB), explain(bootstrap), explain(bootstrap, WEB, "-o", "json")

    assert (text.returncode, listed.returncode, found.returncode) == (0, 0, 0), (
        text.stderr + listed.stderr + found.stderr
    )
    body = json.loads(found.stdout)
    assert (body["cap_pct"], body["mode"], body["profile"]["node_hours"]) == (34, "shadow", 41.5)
    assert "sums" not in body["profile"]
    number = partition_of(WEB, NODE_PARTITIONS)
    assert (body["place"]["topic"], body["place"]["partition"]) == (SERVICE_PROFILE.name, number)
    assert body["minutes"].startswith(f"slacktide.service.minute.v1 {number}:1024 ")
    assert body["published_place"]["topic"] == SERVICE_SLOPE.name
    explained = explain_service(records, WEB, 0, colocation_in(records))
    assert explained is not None
    picture = service_text(explained).partition("slowdown by the part")[2]
    assert text.stdout.rstrip().endswith(picture)
    names = [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("shop/")]
    assert names == [WEB, "shop/calm"]


def test_an_unknown_service_ends_with_1_and_what_to_do(embedded_broker: EmbeddedBroker) -> None:
    bootstrap = embedded_broker.bootstrap
    embedded_broker.apply_topics()
    nothing, off = explain(bootstrap), explain(bootstrap, WEB)
    assert (nothing.returncode, off.returncode) == (1, 1)
    assert "no service has a profile; learnedCaps is off" in nothing.stderr
    assert f"no profile of service {WEB}; none is known. learnedCaps is off" in off.stderr

    put(bootstrap, services("shadow", [profile()]))
    other = explain(bootstrap, "shop/wbe")
    assert other.returncode == 1
    assert f"known: {WEB}. no recent pod list has a pod of this controller" in other.stderr

    front = msgspec.structs.replace(SERVICE, owner="front")
    sample = body_of(keyframe(1, "alpha", pods=[front]))
    put(bootstrap, [Record(topic=SAMPLE.name, partition=0, offset=0, timestamp_ms=0, key=b"alpha", value=sample)])
    running = explain(bootstrap, "shop/front")
    assert "a pod of it is on alpha" in running.stderr
    assert explain(bootstrap, "front").returncode == 2
