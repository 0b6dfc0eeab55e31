"""Governors on a real broker: one of several governs, and another takes over when it is killed."""

import asyncio
import contextlib
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest
from prometheus_client import REGISTRY

from slacktide.agents.credit_account import CreditAccount
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.topics import CREDIT, DEAD_LETTER, METRIC, OUTCOME, POLICY
from slacktide.streams.engine.governing import GovernorSettings, govern
from slacktide.streams.governor.governor import Governor
from slacktide.streams.kafka import NodeReader, Sender, read_topic
from slacktide.streams.records import Out
from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.governed import metric_record, outcome_record, policy_record
from testbed.stream_rig import until

NODE, BOOT = "node-1", "000000000001-x"
SESSION_MS = 2_000
BUDGET = EvictionBudget(interval_s=5, lease_s=12)

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it repeats itself while a broker is away

PROCESS = """
import asyncio, sys, time
from slacktide.schemas.connection import Cluster
from slacktide.streams.governor.governor import Governor
from slacktide.streams.engine.governing import GovernorSettings, govern
settings = GovernorSettings(bootstrap=Cluster(sys.argv[1]), session_timeout_ms=int(sys.argv[2]))
asyncio.run(govern(Governor("process"), settings, asyncio.Event(), lambda: time.time_ns() // 1_000_000))
"""


@contextlib.asynccontextmanager
async def beside(*works) -> AsyncIterator[None]:
    """Run these until the end of the block."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def lives(bootstrap: str, sender: Sender) -> None:
    """The node's metric, as a stream worker says it."""
    while True:
        record = metric_record(NODE, BOOT)
        await sender.send([Out(topic=METRIC.name, key=record.key, value=record.value)])
        await asyncio.sleep(0.5)


async def listen(reader: NodeReader, credit_account: CreditAccount, heard: list[EvictionCredit]) -> None:
    """Hear as an agent does."""
    while True:
        read = await reader.read()
        for record in read.credits:
            heard.append(decode(record.value, EvictionCredit))
            credit_account.receive(heard[-1], time.monotonic_ns() - round(read.credit_age_s * 1e9))


def process(bootstrap: str) -> subprocess.Popen[bytes]:
    """A candidate that can be killed."""
    arguments = [sys.executable, "-c", PROCESS, bootstrap, str(SESSION_MS)]
    return subprocess.Popen(arguments, stdin=subprocess.DEVNULL)


