"""The queue's decider as a process on a real broker: killed amid its work, doubled, and looked at from outside."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.queue import QueueDecision, QueueState
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, QUEUE_DECISION, QUEUE_STATE
from slacktide.streams.kafka import Sender, read_topic
from slacktide.streams.queue.replay import replay
from slacktide.streams.records import Out, Record
from testbed.brokers import EmbeddedBroker, KafkaBroker
from testbed.deciders import decider
from testbed.history.queue import complaints
from testbed.queue_log import FLAVOR, NAMES, Log, local, queue, term, workload
from testbed.queue_nodes import allocatable, inventory, sharing

COUNT = 200
EXAMPLE = Path(__file__).parents[2] / "docs" / "queue-example.yaml"
PATIENCE_S = 60.0


async def records(bootstrap: str, topic: str) -> list[Record]:
    return [record async for record in read_topic(Cluster(bootstrap), topic)]


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for it."""
    until_s = time.monotonic() + PATIENCE_S
    while not await true():
        assert time.monotonic() < until_s, f"not within {PATIENCE_S:g} s"
        await asyncio.sleep(0.1)


async def decided(bootstrap: str, process: str) -> bool:
    """Whether that process has decided."""
    found = await records(bootstrap, QUEUE_DECISION.name)
    return any(decode(one.value, QueueDecision).process == process for one in found)


async def standing(bootstrap: str) -> dict[str, QueueState]:
    last = {one.key: one.value for one in await records(bootstrap, QUEUE_STATE.name)}
    states = [decode(value, QueueState) for value in last.values() if value is not None]
    return {one.uid: one for one in states}


@contextlib.asynccontextmanager
async def sender(bootstrap: str) -> AsyncIterator[Sender]:
    made = Sender(Cluster(bootstrap), client_id="test", timeout_s=5)
    await made.connect([*NAMES, INVENTORY.name, ALLOCATABLE.name])
    yield made
    await made.close()


async def put(to: Sender, log: Log) -> None:
    """Write what a log in memory has, which is emptied."""
    outs = [Out(topic=one.topic, partition=0, key=one.key, value=one.value) for one in log.records]
    await to.send(outs)
    for each in log.topics.values():
        each.clear()


def comparable(states: dict[str, QueueState]) -> dict[str, tuple]:
    return {
        uid: (one.phase, one.reason, one.booking and (one.booking.cluster_queue, one.booking.pod_sets))
        for uid, one in states.items()
    }


async def undisturbed(*chapters: Log) -> dict[str, tuple]:
    """How it would end, decided in memory."""
    log = Log()
    one = term(log, "alone")
    for number, chapter in enumerate(chapters):
        for each in chapter.records:
            log.append(each.topic, (each.key or b"").decode(), each.value)
        if not number:
            await one.begin(None)
        for _ in range(3):
            await one.listen()
            await one.act()
    last = {each.key: each.value for each in log.topics[QUEUE_STATE.name]}
    return comparable({one.uid: one for one in (decode(value, QueueState) for value in last.values())})


def chapters() -> list[Log]:
    """Queues first, then workloads twenty at a time: 120 fit, the others wait."""
    first = Log()
    first.put(FLAVOR, queue("a", "60"), queue("b", "60"), local("a"), local("b"))
    made = [first]
    for begin in range(0, COUNT, 20):
        log = Log()
        log.put(*(workload(number, "ab"[number % 2]) for number in range(begin, begin + 20)))
        made.append(log)
    return made


async def test_killed_amid_two_hundred_workloads_it_ends_as_if_it_had_not_been(
    broker: EmbeddedBroker | KafkaBroker, tmp_path: Path
) -> None:
    broker.apply_topics(4)
    where, expected = broker.bootstrap, await undisturbed(*chapters())

    async def ended() -> bool:
        return comparable(await standing(where)) == expected

    async with sender(where) as to:
        parts = chapters()
        await put(to, parts.pop(0))
        for name, share in (("one", 4), ("two", 4), ("three", 2)):
            with decider(where, tmp_path, name) as part:
                await until(partial(decided, where, name))
                for _ in range(share):
                    await put(to, parts.pop(0))
                    await asyncio.sleep(0.05)
                if not parts:
                    await until(ended)
                part.kill()

    assert len([one for one in expected.values() if one[0] == "reserved"]) == 120
    topics = {name: await records(where, name) for name in NAMES}
    decisions = [decode(one.value, QueueDecision) for one in topics[QUEUE_DECISION.name]]
    assert {one.process for one in decisions} == {"one", "two", "three"}
    assert list(complaints(topics, decisions)) == []
    again = list(replay(one for each in topics.values() for one in each))
    assert len(again) == len(decisions)
    assert all(one.equal for one in again)


