"""Services' minutes through a broker: profiles and slopes come out, and a takeover counts no minute twice.

Only minutes that prove their node count, where the policy requires it; Jobs are folded also without services' topics.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from prometheus_client import REGISTRY

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.headers import Header
from slacktide.schemas.job_pod import JobSpec
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.proof import Verifier
from slacktide.schemas.service import ServiceMinute, ServiceProfile, ServiceSli, ServiceSlope
from slacktide.schemas.topics import (
    JOB_POD,
    JOB_STATUS,
    SERVICE_MINUTE,
    SERVICE_PROFILE,
    SERVICE_SLI,
    SERVICE_SLOPE,
    TOPICS,
)
from slacktide.streams import topology
from slacktide.streams.engine import folding as engine
from slacktide.streams.engine import metrics
from slacktide.streams.engine.folding import KINDS, FoldSettings
from slacktide.streams.kafka import Sender
from slacktide.streams.learning import folder
from slacktide.streams.learning.fold import ServiceFold
from slacktide.streams.proofs import Judge, by_keys
from slacktide.streams.records import Out
from testbed import brokers
from testbed.brokers import EmbeddedBroker
from testbed.job_events import event
from testbed.proofs import REQUIRED, cluster_key, key_of
from testbed.service_minutes import HOUR_MS, SERVICE, START_MS, World
from testbed.stream_rig import PARTITIONS, SESSION_MS, Rig
from testbed.waiting import soon

pytestmark = pytest.mark.nightly  # on Apache Kafka

PARTITION = 2
SPAN_MS = 4 * HOUR_MS
FIRST, SECOND = 20 * 120, 20 * 180
"""Of 20 nodes' minutes, how many are there before the first worker starts, and before the second one."""


@pytest.fixture
def minutes() -> list[ServiceMinute]:
    """Four hours of 20 nodes, until now."""
    shift_ms = time.time_ns() // 1_000_000 - START_MS - SPAN_MS
    return [
        msgspec.structs.replace(one, observed_ms=one.observed_ms + shift_ms) for one in World(nodes=20).minutes(SPAN_MS)
    ]


