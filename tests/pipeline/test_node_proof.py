"""An agent and a worker on a real broker where the policy asks for proofs, and who forges the node."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from slacktide.agents.http import Access
from slacktide.agents.node.proof import FILE, LOOK_S, Prover
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import KEY, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.proof import Enrolled, Verifier, node_key
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import BACKFILL, COMMAND, DEAD_LETTER, METRIC, OUTCOME, POLICY, SAMPLE, SERVICE_MINUTE
from slacktide.streams.kafka import Sender, read_topic
from slacktide.streams.proofs import by_keys
from slacktide.streams.records import Out, Record
from testbed.agent_rig import agent_of
from testbed.brokers import EmbeddedBroker, free_port
from testbed.one_machine import NODE, VirtualNode
from testbed.proofs import cluster_key
from testbed.sampled import sampled
from testbed.stream_rig import PARTITIONS, Rig, until

STRATEGIES = Colocation(enable=True), ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota")
REQUIRED: Policy = msgspec.structs.replace(policy_of(*STRATEGIES), node_proof="required")
FORGED_BOOT = "999999999999-x"

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it repeats itself while a broker is away


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def nobody(folder: Path) -> Access:
    """A bridge that is away."""
    (folder / "token").write_text("token")
    return Access(url=f"https://127.0.0.1:{free_port()}", token=folder / "token")


def enrolled_before(folder: Path, seconds: float = 6 * 3_600) -> None:
    """An earlier run of the agent has got a key."""
    (folder / "state").mkdir(exist_ok=True)
    key = node_key(cluster_key(), NODE, int(now_ms() / 1_000 + seconds))
    Prover(NODE, folder / "state", now_ms).use(Enrolled.of(key))
    assert (folder / "state" / FILE).stat().st_mode & 0o777 == 0o600


async def put(bootstrap: str, *records: Out) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect([record.topic for record in records])
    await sender.send(records)
    await sender.close()


async def of_topic(bootstrap: str, topic: str) -> list[Record]:
    return [record async for record in read_topic(Cluster(bootstrap), topic)]


async def commands(bootstrap: str) -> list[NodeCommand]:
    return [decode(record.value, NodeCommand) for record in await of_topic(bootstrap, COMMAND.name)]


@asynccontextmanager
async def at_work(broker: EmbeddedBroker) -> AsyncIterator[str]:
    """A worker with the cluster key, and the policy."""
    broker.apply_topics(PARTITIONS)
    await put(broker.bootstrap, Out(topic=POLICY.name, key=KEY.encode(), value=encode(REQUIRED)))
    async with (
        Rig(broker.bootstrap) as rig,
        rig.worker(judge=by_keys(Verifier([cluster_key()]))),
    ):
        yield broker.bootstrap


async def fresh(health: Health) -> None:
    await until(lambda: not health.not_fresh and not health.not_ready, "the agent is fresh")


def forgery(sample: NodeSample, **changes: object) -> Out:
    """Of this node, by who has the agents' Kafka credential and another node's key."""
    value = encoded(msgspec.structs.replace(sample, **changes), sample.pods or ())
    header = node_key(cluster_key(), "another-node", 4_000_000_000).header(SAMPLE.name, value)
    return Out(topic=SAMPLE.name, key=NODE.encode(), value=value, headers=(header,))


async def test_a_forger_is_refused_and_the_real_node_goes_on(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    enrolled_before(tmp_path)
    async with at_work(embedded_broker) as where:
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, where, tmp_path, enrol=nobody(tmp_path)) as health:
                # The bridge is away, which is said from 18 h on.
                await until(
                    lambda: not health.not_ready and health.not_fresh.startswith("this node's key expires"), "it works"
                )
                seen = await sampled(Cluster(where))
                keyframe = next(sample for sample in seen if sample.pods is not None)
                for round_ in range(20):
                    newest = seen[-1].seq + 1_000 + round_
                    await put(
                        where,
                        forgery(keyframe, boot_id=FORGED_BOOT, seq=newest, pods=[]),
                        forgery(keyframe, seq=newest),
                        msgspec.structs.replace(forgery(keyframe, boot_id=FORGED_BOOT, seq=newest), headers=()),
                    )
                    await asyncio.sleep(0.1)
                await asyncio.sleep(1)
                assert "samples are refused" not in health.not_fresh
                assert "guard" not in health.not_fresh
        said = await commands(where)
        metrics = [decode(record.value, NodeMetric) for record in await of_topic(where, METRIC.name) if record.value]
        outcomes = [decode(record.value, NodeOutcome) for record in await of_topic(where, OUTCOME.name)]
        letters = await of_topic(where, DEAD_LETTER.name)

    boot = keyframe.boot_id
    real = [one for one in said if one.boot_id == boot and one.seq < seen[-1].seq + 1_000]
    others = [one for one in said if one not in real]
    assert {one.proof for one in real} == {"ok"}
    assert len(others) == 60
    assert {(one.answer, one.proof) for one in others} == {("skipped", "forged"), ("skipped", "absent")}
    assert {one.boot_id for one in metrics if one.node == NODE} == {boot}
    assert max(one.seq for one in metrics) < seen[-1].seq + 1_000
    settled = [one for one in outcomes if one.seq > seen[-1].seq + 1]
    assert "stream" in {one.origin for one in settled}, "a busy machine may be late now and then"
    assert not [one for one in outcomes if "proof" in one.reason]
    assert 0 < len(letters) <= 20


async def test_what_an_agent_sends_is_signed_when_it_is_sent(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Samples, those of an outage, outcomes and minutes of services, through a broker that went away meanwhile."""
    enrolled_before(tmp_path)
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap
    learning = policy_of(msgspec.structs.replace(STRATEGIES[0], learned_caps="shadow"), STRATEGIES[1])
    policy = msgspec.structs.replace(learning, node_proof="required")
    await put(where, Out(topic=POLICY.name, key=KEY.encode(), value=encode(policy)))
    verifier, sent = Verifier([cluster_key()]), (SAMPLE, BACKFILL, OUTCOME, SERVICE_MINUTE)
    with VirtualNode(tmp_path) as node:
        node.own_service("web")
        node.stall_service(0, 0)
        async with agent_of(node, where, tmp_path, enrol=nobody(tmp_path), minute_ms=1_000):
            await asyncio.sleep(1)
            await asyncio.to_thread(embedded_broker.stop)
            await asyncio.sleep(1.5)
            await asyncio.to_thread(embedded_broker.start)
            embedded_broker.apply_topics(PARTITIONS)
            until_s = time.monotonic() + 60
            while not all([await of_topic(where, topic.name) for topic in sent]):
                assert time.monotonic() < until_s
                await asyncio.sleep(0.2)
        for topic in sent:
            records = await of_topic(where, topic.name)
            assert records
            for one in records:
                assert verifier.check(one.topic, NODE.encode(), one.value, tuple(one.headers), now_ms()) == "ok"


