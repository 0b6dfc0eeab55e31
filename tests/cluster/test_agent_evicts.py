"""A whole agent between a real API server and a log: it evicts as soon as there is credit, and tells of it at once."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slacktide.agents.http import Access
from slacktide.agents.node.apiserver import ApiServer as Door
from slacktide.agents.node.evict.eviction_client import EvictionClient
from slacktide.agents.node.loop import run
from slacktide.agents.node.settings import LoopSettings
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.health import Health
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import KEY
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import CREDIT, OUTCOME, POLICY, SAMPLE
from slacktide.streams.kafka import Sender, read_topic
from slacktide.streams.records import Out
from slacktide.streams.samples import SampleReader
from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer
from testbed.cluster.evicting import agent_account, events_on
from testbed.policies import policy_from
from testbed.sampled import decoded
from testbed.virtual.kernel import VirtualKernel

pytestmark = pytest.mark.cluster
GIB = 1 << 30
INTERVAL_MS = 3_000
POLICY_60 = policy_from(
    colocation={"enable": True},
    threshold={"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": 60}},
)

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


async def put(bootstrap: str, topic: str, key: str, message) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect([topic])
    await sender.send([Out(topic=topic, key=key.encode(), value=encode(message))])
    await sender.close()


async def first(bootstrap: str, topic: str, kind, matches=lambda _: True):
    """The first record that matches; waits for it."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        samples = SampleReader()
        async with contextlib.aclosing(read_topic(Cluster(bootstrap), topic)) as reading:
            read = [decoded(record, kind, samples) async for record in reading]
        found = [one for one in read if matches(one)]
        if found:
            return found[0]
        await asyncio.sleep(0.1)
    raise AssertionError(f"no such record in {topic}")


def inventory(node: str, namespace: str, uid: str, kube_qos: str = "BestEffort") -> dict:
    amounts = {"cpu": "4", "memory": str(8 * GIB)}
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "job", "namespace": namespace, "uid": uid, "labels": {"koordinator.sh/qosClass": "BE"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "qosClass": kube_qos},
    }  # fmt: skip
    status = {"capacity": amounts, "allocatable": amounts}
    items = [{"kind": "Node", "metadata": {"name": node}, "status": status}, pod]
    return {"apiVersion": "v1", "kind": "List", "items": items}


@contextlib.asynccontextmanager
async def running(machine: Machine, settings: LoopSettings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(VirtualKernel(machine), settings, stop, Health()))
    try:
        yield
    finally:
        stop.set()
        await task
        assert settings.eviction_client is not None
        settings.eviction_client.close()


async def test_a_reply_is_told_at_once_and_not_at_the_next_sample(
    api_server: ApiServer,
    namespace: str,
    embedded_broker: EmbeddedBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    where, node = embedded_broker.bootstrap, api_server.node()
    embedded_broker.apply_topics(2)
    uid = api_server.pod(namespace, "job", node=node, labels={"koordinator.sh/qosClass": "BE"})["metadata"]["uid"]
    token = tmp_path / "token"
    token.write_text(agent_account(api_server, namespace, node).token)
    machine = Machine(cpus=4, mem_bytes=8 * GIB)
    machine.add_pod(uid, "BestEffort").mem_bytes = 6 * GIB
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(inventory(node, namespace, uid)))
    await put(where, POLICY.name, KEY, POLICY_60)
    settings = LoopSettings(
        node=node,
        bootstrap=Cluster(where),
        inventory=file,
        state_folder=tmp_path / "state",
        eviction_client=EvictionClient(Door(Access(url=api_server.url, token=token, ca=api_server.ca))),
        sample_interval_ms=INTERVAL_MS,
        fetch_wait_ms=50,
    )
    (tmp_path / "state").mkdir()
    async with running(machine, settings):
        boot_id = (await first(where, SAMPLE.name, NodeSample)).boot_id
        lease = EvictionCredit(node=node, boot_id=boot_id, epoch=1, number=1, granted=1, ttl_ms=60_000)
        await put(where, CREDIT.name, node, lease)
        begin = await first(where, OUTCOME.name, NodeOutcome, lambda one: one.pod and one.result == "applied")
        evicted = api_server.get(f"/api/v1/namespaces/{namespace}/pods/job")
        machine.remove_pod(uid)
        end = await first(where, OUTCOME.name, NodeOutcome, lambda one: one.bound == "ended")

    assert (begin.target, begin.rule) == (f"pod/{uid}", "BEMemoryEvict")
    assert begin.age_ms < INTERVAL_MS
    assert "deletionTimestamp" in evicted["metadata"]
    assert end.reason.startswith("gone after ")
    logged = [one.getMessage() for one in caplog.records if one.getMessage().startswith(f"pod {namespace}/job: ")]
    assert "75% used, threshold 60%; " in logged[0], "observed value and threshold"
    assert (begin.terms["used_pct"], begin.terms["threshold_pct"]) == (75, 60)


async def test_a_pod_that_claims_to_be_best_effort_outside_that_group_gets_one_event(
    api_server: ApiServer, namespace: str, embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Also where the agent starts anew: the API server keeps one of each pod."""
    where, node = embedded_broker.bootstrap, api_server.node()
    embedded_broker.apply_topics(2)
    uid = api_server.pod(namespace, "job", node=node, labels={"koordinator.sh/qosClass": "BE"})["metadata"]["uid"]
    token = tmp_path / "token"
    token.write_text(agent_account(api_server, namespace, node).token)
    machine = Machine(cpus=4, mem_bytes=8 * GIB)
    machine.add_pod(uid, "Burstable")
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(inventory(node, namespace, uid, "Burstable")))
    (tmp_path / "state").mkdir()
    for _ in range(2):
        settings = LoopSettings(
            node=node,
            bootstrap=Cluster(where),
            inventory=file,
            state_folder=tmp_path / "state",
            eviction_client=EvictionClient(Door(Access(url=api_server.url, token=token, ca=api_server.ca))),
        )
        async with running(machine, settings):
            async with asyncio.timeout(60):
                while not (events := events_on(api_server, namespace, uid)):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            sampled = await first(where, SAMPLE.name, NodeSample, lambda one: bool(one.pods))

    assert [event["reason"] for event in events_on(api_server, namespace, uid)] == ["NotHeldBack"]
    assert events[0]["note"].startswith("claims QoS class BE and priority class koord-batch, and has native requests")
    assert sampled.pods[0].unheld
