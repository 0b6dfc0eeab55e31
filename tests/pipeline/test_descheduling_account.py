"""The account of descheduling with a governor on a real broker."""

import asyncio
import time

import pytest

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.descheduler.descheduler import Account
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import DESCHEDULER
from slacktide.schemas.policy.strategies import EvictionBudget
from slacktide.schemas.topics import CREDIT, OUTCOME, POLICY
from slacktide.streams.engine.governing import GovernorSettings, govern
from slacktide.streams.governor.governor import Governor
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, Record
from testbed.brokers import EmbeddedBroker
from testbed.governed import outcome_record, policy_record

EPOCH = 7


@pytest.fixture
def broker(embedded_broker: EmbeddedBroker) -> str:
    embedded_broker.apply_topics(3)
    return embedded_broker.bootstrap


async def test_credit_comes_when_it_is_asked_for_and_no_more_than_the_clusters_budget(broker: str) -> None:
    laid_aside: list[Record] = []
    account = Account(Cluster(broker), EPOCH, lambda record, _: laid_aside.append(record), SystemClock())
    sender = Sender(Cluster(broker), client_id="test", acks="all", timeout_s=5)
    await sender.connect([CREDIT.name, OUTCOME.name, POLICY.name])

    async def say(*, total: int, done: bool) -> None:
        said = outcome_record(DESCHEDULER, account.boot_id, total, "jobs", done=done, epoch=account.spent.epoch)
        await sender.send([Out(topic=OUTCOME.name, key=said.key, value=said.value)])

    async def asked(within_s: float) -> bool:
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and not account.ready("jobs"):
            await say(total=account.spent.evictions, done=False)
            await asyncio.sleep(0.5)
        return account.ready("jobs")

    policy = policy_record(EvictionBudget(cluster_max=2, node_max=2, namespace_max=2, interval_s=600, lease_s=3))
    await sender.send([Out(topic=POLICY.name, key=policy.key, value=policy.value)])
    await sender.send([Out(topic=CREDIT.name, key=DESCHEDULER.encode(), value=b"oops")])
    settings = GovernorSettings(bootstrap=Cluster(broker), session_timeout_ms=2_000)
    stop = asyncio.Event()
    works = [
        asyncio.create_task(govern(Governor("g"), settings, stop, lambda: time.time_ns() // 1_000_000)),
        asyncio.create_task(account.run()),
    ]
    try:
        for total in (1, 2):
            assert await asked(30.0), account.trouble
            account.reserve()
            assert not account.ready("jobs"), "one at a time"
            account.settle(goes=True)
            assert account.spent.evictions == total
            await say(total=total, done=True)
        assert not await asked(3.0), "the cluster's two are spent"
        await sender.send([Out(topic=CREDIT.name, key=DESCHEDULER.encode(), value=b"oops")])
        await asyncio.sleep(1.0)
        assert [record.value for record in laid_aside] == [b"oops"], "what came before it listened is none of its own"
    finally:
        stop.set()
        works[1].cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await sender.close()
