"""Beside the real Kueue: it admits by the figure that Slacktide writes, and Slacktide's queue only decides."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue import queue as bridge_queue
from slacktide.agents.cluster.queue.kueue import Quotas, kueue, served, workloads_of
from slacktide.agents.kubernetes import api_server as kubernetes
from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.queue import OfferedObject, OfferedSpec, QueueState, spec_key, spec_of
from slacktide.schemas.queue_objects import Metadata
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, QUEUE_SPEC, QUEUE_STATE
from slacktide.streams.records import Record
from testbed.cluster.api_server import ApiServer, Json
from testbed.cluster.bridge_rig import BridgeRig
from testbed.cluster.identity import access_of
from testbed.cluster.jobs import Batch, job_controller
from testbed.cluster.kueue_record import Recording, job_of
from testbed.cluster.queue_rig import GROUP, POOL, Queue, permit
from testbed.cluster.real_kueue import Kueue
from testbed.deciders import decider
from testbed.kueue_worlds import difference
from testbed.waiting import soon

pytestmark = [pytest.mark.nightly, pytest.mark.cluster, pytest.mark.kueue, pytest.mark.timeout(600)]

ASKS = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": "50"}
EXPORTED = "clusterqueues,cohorts,resourceflavors,localqueues,workloads,jobs,namespaces"
"""As docs/queue-simulate.md has it."""
GIB = 1 << 30
UNSEEN = range(3_000, 3_012)


@pytest.fixture(scope="module")
def admitting_kueue(cluster: ApiServer) -> Iterator[Kueue]:
    """Kueue and the Job controller, on an API server with the manifests."""
    running = Kueue(cluster)
    running.start()
    permit(cluster)
    try:
        with job_controller(cluster):
            yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def beside(cluster: ApiServer, admitting_kueue: Kueue) -> ApiServer:
    """The API server on which Kueue admits Jobs."""
    return cluster


def nominal(server: ApiServer, queue: Queue) -> Json:
    [group] = server.get(f"{GROUP}/clusterqueues/{queue.name}")["spec"]["resourceGroups"]
    return {one["name"]: one["nominalQuota"] for one in group["flavors"][0]["resources"]}


async def run(queue: Queue, count: int) -> None:
    await soon(lambda: asyncio.to_thread(queue.running), f"{count} Jobs run", enough=lambda found: len(found) == count)


async def phase(rig: BridgeRig, job: Batch) -> str:
    records = await rig.records(QUEUE_STATE.name, job.uid)
    return decode(records[-1].value, QueueState).phase if records else ""


async def test_kueue_admits_by_what_nodes_offer_and_ours_decides_the_same_and_starts_nothing(
    beside, rig, tmp_path, monkeypatch
):
    monkeypatch.setattr(bridge_queue, "LOOK_S", 0.3)
    queue = Queue(beside, "1")
    node = beside.node(labels={POOL: queue.name})
    rig.say(node, cpu=3_000, mem=GIB)
    jobs = [queue.job(name) for name in ("one", "two", "three")]
    await run(queue, 2)
    rig.replica(queue=True)
    with decider(rig.bootstrap, tmp_path):
        for topic in (INVENTORY, ALLOCATABLE):
            await soon(lambda name=topic.name: rig.records(name, node), f"{topic.name} of the node")
        beside.patch(f"{GROUP}/clusterqueues/{queue.name}", {"metadata": {"annotations": ASKS}})
        await run(queue, 3)
        assert nominal(beside, queue) == {"cpu": "1500m"}
        for job in jobs:
            await soon(lambda of=job: phase(rig, of), "ours admits it", enough=lambda found: found == "reserved")
    assert metrics.SHADOW._value.get() == 1
    annotated = [one["metadata"].get("annotations", {}) for one in jobs_of(beside, queue)]
    assert not any(name.startswith("slacktide.io/") for each in annotated for name in each)

    exported = tmp_path / "cluster.yaml"
    exported.write_text(beside.kubectl("get", EXPORTED, "-A", "-o", "yaml"))
    shown = CliRunner().invoke(cli, ["queue", "simulate", str(exported), "--for", "0s", "--json"])
    assert (shown.exit_code, shown.stderr) == (0, "")
    states = [one for one in map(json.loads, shown.stdout.splitlines()) if one.get("cluster_queue") == queue.name]
    assert sorted(one["state"] for one in states) == ["running"] * 3
    assert {job_of(one) for one in workloads(beside, queue)} == {"one", "two", "three"}


def jobs_of(server: ApiServer, queue: Queue) -> list[Json]:
    return server.get(f"/apis/batch/v1/namespaces/{queue.namespace}/jobs")["items"]


def workloads(server: ApiServer, queue: Queue) -> list[Json]:
    return server.get(f"{GROUP}/namespaces/{queue.namespace}/workloads")["items"]


async def test_a_quota_that_kueue_refuses_stays_and_the_log_has_its_reason(beside, caplog):
    queue = Queue(beside, "2")
    flavor = {"name": queue.flavor, "resources": [{"name": "cpu", "nominalQuota": "2", "lendingLimit": "1"}]}
    spec = {"cohortName": queue.name, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    asks = {"metadata": {"annotations": ASKS}, "spec": spec}
    beside.patch(f"{GROUP}/clusterqueues/{queue.name}", asks)
    quotas = Quotas(SystemClock())
    one = OfferedObject(metadata=Metadata(name=queue.flavor), spec=OfferedSpec(cpu_milli=1_000, memory_bytes=1))
    quotas.read(Record(topic=QUEUE_SPEC.name, partition=0, offset=0, timestamp_ms=0, key=spec_key(one).encode(),
                       value=encode(spec_of(one))))  # fmt: skip
    async with kubernetes.ApiServer(access_of(beside.kubeconfig), name="test") as api:
        kinds, plurals = await served(api)
        assert "refers to kueue.x-k8s.io" in await kueue(api, workloads_of(plurals), SystemClock().wall_ms)
        with caplog.at_level(logging.WARNING):
            await quotas.write(api, kinds["ClusterQueue"])
    assert nominal(beside, queue) == {"cpu": "2"}
    [refused] = [one for one in caplog.records if getattr(one, "cluster_queue", "") == queue.name]
    assert "lendingLimit" in refused.why


@pytest.mark.alone
def test_the_simulation_makes_of_worlds_that_nobody_recorded_what_kueue_makes_of_them(beside, admitting_kueue):
    """Few at once and alone: in some worlds it matters whether a cycle, or the stop of a victim, takes a second."""
    recording = Recording(beside, admitting_kueue, UNSEEN, fair=False)
    found = recording.run()
    assert recording.restless == set()
    assert {one.seed: how for one in found if (how := difference(one))} == {}