@contextlib.asynccontextmanager
async def folding(rig: Rig, judge: Judge | None = None) -> AsyncIterator[None]:
    """A worker's folds."""
    stop = asyncio.Event()
    settings = FoldSettings(bootstrap=rig.cluster, session_timeout_ms=SESSION_MS)
    task = asyncio.create_task(topology.fold(settings, stop, lambda: time.time_ns() // 1_000_000, judge))
    try:
        yield
        assert not task.done()
    finally:
        stop.set()
        await task


async def put(rig: Rig, minutes: Sequence[ServiceMinute], key: bytes = SERVICE.encode()) -> None:
    await rig.put(SERVICE_MINUTE.name, [(key, encode(one), PARTITION) for one in minutes])


async def profile(rig: Rig, folded_to: int) -> ServiceProfile:
    """The newest one, once it has the minute at this offset."""

    async def newest() -> ServiceProfile | None:
        found = [decode(one.value, ServiceProfile) for one in await rig.read(SERVICE_PROFILE.name)]
        return found[-1] if found else None

    found = await soon(newest, "a profile", enough=lambda one: one is not None and one.folded_to >= folded_to)
    assert found is not None
    return found


def whole(minutes: Sequence[ServiceMinute], profile: ServiceProfile, skipped: int = 0) -> ServiceProfile:
    """What the minutes of a profile come to without a broker."""
    fold = ServiceFold()
    for offset, one in enumerate(minutes, skipped):
        if offset <= profile.folded_to:
            fold.take(one, offset)
    return fold.profile()


async def test_minutes_become_a_profile_and_a_slope(rig: Rig, minutes: list[ServiceMinute]) -> None:
    await put(rig, minutes)
    async with folding(rig):
        found = await profile(rig, 0)
        slopes = await soon(lambda: rig.read(SERVICE_SLOPE.name), "a slope")

    slope = decode(slopes[-1].value, ServiceSlope)
    assert (slope.service, slope.partition, slopes[-1].key) == (SERVICE, PARTITION, SERVICE.encode())
    assert slope.slope_permille == pytest.approx(1_000, rel=0.2)
    assert found.sums == whole(minutes, found).sums
    assert found.status == "learned"


async def test_who_takes_over_counts_no_minute_twice(rig: Rig, minutes: list[ServiceMinute]) -> None:
    await put(rig, minutes[:FIRST])
    async with folding(rig):
        before = await profile(rig, 0)
        await put(rig, minutes[FIRST:SECOND])
        await asyncio.sleep(3)  # they are folded, and due in a minute
        assert (await profile(rig, 0)).folded_to < SECOND - 1
    await put(rig, minutes[SECOND:])
    async with folding(rig):
        after = await profile(rig, before.folded_to + 1)

    assert after.folded_to > SECOND - 1
    expected = whole(minutes, after)
    assert (after.sums, after.bins) == (expected.sums, expected.bins)
    assert after.folded_from == 0


@pytest.mark.story
async def test_workers_share_the_services(rig: Rig, minutes: list[ServiceMinute]) -> None:
    """A second worker joins, the first one leaves, and Jobs' statuses and profiles go on."""
    await put(rig, minutes[:FIRST])
    async with contextlib.AsyncExitStack() as second:
        async with folding(rig):
            before = await profile(rig, 0)
            await second.enter_async_context(folding(rig))
            await asyncio.sleep(SESSION_MS / 1_000)
        await put(rig, minutes[FIRST:])
        job = event(job="j", spec=JobSpec(completions=3))
        await rig.put(JOB_POD.name, [(b"j", encode(job), 0)])
        after = await profile(rig, before.folded_to + 1)
        statuses = await soon(lambda: rig.read(JOB_STATUS.name), "a status")

    assert after.sums == whole(minutes, after).sums
    assert decode(statuses[-1].value, JobStatus).uid == "j"


async def test_a_latency_joins_the_profile_of_its_service(
    rig: Rig, minutes: list[ServiceMinute], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the minute of its node in which it was counted."""
    monkeypatch.setattr(folder, "PUBLISH_MS", 1_000)
    measured = next(one for one in minutes[FIRST:] if one.node == "node-3")
    await put(rig, minutes[:FIRST])
    async with folding(rig):
        await profile(rig, 0)
        sli = ServiceSli(
            service=SERVICE,
            node="node-3",
            observed_ms=measured.observed_ms,
            span_ms=60_000,
            p99_us=7_000,
            target_us=9_000,
        )
        other = msgspec.structs.replace(sli, service="shop/unknown")
        await rig.put(SERVICE_SLI.name, [(one.service.encode(), encode(one), PARTITION) for one in (sli, other)])
        await rig.put(SERVICE_SLI.name, [(SERVICE.encode(), b"{", PARTITION)])
        letter = (await rig.dead_letters(1))[0]
        await put(rig, minutes[FIRST:])
        found = await soon(lambda: profile(rig, FIRST), "a latency", enough=lambda one: one.latency is not None)

    assert (letter.topic, letter.offset) == (SERVICE_SLI.name, 2)
    assert found.latency is not None
    assert [(one.node, one.minutes) for one in found.latency.sums] == [("node-3", 1.0)]
    assert (found.latency.status, found.latency.target_us, found.signal) == ("learning", 9_000, "pressure")


async def test_an_invalid_minute_stops_no_other(rig: Rig, minutes: list[ServiceMinute]) -> None:
    await put(rig, minutes[:1], b"shop/other")
    await rig.put(SERVICE_MINUTE.name, [(SERVICE.encode(), b"{", PARTITION), (SERVICE.encode(), None, PARTITION)])
    await put(rig, minutes[1:FIRST])
    async with folding(rig):
        letters = await rig.dead_letters(3)
        found = await profile(rig, 3)

    assert [(letter.topic, letter.partition, letter.offset) for letter in letters] == [
        (SERVICE_MINUTE.name, PARTITION, offset) for offset in range(3)
    ]
    assert found.sums == whole(minutes[1:FIRST], found, 3).sums


def proof(one: ServiceMinute, by: str) -> Header:
    """Of a node, by the key of this node or of another."""
    return key_of(by, expires_s=one.observed_ms // 1_000 + 24 * 3_600).header(SERVICE_MINUTE.name, encode(one))


def counted(reason: str) -> float:
    return REGISTRY.get_sample_value("slacktide_stream_service_minutes_ignored_total", {"why": reason}) or 0


async def test_only_minutes_that_prove_their_node_are_learned(rig: Rig, minutes: list[ServiceMinute]) -> None:
    """Who has an agent's right to write, and a key of its own node, writes minutes of other nodes."""
    await rig.publish(REQUIRED)
    outs, fold = [], ServiceFold()
    for one in minutes[:FIRST]:
        false = msgspec.structs.replace(one, observed_ms=one.observed_ms + 1, wait_us=0, mem_wait_us=0)
        for sent, headers in ((one, [proof(one, one.node)]), (false, []), (false, [proof(false, "evil")])):
            fold.take(sent, len(outs)) if sent is one else None
            outs.append(Out(topic=SERVICE_MINUTE.name, partition=PARTITION, key=SERVICE.encode(), value=encode(sent),
                            headers=tuple(headers)))  # fmt: skip
    before = counted("proof: absent"), counted("proof: forged")
    async with Sender(rig.cluster, client_id="test", acks="all", timeout_s=5) as sender:
        await sender.send(outs)
    async with folding(rig, metrics.counted(by_keys(Verifier([cluster_key()])))):
        found = await soon(lambda: profile(rig, 0), "all minutes", enough=lambda it: it.folded_to == len(outs) - 3)
        letters = await rig.dead_letters(10)

    assert (found.sums, found.bins, found.nodes) == (fold.profile().sums, fold.profile().bins, 20)
    assert (counted("proof: absent") - before[0], counted("proof: forged") - before[1]) == (FIRST, FIRST)
    assert {letter.reason for letter in letters} == {"proof: absent", "proof: forged"}
    assert {letter.topic for letter in letters} == {SERVICE_MINUTE.name}


async def test_a_policy_that_begins_to_ask_for_proofs_is_followed(rig: Rig, minutes: list[ServiceMinute]) -> None:
    async with folding(rig, by_keys(Verifier([cluster_key()]))):
        await put(rig, minutes[:1])
        assert (await profile(rig, 0)).folded_to == 0
        await rig.publish(REQUIRED)
        before, coming = counted("proof: absent"), iter(minutes[1:])

        async def refused() -> bool:
            await put(rig, [next(coming)])
            return counted("proof: absent") > before

        await soon(refused, "a refused minute")


async def test_jobs_are_folded_before_the_topics_of_services_exist(
    embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    minutes: list[ServiceMinute],
) -> None:  # fmt: skip
    monkeypatch.setattr(engine, "TOPICS_LOOK_S", 1.0)
    [services] = [kind for kind in KINDS if kind.optional]
    with monkeypatch.context() as older:
        older.setattr(brokers, "TOPICS", tuple(one for one in TOPICS if one.name not in services.topics))
        embedded_broker.apply_topics(PARTITIONS)

    async def status(rig: Rig, uid: str) -> bool:
        return uid in {decode(one.value, JobStatus).uid for one in await rig.read(JOB_STATUS.name)}

    async with Rig(embedded_broker.bootstrap) as rig, folding(rig):
        await rig.put(JOB_POD.name, [(b"a", encode(event(job="a", spec=JobSpec(completions=3))), 0)])
        await soon(lambda: status(rig, "a"), "a status")
        embedded_broker.apply_topics(PARTITIONS)
        await put(rig, minutes[:FIRST])
        assert (await profile(rig, 0)).service == SERVICE
        await rig.put(JOB_POD.name, [(b"b", encode(event(job="b", spec=JobSpec(completions=3))), 0)])
        await soon(lambda: status(rig, "b"), "another status")
    [warned] = [one for one in caplog.records if "is not folded yet" in one.getMessage()]
    assert all(topic in vars(warned)["why"] for topic in services.topics)
    assert "slacktide topics apply" in vars(warned)["why"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.source)
def test_partitions_of_events_and_states_agree(kind: engine.Kind) -> None:
    counts = dict.fromkeys(kind.topics, 12)
    assert kind.trouble(counts) == ""
    why = f"{kind.source} and {kind.state} differ in partitions: slacktide topics plan"
    assert kind.trouble(counts | {kind.source: 13}) == why
    assert kind.state in kind.trouble(counts | {kind.state: 0})