async def said(*arguments: str) -> str:
    """What the command line prints."""
    done = await asyncio.to_thread(CliRunner().invoke, cli, ["queue", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


async def test_an_operator_publishes_looks_simulates_and_reports(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Without Kubernetes: the example of docs/queue-simulate.md, in the log."""
    embedded_broker.apply_topics(4)
    where = embedded_broker.bootstrap
    at = ("--bootstrap", where)

    async def holds(count: int) -> bool:
        return len([one for one in (await standing(where)).values() if one.booking is not None]) == count

    assert await said("publish", str(EXAMPLE), *at) == "published 7 objects\n"
    with decider(where, tmp_path, "one") as part:
        await until(partial(holds, 1))
        found = json.loads(await said("status", "-o", "json", *at))
        assert {one["cluster_queue"]: (one["pending_count"], one["admitted_count"]) for one in found} == {
            "reports": (1, 0),
            "research": (0, 1),
        }
        assert [one["used"] for one in found[1]["quotas"]] == [4_000, 8 << 30]
        assert "4 cpu, 8Gi memory" in await said("status", *at)
        assert "RESOURCE" in await said("status", "-o", "wide", *at)
        simulated = await said("simulate", "--live", "--with", str(EXAMPLE), "--for", "0s", *at)
        assert "WITHOUT THE CHANGE" in simulated
        assert await said("outcome", "lab/train", "finished", *at) == "lab/train finished\n"
        await until(lambda: waits_no_more(at))
        assert part.metric("slacktide_queue_admissions_total") == 2
    missing = await asyncio.to_thread(CliRunner().invoke, cli, ["queue", "outcome", "lab/trian", "stopped", *at])
    assert "Workload lab/trian holds no quota; known: office/monthly" in missing.output
    assert "deleted" in await said("publish", str(EXAMPLE), "--delete", *at)


async def test_a_quota_follows_what_nodes_sell_and_a_job_is_explained_and_decided_again(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(4)
    where = embedded_broker.bootstrap
    log = Log()
    log.put(FLAVOR, sharing("a", "50"), local("a"), workload(1, "a", "2"), workload(2, "a", "2"))
    nodes = [inventory("n1", "z"), inventory("n2", "z"), allocatable("n1", 2_000), allocatable("n2", 2_000)]

    async def admitted() -> bool:
        return sorted(one.phase for one in (await standing(where)).values()) == ["pending", "reserved"]

    async with sender(where) as to:
        await put(to, log)
        await to.send([Out(topic=one.topic, key=one.key, value=one.value) for one in nodes])
        with decider(where, tmp_path, "one"):
            await until(admitted)
            status = json.loads(await said("status", "-o", "json", "--bootstrap", where))
            assert status[0]["quotas"][0]["nominal"] == 2_000, "half of what two nodes sell"
    at = ("--bootstrap", where)
    explained = await asyncio.to_thread(CliRunner().invoke, cli, ["explain", "job", "jobs/w2", *at])
    assert explained.exit_code == 0, explained.output
    assert "queue a: position 1 of 1, " in explained.output
    assert "would be admitted with 2 more cpu of default" in explained.output
    again = await asyncio.to_thread(CliRunner().invoke, cli, ["replay", "--queue", *at])
    assert again.exit_code == 0, again.output
    assert "all are equal, byte for byte" in again.output


async def waits_no_more(at: tuple[str, str]) -> bool:
    found = json.loads(await said("status", "-o", "json", *at))
    return [one["admitted_count"] for one in found] == [1, 0]


async def test_of_two_processes_one_decides_and_the_other_takes_over(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded_broker.apply_topics(4)
    where = embedded_broker.bootstrap
    with decider(where, tmp_path, "first") as first:
        await until(partial(decided, where, "first"))
        with decider(where, tmp_path, "second") as second:
            await asyncio.sleep(2)
            assert not await decided(where, "second")
            await asyncio.to_thread(second.wait_ready)
            assert await asyncio.to_thread(first.stop) == 0
            await until(partial(decided, where, "second"))
            await asyncio.to_thread(second.wait, lambda: second.metric("slacktide_queue_decides") == 1, "it says so")


@pytest.mark.parametrize("arguments", [("simulate",), ("simulate", "--live", str(EXAMPLE))])
def test_a_simulation_begins_with_one_thing(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, ["queue", *arguments])
    assert (done.exit_code, "either a FILE or --live" in done.output) == (2, True)
