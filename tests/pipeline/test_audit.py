"""The audit on a real broker: an eviction by a running stack, asked for when pod, node and agent are gone."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from slacktide.agents.node.cgroup import best_effort
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import Spent
from slacktide.schemas.policy import KEY
from slacktide.schemas.topics import AUDIT, CREDIT, POLICY, Topic
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out
from testbed.agent_rig import agent_of
from testbed.brokers import EmbeddedBroker
from testbed.chains import evicted
from testbed.one_machine import MEM_BYTES, NODE, SLACKTIDE, VirtualNode, eventually
from testbed.policies import policy_from
from testbed.spawning import spawn

POD = "default/tenant"
SHORT = policy_from(
    colocation={"enable": True},
    threshold={
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressPolicy": "cfsQuota",
            "memoryEvictThresholdPercent": 60,
            "memoryEvictLowerPercent": 55,
        }
    },
)
RECORDS = 60_000


def audit(*arguments: str, code: int = 0) -> str:
    """Run the command as a user does; what it prints."""
    done = subprocess.run([SLACKTIDE, "audit", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout


def acts(bootstrap: str, *arguments: str) -> list[dict]:
    listed = json.loads(audit("list", "-o", "json", "--bootstrap", bootstrap, *arguments))
    return [one["body"] for one in listed]


async def until(true: Callable[[], bool], within_s: float = 60.0) -> None:
    assert await asyncio.to_thread(eventually, true, within_s, every_s=0.3), f"not within {within_s:g} s"


async def put(where: str, topic: Topic, key: str, message: Message) -> None:
    async with Sender(Cluster(where), client_id="test", acks="all", timeout_s=5) as sender:
        await sender.send([Out(topic=topic.name, key=key.encode(), value=encode(message))])


async def evict(where: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
    """An agent is short of memory, with no worker there: its guard holds back, and with credit evicts, who took it."""
    await put(where, POLICY, KEY, SHORT)
    with VirtualNode(folder) as node:
        async with agent_of(node, where, folder):
            await until(lambda: node.quota_us is not None)
            node.add_batch("tenant", mem_bytes=round(0.75 * MEM_BYTES), pid=process.pid)
            await until(lambda: bool(acts(where)))
            boot_id = acts(where)[0]["boot_id"]
            credit = EvictionCredit(node=NODE, boot_id=boot_id, epoch=2, number=1, granted=1, ttl_ms=60_000)
            await put(where, CREDIT, NODE, credit)
            await until(lambda: process.poll() is not None)
            node.remove_batch("tenant")
            await until(lambda: "ended" in {one["bound"] for one in acts(where, "--pod", POD)})


def test_an_eviction_is_in_the_audit_when_its_pod_and_node_are_gone_and_its_export_shows_a_change(
    embedded_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The virtual node's groups are plain folders, whose processes no agent would end.
    monkeypatch.setattr(best_effort, "is_kernels", lambda _: True)
    embedded_broker.apply_topics(2)
    where, broker = embedded_broker.bootstrap, ("--bootstrap", embedded_broker.bootstrap)
    process = spawn(["sleep", "600"], tmp_path / "tenant.log")
    try:
        asyncio.run(evict(where, tmp_path, process))
    finally:
        process.kill()
        process.wait()

    found = acts(where, "--pod", POD, "--node", NODE)
    [eviction] = [one for one in found if one.get("spent")]
    assert eviction["rule"] == "BEMemoryEvict"
    assert eviction["terms"]["used_pct"] > eviction["terms"]["threshold_pct"] == 60
    assert eviction["spent"] == {"evictions": 1, "epoch": 2}
    assert eviction["policy_version"]
    assert not [one for one in acts(where) if one["rule"] == "cpu_suppress"], "limits are no acts on pods"
    assert acts(where)[0]["bound"] == "throttled", "before there was credit"
    assert "threshold 60%" in audit("list", *broker, "--pod", POD)

    file = tmp_path / "audit.jsonl"
    digest = audit("export", str(file), *broker).split()[-1]
    assert "all unchanged" in audit("verify", str(file), "--hash", digest)
    audit("verify", str(file), "--hash", "0" * 64, code=1)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:1], lines[1].replace(NODE, "other"), *lines[2:]]))
    assert f"{file}: line 2 was changed" in audit("verify", str(file), code=1)


def test_one_act_is_found_among_sixty_thousand(embedded_broker: EmbeddedBroker) -> None:
    embedded_broker.apply_topics(2)
    one = evicted(1, result="applied", spent=Spent(evictions=1))
    many = Out(topic=AUDIT.name, key=b"node-7", value=encode(one))
    mine = Out(topic=AUDIT.name, key=b"node-8", value=encode(evicted(1, "rare", result="applied", node="node-8")))

    async def fill() -> None:
        async with Sender(Cluster(embedded_broker.bootstrap), client_id="test", acks="all", timeout_s=20) as sender:
            await sender.send([mine])
            for _ in range(RECORDS // 10_000):
                await sender.send([many] * 10_000)

    asyncio.run(fill())
    for asked in (("--pod", "jobs/rare"), ("--node", "node-8")):
        assert [each["node"] for each in acts(embedded_broker.bootstrap, *asked)] == ["node-8"]
