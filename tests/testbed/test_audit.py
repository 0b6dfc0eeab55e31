"""The audit complains: of a sample that is missing, of an act that is told twice, and of one that is not told."""

import asyncio
from collections.abc import Iterable

import pytest

from slacktide.agents.node.outbox import of_history, of_outcome, of_sample
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.sample import Limits
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out
from testbed.audit import Audit
from testbed.brokers import EmbeddedBroker
from testbed.samples import BOOT, PODS, sample

NODE = "node-1"
LATER_BOOT = "000000000002-0000000b"


def put(broker: EmbeddedBroker, outs: Iterable[Out]) -> None:
    async def send() -> None:
        sender = Sender(broker.cluster, client_id="test", acks="all", timeout_s=5)
        await sender.connect(sorted({out.topic for out in outs}))
        await sender.send(outs)
        await sender.close()

    outs = list(outs)
    asyncio.run(send())


def act(seq: int, before_us: int, after_us: int, **changes: object) -> NodeOutcome:
    fields = {
        "node": NODE,
        "boot_id": BOOT,
        "seq": seq,
        "command_id": f"{seq}",
        "rule": "cpu_suppress",
        "target": "besteffort",
        "origin": "stream",
        "result": "unchanged" if before_us == after_us else "applied",
        "policy_version": "p",
        "observed_ms": seq,
        "acted_ms": seq,
        "age_ms": 0,
        "before": Limits(be_cfs_quota_us=before_us),
        "after": Limits(be_cfs_quota_us=after_us),
    }
    return NodeOutcome(**(fields | changes))


@pytest.fixture
def begun(embedded_broker: EmbeddedBroker) -> Audit:
    """After the fifth sample; the fourth has never come, but that was before."""
    embedded_broker.apply_topics(2)
    put(embedded_broker, [of_sample(sample(seq), PODS) for seq in (1, 2, 3, 5)])
    return Audit(embedded_broker.bootstrap, NODE)


def test_a_sample_that_is_in_no_topic_is_a_hole(begun: Audit, embedded_broker: EmbeddedBroker) -> None:
    put(embedded_broker, [of_sample(sample(seq), PODS) for seq in (6, 9)])
    put(embedded_broker, [of_history(sample(7)), *(of_sample(sample(seq, boot_id=LATER_BOOT), PODS) for seq in (2, 3))])

    assert begun.holes() == [(BOOT, 8), (LATER_BOOT, 1)]


def test_what_was_sent_twice_is_one(begun: Audit, embedded_broker: EmbeddedBroker) -> None:
    put(embedded_broker, [of_outcome(each) for each in (act(6, 9, 8), act(6, 9, 8), act(7, 8, 8), act(8, 8, 9))])

    begun.assert_whole()
    begun.assert_nobody_was_evicted()
    assert len(begun.outcomes()) == 3


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([act(6, 9, 8), act(6, 8, 7)], "told twice"),
        ([act(6, 9, 8), act(7, 7, 6)], "nobody told"),
        ([act(6, 9, 8), act(7, 0, 0, result="gap", count=3)], "the spool was full"),
    ],
)
def test_acts_that_are_told_badly(
    begun: Audit, embedded_broker: EmbeddedBroker, told: list[NodeOutcome], why: str
) -> None:
    put(embedded_broker, map(of_outcome, told))

    with pytest.raises(AssertionError, match=why):
        begun.assert_whole()


def test_an_eviction_is_seen_whatever_came_of_it(begun: Audit, embedded_broker: EmbeddedBroker) -> None:
    pod = PodName(namespace="jobs", name="batch")
    put(embedded_broker, [of_outcome(act(6, 9, 9, rule="memory_evict", target="pod/be", pod=pod, result="failed"))])

    with pytest.raises(AssertionError):
        begun.assert_nobody_was_evicted()