async def test_another_takes_over_with_a_higher_epoch_and_the_nodes_lease_goes_on(
    broker: EmbeddedBroker | KafkaBroker,
) -> None:
    broker.apply_topics(4)
    where = broker.bootstrap
    sender = Sender(Cluster(where), client_id="test", acks="all", timeout_s=5)
    await sender.connect([CREDIT.name, METRIC.name, POLICY.name])
    policy = policy_record(BUDGET)
    await sender.send([Out(topic=POLICY.name, key=policy.key, value=policy.value)])
    reader, credit_account, heard = (
        NodeReader(Cluster(where), NODE, client_id="agent", fetch_wait_ms=50, due=lambda: True),
        CreditAccount(BOOT),
        [],
    )
    await reader.connect()
    earlier = EvictionCredit(node=NODE, boot_id=BOOT, epoch=7, number=3, granted=1, ttl_ms=12_000)
    stop = asyncio.Event()
    settings = GovernorSettings(bootstrap=Cluster(where), session_timeout_ms=SESSION_MS)
    second = govern(Governor("second"), settings, stop, lambda: time.time_ns() // 1_000_000)
    async with beside(lives(where, sender), listen(reader, credit_account, heard)):
        await sender.send([Out(topic=CREDIT.name, key=NODE.encode(), value=encode(earlier))])
        first = process(where)
        try:
            await until(lambda: credit_account.epoch > 7, "the first governs")
            epoch = credit_account.epoch
            async with beside(second):
                await asyncio.sleep(1)
                assert credit_account.epoch == epoch, "a candidate that joins waits"
                first.kill()
                await until(lambda: credit_account.epoch > epoch, "the second governs")
                assert credit_account.ready(time.monotonic_ns(), "batch"), "without a gap"
        finally:
            first.kill()
            first.wait()
    await reader.close()
    await sender.close()

    assert {(lease.boot_id, lease.granted) for lease in heard} == {(BOOT, 1)}
    assert [lease.epoch for lease in heard] == sorted(lease.epoch for lease in heard)
    said = [record async for record in read_topic(Cluster(where), CREDIT.name)]
    assert len(said) <= 10, "nothing is said that need not be"


async def test_a_log_that_was_made_anew_is_governed_anew(embedded_broker: EmbeddedBroker) -> None:
    """An agent that outlived it takes the new leases, too: their epoch is higher than all it has heard of."""
    where, credit_account, stop = embedded_broker.bootstrap, CreditAccount(BOOT), asyncio.Event()
    policy = policy_record(EvictionBudget(interval_s=5, lease_s=3))
    settings = GovernorSettings(bootstrap=Cluster(where), session_timeout_ms=SESSION_MS)
    governing = govern(Governor("first"), settings, stop, lambda: time.time_ns() // 1_000_000)
    async with beside(governing):
        for life in range(2):
            embedded_broker.apply_topics(4)
            sender = Sender(Cluster(where), client_id="test", acks="all", timeout_s=5)
            reader, heard = NodeReader(Cluster(where), NODE, client_id="agent", fetch_wait_ms=50, due=lambda: True), []
            await sender.connect([CREDIT.name, METRIC.name, POLICY.name])
            await sender.send([Out(topic=POLICY.name, key=policy.key, value=policy.value)])
            await reader.connect()
            epoch = credit_account.epoch
            async with beside(lives(where, sender), listen(reader, credit_account, heard)):
                await until(lambda: credit_account.epoch > epoch, "it is governed")  # noqa: B023
                assert credit_account.ready(time.monotonic_ns(), "batch")
            await reader.close()
            await sender.close()
            if life == 0:
                await asyncio.to_thread(embedded_broker.forget)


async def test_forged_outcomes_end_no_term_and_use_up_no_budget(embedded_broker: EmbeddedBroker) -> None:
    """An epoch of 2**53, a total of 2**53, a later boot, and nodes that do not exist."""
    where, stop, credit_account = embedded_broker.bootstrap, asyncio.Event(), CreditAccount(BOOT)
    embedded_broker.apply_topics(4)
    policy = policy_record(EvictionBudget(cluster_max=2, node_max=2, interval_s=60, lease_s=3))
    settings = GovernorSettings(bootstrap=Cluster(where), session_timeout_ms=SESSION_MS)
    sender = Sender(Cluster(where), client_id="test", acks="all", timeout_s=5)
    await sender.connect([OUTCOME.name, METRIC.name, POLICY.name])
    await sender.send([Out(topic=POLICY.name, key=policy.key, value=policy.value)])
    forged = [
        outcome_record(NODE, BOOT, 0, "x", done=False, epoch=2**53),
        outcome_record("invented", BOOT, 2**53, "x"),
        outcome_record("invented-2", BOOT, 0, "x", done=False),
        outcome_record(NODE, "999999999999-x", 2**53, "x"),
    ]
    reader, heard = NodeReader(Cluster(where), NODE, client_id="agent", fetch_wait_ms=50, due=lambda: True), []
    await reader.connect()
    governing = govern(Governor("first"), settings, stop, lambda: time.time_ns() // 1_000_000)
    async with beside(governing, lives(where, sender), listen(reader, credit_account, heard)):
        await until(lambda: credit_account.ready(time.monotonic_ns(), "batch"), "it is granted")
        for _ in range(3):
            await sender.send([Out(topic=OUTCOME.name, key=one.key, value=one.value) for one in forged])
            await asyncio.sleep(0.5)
        begun = len(heard)
        await until(lambda: len(heard) > begun + 1, "the lease is renewed")
        assert credit_account.ready(time.monotonic_ns(), "batch")
    await reader.close()
    await sender.close()

    assert {lease.epoch for lease in heard} == {heard[0].epoch}
    assert {lease.boot_id for lease in heard} == {BOOT}
    assert {record.key async for record in read_topic(Cluster(where), CREDIT.name)} == {NODE.encode()}


async def test_what_it_cannot_use_is_counted_with_the_workers_dead_letters(embedded_broker: EmbeddedBroker) -> None:
    """Else nobody would be alerted of it."""
    where, stop = embedded_broker.bootstrap, asyncio.Event()
    embedded_broker.apply_topics(4)
    settings = GovernorSettings(bootstrap=Cluster(where), session_timeout_ms=SESSION_MS)
    sender = Sender(Cluster(where), client_id="test", acks="all", timeout_s=5)
    await sender.connect([OUTCOME.name])
    before = dead_letters()
    async with beside(govern(Governor("first"), settings, stop, lambda: time.time_ns() // 1_000_000)):
        await sender.send([Out(topic=OUTCOME.name, key=NODE.encode(), value=b'{"spent": no')])
        await until(lambda: dead_letters() > before, "it is counted")
    await sender.close()

    [letter] = [record async for record in read_topic(Cluster(where), DEAD_LETTER.name)]
    assert letter.key == NODE.encode()


def dead_letters() -> float:
    return REGISTRY.get_sample_value("slacktide_stream_dead_letters_total") or 0.0


async def test_a_candidate_without_its_topics_waits_and_ends_when_told(
    embedded_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """For the worker beside it that is no more than a line in the log."""
    stop = asyncio.Event()
    settings = GovernorSettings(bootstrap=embedded_broker.cluster, session_timeout_ms=SESSION_MS)
    task = asyncio.create_task(govern(Governor("first"), settings, stop, lambda: 0))
    await until(lambda: "no candidate for governor: these topics do not exist" in caplog.text, "it says so")
    stop.set()
    async with asyncio.timeout(60):
        await task
