"""An agent on a real broker, with no worker there: its samples, its outcomes and the guard, through an outage."""

import asyncio
import logging
import time
from base64 import b64decode
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY

from slacktide.agents.node.metrics import POLICY_REFUSED
from slacktide.agents.node.state import State
from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.health import Health
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Resources, revision_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import KEY, Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import to_sample
from slacktide.schemas.topics import BACKFILL, COMMAND, DEAD_LETTER, INVENTORY, OUTCOME, POLICY
from slacktide.streams.kafka import Sender, partition_of, read_topic
from slacktide.streams.records import Out, Record
from testbed.agent_rig import agent_of
from testbed.bad_headers import MARKER, put_bad_header
from testbed.brokers import EmbeddedBroker
from testbed.one_machine import NODE, VirtualNode
from testbed.sampled import sampled

PARTITIONS = 4
ON = policy_of(Colocation(), ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"))

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it repeats itself while a broker is away


async def put(bootstrap: str, *records: Out) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect([record.topic for record in records])
    await sender.send(records)
    await sender.close()


async def of_topic(bootstrap: str, topic: str) -> list[Record]:
    return [record async for record in read_topic(Cluster(bootstrap), topic)]


def taken() -> int:
    """How many samples agents of this process have taken: of one agent the newest one's number."""
    return int(REGISTRY.get_sample_value("slacktide_agent_samples_total", {"node": NODE}) or 0)


async def samples(bootstrap: str) -> list[NodeSample]:
    return await sampled(Cluster(bootstrap))


async def history(bootstrap: str) -> list[NodeSample]:
    return [to_sample(record.value, lambda _: None) for record in await of_topic(bootstrap, BACKFILL.name)]


async def outcomes(bootstrap: str) -> list[NodeOutcome]:
    return [decode(record.value, NodeOutcome) for record in await of_topic(bootstrap, OUTCOME.name)]


async def until(true, within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    while not await true():
        assert time.monotonic() < until_s, f"not within {within_s:g} s"
        await asyncio.sleep(0.1)


def policy_record(policy: Policy = ON) -> Out:
    return Out(topic=POLICY.name, key=KEY.encode(), value=encode(policy))


async def test_through_an_outage_the_guard_acts_the_newest_sample_goes_out_and_no_outcome_is_lost(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap
    await put(where, policy_record())
    earlier = taken()
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path):

            async def guarded() -> bool:
                return len(await outcomes(where)) >= 4 and node.quota_us is not None

            await until(guarded)
            await asyncio.to_thread(embedded_broker.stop)
            gone_seq = taken() - earlier
            held_us = node.quota_us
            node.service.demand_milli = 4_000

            async def cut() -> bool:
                """The guard has, while the broker was away."""
                return node.quota_us < held_us and taken() - earlier >= gone_seq + 10

            await until(cut)
            await asyncio.to_thread(embedded_broker.start)
            embedded_broker.apply_topics(PARTITIONS)

            async def back() -> bool:
                return len(await samples(where)) >= 4

            await until(back)

            async def made_up_for() -> bool:
                late, live = await history(where), await samples(where)
                return bool(late) and late[-1].seq == live[0].seq - 1

            await until(made_up_for)
        sent = [sample.seq for sample in await samples(where)]
        # A busy machine overtakes samples later, too.
        late = [sample.seq for sample in await history(where) if sample.seq < sent[0]]
        after = await outcomes(where)

    acted = [outcome.seq for outcome in after]
    assert sent[0] - acted[0] >= 8, "what was taken during the outage is no news"
    assert late == list(range(late[0], sent[0])), "it follows as history, the oldest first"
    assert late[0] <= gone_seq + 1, "and from the first one on"
    assert sent == sorted(set(sent))
    assert acted[0] <= gone_seq + 1, "the first act of the outage was kept"
    assert acted == list(range(acted[0], sent[-1] + 1)), "and each one since, in order"
    assert len({outcome.command_id for outcome in after}) == len(after)


async def until_connected(health: Health, bootstrap: str) -> None:
    """It reads, and something came of a sample."""

    async def acted() -> bool:
        return not health.not_ready and bool(await outcomes(bootstrap))

    await until(acted)


async def dead_letters(bootstrap: str) -> list[DeadLetter]:
    return [decode(record.value, DeadLetter) for record in await of_topic(bootstrap, DEAD_LETTER.name)]


async def until_laid_aside(bootstrap: str, count: int) -> None:
    async def there() -> bool:
        return len(await dead_letters(bootstrap)) == count

    await until(there)


async def test_other_nodes_answers_are_dropped_unread_and_its_own_bad_ones_are_dead_letters(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(1)
    where = embedded_broker.bootstrap
    await put(where, policy_record())
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path) as health:
            await until_connected(health, where)
            await put(
                where,
                *(Out(topic=COMMAND.name, key=key.encode(), value=b"not a command") for key in ("another", NODE)),
            )
            await until_laid_aside(where, 1)
        letters = await dead_letters(where)

    assert [(letter.topic, letter.key) for letter in letters] == [(COMMAND.name, NODE)]
    assert partition_of("another", 1) == partition_of(NODE, 1) == 0, "both lay in its partition"


async def test_a_header_name_that_is_no_text_does_not_keep_an_agent_from_what_lies_behind_it(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Neither another node's record in its partition nor its own."""
    embedded_broker.apply_topics(1)
    where = embedded_broker.bootstrap
    await put(where, policy_record())
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path) as health:
            await until_connected(health, where)
            said = [(b"another", b"{}", MARKER), (NODE.encode(), b"mine", MARKER), (NODE.encode(), b"behind", "fine")]
            await put_bad_header(where, COMMAND.name, 0, said)
            await until_laid_aside(where, 2)
        letters = await dead_letters(where)

    assert [b64decode(letter.value_base64 or "") for letter in letters] == [b"mine", b"behind"]
    assert [letter.headers for letter in letters] == [{}, {"fine": "1"}]


async def test_without_a_log_the_agent_starts_with_the_policy_that_it_knew_last(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap
    await put(where, policy_record())
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path):

            async def held() -> bool:
                return node.quota_us is not None

            await until(held)
        await asyncio.to_thread(embedded_broker.stop)
        cut_us = node.quota_us
        node.service.demand_milli = 4_000
        async with agent_of(node, where, tmp_path):

            async def cut() -> bool:
                return node.quota_us < cut_us

            await until(cut, within_s=60)


async def test_a_policy_of_a_new_kafka_is_followed_though_an_older_ones_is_stored(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The writers of a new Kafka begin to count anew."""
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap
    (tmp_path / "state").mkdir()
    State(tmp_path / "state").keep_policy(msgspec.structs.replace(policies.DEFAULT, installation="old", writer_epoch=7))
    await put(where, policy_record(msgspec.structs.replace(ON, installation="new", writer_epoch=1)))
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path) as health:

            async def follows() -> bool:
                return [sample.policy_version for sample in await samples(where)][-1:] == [ON.version]

            await until(follows)

    assert "policy" not in health.not_ready + health.not_fresh
    stored = State(tmp_path / "state").policy()
    assert stored is not None
    assert (stored.installation, stored.writer_epoch) == ("new", 1)


async def test_a_policy_that_an_agent_refuses_is_an_error_until_one_comes_that_it_takes(
    embedded_broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap
    held = msgspec.structs.replace(ON, installation="one", writer_epoch=7)
    late = msgspec.structs.replace(policies.DEFAULT, installation="one", writer_epoch=6)
    await put(where, policy_record(held))
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, where, tmp_path) as health:

            async def is_fresh() -> bool:
                return "policy" not in health.not_fresh

            async def refused_of(words: str) -> None:
                async def refused() -> bool:
                    return words in health.not_fresh

                await until(refused)
                assert POLICY_REFUSED.labels(NODE)._value.get() == 1

            await until_connected(health, where)
            await put(where, policy_record(late))
            await refused_of("writer_epoch 6, accepted: at least 7")
            assert "writer_epoch 6" in health.not_ready, "it alone may go by another policy than the others"
            await put(where, policy_record(held))
            await until(is_fresh)
            assert not health.not_ready
            assert POLICY_REFUSED.labels(NODE)._value.get() == 0
            await put(where, Out(topic=POLICY.name, key=KEY.encode(), value=None))
            await refused_of("the policy is deleted")
            assert not health.not_ready, "all go by the last good one"

    errors = [one for one in caplog.records if one.levelname == "ERROR" and "policy" in one.getMessage()]
    assert len(errors) == 2, "each refusal is logged once"


def inventory_record(epoch: int, installation: str = "", **labels: str) -> Out:
    size = Resources(cpu_milli=8_000, mem_bytes=2**34, batch_cpu_milli=3_000)
    facts = NodeFacts(name=NODE, capacity=size, allocatable=size, labels=labels)
    told = NodeInventory(
        node=NODE, revision=revision_of(facts), facts=facts, installation=installation, writer_epoch=epoch
    )
    return Out(topic=INVENTORY.name, key=NODE.encode(), value=encode(told))


async def test_a_node_is_as_the_log_tells_and_stays_so_without_it(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(PARTITIONS)
    where = embedded_broker.bootstrap

    async def pools() -> list[str]:
        return [one.facts.labels.get("pool", "") for one in await samples(where) if one.facts is not None]

    with VirtualNode(tmp_path) as node:
        await put(where, policy_record(), inventory_record(2, pool="mixed"))
        async with agent_of(node, where, tmp_path, from_kafka=True):
            await until(lambda: _ends(pools, "mixed"))
            removed = Out(topic=INVENTORY.name, key=NODE.encode(), value=None)
            await put(where, inventory_record(1, pool="of an older bridge"), removed)
            await put(where, inventory_record(3, pool="batch"))
            await until(lambda: _ends(pools, "batch"))
            await put(where, inventory_record(1, "another", pool="of another installation"))
            await until(lambda: _ends(pools, "of another installation"))
            await put(where, inventory_record(1, "another", pool="batch"))
            await until(lambda: _ends(pools, "batch"))
        assert "of an older bridge" not in await pools()
        embedded_broker.forget()
        embedded_broker.apply_topics(PARTITIONS)
        async with agent_of(node, where, tmp_path, from_kafka=True):
            await until(samples_come(where))
        assert set(await pools()) == {"batch"}, "what was told is kept"


async def _ends(pools, last: str) -> bool:
    return (await pools())[-1:] == [last]


def samples_come(where: str):
    async def come() -> bool:
        return bool(await samples(where))

    return come