async def test_a_node_without_a_key_is_safe_and_says_why(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    async with at_work(embedded_broker) as where:
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, where, tmp_path, enrol=nobody(tmp_path)) as health:
                await until(lambda: "proof: absent" in health.not_fresh, "the agent says that it is refused")
                await until(lambda: node.quota_us is not None, "the guard holds best-effort pods")
            said = await commands(where)
            assert {(one.answer, one.proof) for one in said} == {("skipped", "absent")}
            enrolled_before(tmp_path, 20 * 3_600)
            async with agent_of(node, where, tmp_path, enrol=nobody(tmp_path)) as health:
                await asyncio.sleep(LOOK_S)
                await fresh(health)


@pytest.mark.parametrize("seconds", [-1.0, 3.0])
async def test_expiry_is_judged_by_the_time_of_append(
    embedded_broker: EmbeddedBroker, tmp_path: Path, seconds: float
) -> None:
    enrolled_before(tmp_path, seconds)
    async with at_work(embedded_broker) as where:
        with VirtualNode(tmp_path) as node:
            async with agent_of(node, where, tmp_path, enrol=nobody(tmp_path)) as health:
                await until(lambda: "proof: expired" in health.not_fresh, "the key has expired")
        found = {one.proof for one in await commands(where)}
        assert found in ({"expired"}, {"ok", "expired"})
