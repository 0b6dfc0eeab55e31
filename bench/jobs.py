"""Figures: a Job of 100,000 indexes, as recorded events, through Kafka, with its worker killed on the way."""

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import aclosing

import msgspec

from bench.rig import Rig
from bench.rows import Row, judged, seconds, told
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.job_pod import INDEXES_MAX, JobEvent, JobSpec
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.topics import JOB_POD, JOB_STATUS
from slacktide.streams.jobs.folder import Folder
from slacktide.streams.kafka import POLL_RECORDS_MAX, Sender, read_topic
from slacktide.streams.records import Out
from testbed.job_events import event, pod, records
from testbed.parts import SLACKTIDE, Part

BRIEF_INDEXES, BRIEF_OTHERS = 2_000, 100
OTHERS = 10_000
PARALLELISM = 2_000
UID = "large"
EXPLAIN_S = 1.0
AT_ONCE = 5_000


def measure(rig: Rig) -> list[Row]:
    indexes = BRIEF_INDEXES if rig.brief else INDEXES_MAX
    events = list(_events(indexes))
    return [_in_memory(events, indexes), *asyncio.run(_through_kafka(rig, events, indexes))]


def _events(indexes: int) -> Iterator[JobEvent]:
    """Each pod starts, and once 2,000 others have started it succeeds; one in 100 fails first."""
    spec = JobSpec(completions=indexes, parallelism=PARALLELISM, indexed=True, backoff_limit=indexes)
    yield event(job=UID, spec=spec)
    for number in range(indexes + PARALLELISM):
        at = 1_000 + number
        if number < indexes:
            yield event(job=UID, at=at, pod=pod(f"p{number}", index=number, ready=True, node="node-1"))
        ended = number - PARALLELISM
        if ended >= 0:
            if ended % 100 == 0:
                failed = pod(f"f{ended}", "Failed", index=ended, code=3, node="node-1")
                yield event(job=UID, at=at, pod=failed)
                yield event(job=UID, at=at, pod=msgspec.structs.replace(failed, last=True))
            done = pod(f"p{ended}", "Succeeded", index=ended, code=0, node="node-1")
            yield event(job=UID, at=at, pod=done)
            yield event(job=UID, at=at, pod=msgspec.structs.replace(done, last=True))


def _in_memory(events: list[JobEvent], indexes: int) -> Row:
    log = records(events)
    folder = Folder(0, ())
    began_s = time.process_time()
    for at in range(0, len(log), POLL_RECORDS_MAX):
        assert not folder.take(log[at : at + POLL_RECORDS_MAX], 0)
    folder.due(0)
    took_s = time.process_time() - began_s
    rate = len(log) / took_s
    measured = f"{took_s:.1f} s of CPU for {len(log):,} events: {rate:,.0f} a second"
    return told(f"a Job of {indexes:,} indexes, folded", measured, took_s=took_s, events=len(log))


async def _through_kafka(rig: Rig, events: list[JobEvent], indexes: int) -> list[Row]:
    broker = rig.kafka()
    cluster = Cluster(broker.bootstrap)
    await _write(cluster, [Out(topic=JOB_POD.name, key=UID.encode(), value=encode(one)) for one in events])
    worker = Part("jobs-worker", rig.folder, ["stream", "--bootstrap", broker.bootstrap])
    try:
        worker.start()
        began_s = time.monotonic()
        killed = await _until(cluster, indexes // 3)
        worker.kill()
        again_s = time.monotonic()
        worker.start()
        status = await _until(cluster, indexes)
        ended_s = time.monotonic()
    finally:
        worker.stop()
    assert status.failed == indexes // 100, status.failed
    assert status.conditions[-1].type == "Complete", status.conditions
    through = told(
        f"the same through Kafka, killed at {killed.succeeded:,}",
        f"{seconds(ended_s - began_s)}, {seconds(ended_s - again_s)} of it after the kill; the status is exact",
        n=len(events),
        took_s=ended_s - began_s,
        after_kill_s=ended_s - again_s,
    )
    return [through, await _explained(rig, cluster)]


async def _explained(rig: Rig, cluster: Cluster) -> Row:
    others = BRIEF_OTHERS if rig.brief else OTHERS
    finished = [
        JobStatus(uid=f"u{number}", namespace="jobs", name=f"j{number}", folded_to=1, observed_ms=1, succeeded=1)
        for number in range(others)
    ]
    await _write(cluster, [Out(topic=JOB_STATUS.name, key=one.uid.encode(), value=encode(one)) for one in finished])
    took_s = []
    for name in ("large", "j7", f"j{others - 1}"):
        began_s = time.monotonic()
        command = [SLACKTIDE, "explain", "job", f"jobs/{name}", "--bootstrap", str(cluster)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        took_s.append(time.monotonic() - began_s)
    return judged(
        f"explain job, of {others:,}, start of the program included",
        f"≤ {EXPLAIN_S:g} s",
        f"{seconds(max(took_s))} at most",
        met=max(took_s) <= EXPLAIN_S,
        n=len(took_s),
        took_s=took_s,
    )


async def _write(cluster: Cluster, outs: list[Out]) -> None:
    async with Sender(cluster, client_id="bench", acks="all", timeout_s=30) as sender:
        for at in range(0, len(outs), AT_ONCE):
            await sender.send(outs[at : at + AT_ONCE])


async def _until(cluster: Cluster, succeeded: int) -> JobStatus:
    """The status once so many have succeeded."""
    last = None
    async with asyncio.timeout(300), aclosing(read_topic(cluster, JOB_STATUS.name, key=UID, follow=True)) as statuses:
        async for record in statuses:
            last = decode(record.value, JobStatus)
            if last.succeeded >= succeeded:
                break
    assert last is not None
    return last
