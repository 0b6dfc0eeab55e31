"""Figures: Jobs that the queue starts a second on a real API server, against a bare loop that unsuspends Jobs.

The loop runs before the queue and after it: a warm API server is faster. Its better figure counts.
"""

import asyncio
import time
from collections.abc import Callable

from bench.rig import CannotRunError, Rig
from bench.rows import Row, judged, told
from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.queue import JobQueue
from slacktide.agents.kubernetes import api_server as kubernetes
from slacktide.agents.kubernetes.resource import JOBS
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import QUEUE_WORKLOAD
from testbed.brokers import EmbeddedBroker, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.identity import access_of
from testbed.cluster.jobs import Batch
from testbed.cluster.queue_rig import Queue, install
from testbed.deciders import decider
from testbed.rungs import lacks_api

STARTS, BRIEF_STARTS = 2_000, 60
PER_S_MIN = 60.0
AT_ONCE = 16
"""Requests of the bare loop, as many as the queue makes."""
WAIT_S = 300.0
SETTLED_S = 3.0
"""For the decider to find that none fits."""


def measure(rig: Rig) -> list[Row]:
    """All Jobs wait in Kafka, then their ClusterQueue gets quota for them."""
    if (lack := lacks_api()) is not None:
        raise CannotRunError(str(lack))
    count = BRIEF_STARTS if rig.brief else STARTS
    with running(ApiServer) as api, rig.embedded() as broker:
        install(api)
        bare, queued = [api.namespace("bare") for _ in range(2)], Queue(api, "0")
        rig.say(f"admissions: creating {3 * count:,} Jobs")
        for number in range(count):
            for namespace in bare:
                Batch(api, f"job-{number:05}", namespace=namespace, suspend=True)
            queued.job(f"job-{number:05}")
        before = asyncio.run(_bare(api, bare[0], count))
        with decider(broker.bootstrap, rig.folder):
            queued_s, queued_cpu_s = asyncio.run(_queued(api, broker, queued, count))
        after = asyncio.run(_bare(api, bare[1], count))
        rig.say(f"admissions: the bare loop took {before[0]:.1f} s before the queue, and {after[0]:.1f} s after it")
    bare_s, bare_cpu_s = min(before, after)
    bare_per_s, queued_per_s = count / bare_s, count / queued_s
    ratio = queued_per_s / bare_per_s
    load = rig.conditions()
    return [
        judged("queue: Jobs started on an API server", f">= {PER_S_MIN:g}/s",
               f"{queued_per_s:.0f}/s from quota to the last start, load {load['load_1m']}",
               met=queued_per_s >= PER_S_MIN, n=count, per_s=queued_per_s),
        told("queue: against a bare loop that unsuspends Jobs", f"{ratio:.2f} of its {bare_per_s:.0f}/s",
             n=count, ratio=ratio, bare_per_s=bare_per_s),
        told("queue: the bridge's CPU for a start", f"{queued_cpu_s / count * 1e3:.1f} ms, the bare loop's "
             f"{bare_cpu_s / count * 1e3:.1f} ms", n=count, cpu_s=queued_cpu_s / count, bare_cpu_s=bare_cpu_s / count),
    ]  # fmt: skip


async def _bare(server: ApiServer, namespace: str, count: int) -> tuple[float, float]:
    """Seconds to unsuspend all, with as many requests at once, and of this process' CPU."""
    slots = asyncio.Semaphore(AT_ONCE)
    async with kubernetes.ApiServer(access_of(server.kubeconfig), name="bench") as api:

        async def start(number: int) -> None:
            async with slots:
                body = {"spec": {"suspend": False}}
                await api.patch(JOBS, f"job-{number:05}", body, dict, namespace=namespace)

        began_s, cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*map(start, range(count)))
        return time.monotonic() - began_s, time.process_time() - cpu_s


async def _queued(server: ApiServer, broker: EmbeddedBroker, queue: Queue, count: int) -> tuple[float, float]:
    """Seconds from the quota's change to the last Job's start, and of this process' CPU."""
    async with kubernetes.ApiServer(access_of(server.kubeconfig), name="bench") as api:
        published = metrics.RECORDS.labels(QUEUE_WORKLOAD.name)
        part = JobQueue(Cluster(broker.bootstrap), SystemClock(), "bench", "koordinator-system")
        running = asyncio.create_task(part.run(api))
        try:
            await _until(lambda: published._value.get() >= count, running)
            await asyncio.sleep(SETTLED_S)
            began_s, cpu_s = time.monotonic(), time.process_time()
            await asyncio.to_thread(queue.quota, str(count))
            await _until(lambda: _started(part) >= count, running)
            return time.monotonic() - began_s, time.process_time() - cpu_s
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _started(part: JobQueue) -> int:
    return sum(not work.suspended for work in part.works)


async def _until(true: Callable[[], bool], running: asyncio.Task[None]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        if running.done():
            running.result()
        if time.monotonic() > until_s:
            raise CannotRunError(f"not within {WAIT_S:g} s")
        await asyncio.sleep(0.02)
