"""Beside Kueue: it is detected by each of its traces, and gets the quota that nodes sell; nothing else is written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.queue import queue as bridge_queue
from slacktide.agents.cluster.queue.kueue import EVERY_S, LEASE_S, Quotas, kueue, served, workloads_of
from slacktide.agents.kubernetes import api_server as kubernetes
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.queue import OfferedObject, OfferedSpec, spec_key, spec_of
from slacktide.schemas.queue_objects import Metadata
from slacktide.schemas.topics import QUEUE_SPEC
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, Record
from testbed.cluster import kueue as ally
from testbed.cluster.api_server import ApiServer, Json
from testbed.cluster.identity import access_of
from testbed.cluster.queue_rig import GROUP, Queue, install
from testbed.lone_agent import SteppedClock
from testbed.waiting import soon

pytestmark = pytest.mark.cluster

ASKS = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": "50"}


@pytest.fixture(scope="module")
def queueing(cluster: ApiServer) -> ApiServer:
    install(cluster)
    cluster.apply(ally.WORKLOADS)
    cluster.kubectl("wait", "--for=condition=Established", "crd/workloads.kueue.x-k8s.io", "--timeout=60s")
    return cluster


@contextlib.asynccontextmanager
async def asked(server: ApiServer) -> AsyncIterator[kubernetes.ApiServer]:
    async with kubernetes.ApiServer(access_of(server.kubeconfig), name="test") as api:
        yield api


def nominal(server: ApiServer, queue: Queue) -> str:
    spec = server.get(f"{GROUP}/clusterqueues/{queue.name}")["spec"]
    return str(spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"])


def ask(server: ApiServer, queue: Queue) -> None:
    server.patch(f"{GROUP}/clusterqueues/{queue.name}", {"metadata": {"annotations": ASKS}})


def figure(queue: Queue, cpu_milli: int) -> OfferedObject:
    return OfferedObject(metadata=Metadata(name=queue.flavor), spec=OfferedSpec(cpu_milli=cpu_milli, memory_bytes=1))


def record(one: OfferedObject) -> Record:
    return Record(topic=QUEUE_SPEC.name, partition=0, offset=0, timestamp_ms=0, key=spec_key(one).encode(),
                  value=encode(spec_of(one)))  # fmt: skip


async def test_kueue_is_found_by_its_webhooks_its_lease_and_its_workloads(queueing):
    namespace = queueing.namespace("kueue")
    async with asked(queueing) as api:
        _, plurals = await served(api)

        async def found() -> str:
            return await kueue(api, workloads_of(plurals), SystemClock().wall_ms)

        assert await found() == "", "its definitions alone are no trace"
        with ally.webhook(queueing):
            assert "validatingwebhookconfigurations kueue-validating" in await found()
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{ally.LEASE}"
        ally.lease(queueing, namespace, renewed_s_ago=LEASE_S + 5)
        assert await found() == "", "a lease that nobody renews is left over"
        queueing.delete(path)
        ally.lease(queueing, namespace, renewed_s_ago=1)
        assert await found() == f"kueue-0 holds the lease {namespace}/{ally.LEASE}"
        queueing.delete(path)
        ally.admitted(queueing, namespace, "job-train-0a1b2")
        assert await found() == f"Workload {namespace}/job-train-0a1b2 holds quota"
        queueing.delete(f"{GROUP}/namespaces/{namespace}/workloads/job-train-0a1b2")
        assert await found() == ""


async def test_beside_kueue_only_cluster_queues_that_ask_get_what_is_sold(queueing, rig, monkeypatch):
    monkeypatch.setattr(bridge_queue, "LOOK_S", 0.3)
    asking, other = Queue(queueing, "1"), Queue(queueing, "1")
    ask(queueing, asking)
    with ally.webhook(queueing):
        rig.replica(queue=True)
        job = asking.job("job")
        async with Sender(Cluster(rig.bootstrap), client_id="test", timeout_s=5) as sender:
            for one in (figure(asking, 7_000), figure(other, 7_000)):
                out = Out(topic=QUEUE_SPEC.name, key=spec_key(one).encode(), value=encode(spec_of(one)), partition=0)
                await sender.send([out])
        await soon(
            lambda: asyncio.to_thread(nominal, queueing, asking),
            "half of what is sold",
            enough=lambda one: one == "3500m",
        )
        assert nominal(queueing, other) == "1"
        assert job.spec["suspend"] is True


async def test_a_quota_is_written_once_a_minute_and_never_over_another_write(queueing, monkeypatch):
    queue = Queue(queueing, "1")
    ask(queueing, queue)
    clock = SteppedClock()
    quotas = Quotas(clock)
    quotas.read(record(figure(queue, 4_000)))
    async with asked(queueing) as api:
        served_now, _ = await served(api)
        queues = served_now["ClusterQueue"]

        async def written(cpu_milli: int) -> str:
            quotas.read(record(figure(queue, cpu_milli)))
            await quotas.write(api, queues)
            return nominal(queueing, queue)

        assert await written(4_000) == "2000m"
        assert await written(6_000) == "2000m"
        clock.pass_ms(int(EVERY_S * 1_000))
        assert await written(6_000) == "3000m"

        listed = api.list

        async def overtaken(*places: object) -> object:
            found = await listed(*places)
            queueing.patch(f"{GROUP}/clusterqueues/{queue.name}", {"metadata": {"labels": {"changed": "meanwhile"}}})
            return found

        clock.pass_ms(int(EVERY_S * 1_000))
        with monkeypatch.context() as patched:
            patched.setattr(api, "list", overtaken)
            assert await written(8_000) == "3000m"
        assert await written(8_000) == "4000m"


async def test_a_version_with_effective_quotas_gets_them_in_its_status(queueing):
    ally.with_effective_quotas(queueing)
    try:
        queue = Queue(queueing, "1")
        ask(queueing, queue)
        quotas = Quotas(SystemClock())
        quotas.read(record(figure(queue, 4_000)))
        async with asked(queueing) as api:
            served_now, _ = await served(api)

            async def effective() -> Json:
                await quotas.write(api, served_now["ClusterQueue"])
                found = await asyncio.to_thread(queueing.get, f"{GROUP}/clusterqueues/{queue.name}")
                return found.get("status", {}).get("effectiveQuotas", {})

            found = await effective()
        assert found["orchestratorRef"] == {"apiGroup": "slacktide.io", "kind": "Queue", "name": "slacktide"}
        [quota] = found["resourceGroups"][0]["flavors"][0]["resources"]
        assert quota == {"name": "cpu", "nominalQuota": "2000m"}
    finally:
        install(queueing)
