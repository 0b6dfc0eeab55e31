"""What a worker knows after a takeover and after an outage: the policy, and windows as if it had always been there."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy, policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import to_sample
from slacktide.schemas.topics import BACKFILL, DEAD_LETTER, METRIC, POLICY, SAMPLE, WINDOW
from slacktide.streams.records import Record
from slacktide.streams.worker import Worker
from testbed.agent_rig import agent_of
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, KafkaBroker
from testbed.one_machine import NODE, VirtualNode
from testbed.sampled import sampled
from testbed.samples import SUPPRESS, body_of, keyframe, policy_record, record_of, sample
from testbed.stream_rig import PARTITIONS, Rig, partition_of, until
from testbed.waiting import soon

LONG = policy_of(Colocation(enable=True, metric_aggregate_duration_s=300), ResourceThreshold(enable=True))
NODES = ["node-1", "node-2"]
PAST_S = 640
WHOLE_S = 150.0
"""Half an hour of two nodes is read beside the live work, on a machine that may be busy."""


@pytest.fixture
async def rig(broker: EmbeddedBroker | KafkaBroker) -> AsyncIterator[Rig]:
    broker.apply_topics(PARTITIONS, DATED_BY_CLIENTS)
    async with Rig(broker.bootstrap) as rig:
        yield rig


def said(seq: int, node: str, policy: Policy = LONG) -> NodeSample:
    """A keyframe every ten seconds; use goes up and down, so that percentiles differ."""
    made = keyframe(seq, node) if seq % 10 == 1 else sample(seq, node)
    use = msgspec.structs.replace(made.use, cpu_milli=1_500 + 10 * (seq % 90))
    return msgspec.structs.replace(made, use=use, policy_version=policy.version)


async def metrics(rig: Rig, node: str) -> list[NodeMetric]:
    found = [decode(record.value, NodeMetric) for record in await rig.read(METRIC.name)]
    return [metric for metric in found if metric.node == node]


async def test_the_first_decision_is_by_the_newest_policy_however_long_its_topic_is(rig: Rig) -> None:
    await rig.send(waiting := [keyframe(1, "node-1")])
    for _ in range(10):
        await rig.put(POLICY.name, [(b"policy", encode(LONG), 0)] * 300)
    await rig.publish(SUPPRESS)
    async with rig.worker():
        [answer] = await rig.answered(waiting)

    assert (answer.answer, answer.policy_version) == ("set", SUPPRESS.version)


async def test_a_worker_that_starts_goes_by_the_last_good_policy_of_the_highest_epoch(rig: Rig) -> None:
    """As those do that run, and as agents do: whatever stands behind it in the log."""
    await rig.send(waiting := [keyframe(1, "node-1")])
    await rig.publish(msgspec.structs.replace(SUPPRESS, writer_epoch=2))
    await rig.publish(msgspec.structs.replace(LONG, writer_epoch=1))
    await rig.put(POLICY.name, [(b"policy", b"{}", 0), (b"policy", None, 0)])
    async with rig.worker():
        [answer] = await rig.answered(waiting)

    assert (answer.answer, answer.policy_version) == ("set", SUPPRESS.version)


async def test_who_takes_a_partition_over_knows_its_windows_before_it_publishes(rig: Rig) -> None:
    """Half an hour comes back from segments and the samples behind them: as if the last owner had gone on.

    The policy's window before anything is published, the longer ones behind it.
    """
    before = Worker("before")
    before.policy(policy_record(LONG))
    now_ms = time.time_ns() // 1_000_000
    await rig.publish(LONG)
    for seq in range(1, PAST_S):
        at_ms = now_ms - (PAST_S - seq) * 1_000
        samples = [said(seq, node) for node in NODES]
        outs = before.samples([_record(each, seq) for each in samples], at_ms)
        await rig.put(SAMPLE.name, [(s.node.encode(), body_of(s), partition_of(s.node)) for s in samples], at_ms)
        segments = [(out.key, out.value, out.partition or 0) for out in outs if out.topic == WINDOW.name]
        await rig.put(WINDOW.name, segments, at_ms)
    await rig.commit(dict.fromkeys(map(partition_of, NODES), PAST_S - 1))
    async with rig.worker("after"):
        live: list[NodeSample] = []
        found: dict[str, list[NodeMetric]] = {node: [] for node in NODES}
        until_s = time.monotonic() + WHOLE_S
        while not all(each and each[-1].aggregates[-1].covered_ms == each[-1].seq * 1_000 for each in found.values()):
            assert time.monotonic() < until_s, "the windows are whole some time"
            count = len(live) // len(NODES)
            live += [said(PAST_S + count, node) for node in NODES]
            # Dated, too: on a busy machine all that was sent has grown older meanwhile.
            places = [(s.node.encode(), body_of(s), partition_of(s.node)) for s in live[-len(NODES) :]]
            await rig.put(SAMPLE.name, places, now_ms + count * 1_000)
            await asyncio.sleep(1.0)  # as far apart as samples are: all of the topic is read each time
            found = {node: await metrics(rig, node) for node in NODES}
        await rig.answered(live)

    assert len(rig.answers) == len(live), "what was committed is not answered again"
    for first, *_, last in ([each[0], *each] for each in found.values()):
        assert first.covered_ms > 290_000, "nothing was published of a part of the window, but for a slot at its edge"
        assert first.aggregates[0].covered_ms == 300_000
        assert [each.covered_ms for each in last.aggregates] == [300_000, 600_000, last.seq * 1_000]
        for published in (first, last):
            used = [said(seq, last.node).use.cpu_milli or 0 for seq in range(published.seq - 299, published.seq + 1)]
            assert abs(published.aggregates[0].node_cpu_milli.avg - sum(used) / 300) <= 1
            assert published.aggregates[0].node_cpu_milli.p99 == sorted(used)[296]


def _record(each: NodeSample, seq: int) -> Record:
    return record_of(each, partition=partition_of(each.node), offset=seq)


async def test_history_fills_windows_and_is_answered_by_nobody(rig: Rig) -> None:
    """A bad record of it is a dead letter."""
    node = "node-1"
    await rig.publish(LONG)
    async with rig.worker():
        live = [said(seq, node) for seq in (*range(1, 41), *range(61, 66))]
        await rig.send(live)
        await rig.answered(live)
        late = [said(seq, node) for seq in range(41, 61)]
        await rig.put(BACKFILL.name, [(node.encode(), body_of(each), 1) for each in late] + [(node.encode(), b"{", 1)])

        async def whole() -> list[NodeMetric]:
            live.append(said(live[-1].seq + 1, node))
            await rig.send(live[-1:])
            return [each for each in await metrics(rig, node) if each.covered_ms == each.seq * 1_000 and each.seq > 65]

        await soon(whole, "the window is whole")
        await rig.answered(live)
        letters = [decode(record.value, DeadLetter) for record in await rig.read(DEAD_LETTER.name)]
        [last] = (await metrics(rig, node))[-1:]

    assert last.covered_ms == last.seq * 1_000, "the window is whole"
    assert {key[2] for key in rig.answers} == {each.seq for each in live}, "commands only for live samples"
    assert [(letter.topic, letter.partition, letter.offset) for letter in letters] == [(BACKFILL.name, 1, 20)]


async def test_after_an_outage_a_nodes_window_is_whole_again(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Agent and worker, and a broker that stood still: the newest first, the rest as history, and no answer to that."""
    embedded_broker.apply_topics(PARTITIONS)
    async with Rig(embedded_broker.bootstrap) as rig:
        await rig.publish(LONG)
        with VirtualNode(tmp_path) as node:
            async with rig.worker(), agent_of(node, rig.bootstrap, tmp_path):
                await until(lambda: len(rig.answers) > 8, "the agent is answered")
                os.kill(embedded_broker.pid, signal.SIGSTOP)
                await asyncio.sleep(8)
                os.kill(embedded_broker.pid, signal.SIGCONT)
                resumed_at = len(rig.answers)
                late: list[NodeSample] = []
                last: NodeMetric | None = None
                until_s = time.monotonic() + 60
                while time.monotonic() < until_s:
                    await asyncio.sleep(0.5)
                    late = [to_sample(record.value, lambda _: None) for record in await rig.read(BACKFILL.name)]
                    found = await metrics(rig, NODE)
                    last = found[-1] if found else None
                    if late and last and len(rig.answers) > resumed_at and last.covered_ms >= _whole_ms(last):
                        break
        live = {sample.seq for sample in await sampled(Cluster(rig.bootstrap))}

    assert late, "there was history"
    assert last is not None
    assert last.covered_ms >= _whole_ms(last), "no second of the outage is missing"
    assert {key[2] for key in rig.answers} <= live, "commands only for live samples"
    assert {each.seq for each in late} - live, "most of it had not gone out live"


def _whole_ms(metric: NodeMetric) -> int:
    """From the first sample on, but for a second where the interval of one was cut."""
    return (metric.seq - 1) * 250 - 1_000
