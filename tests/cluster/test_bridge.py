"""The bridge, under its own account on a real API server, with a broker behind it."""

import asyncio
import contextlib
from urllib.request import urlopen

import pytest
from prometheus_client import Gauge

from slacktide.agents.cluster.bridge import metrics, node_status
from slacktide.agents.cluster.bridge.election import Election, Timing
from slacktide.agents.cluster.bridge.writing import NodeSelector
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Resources, revision_of
from slacktide.schemas.policy import DEFAULT, KEY, Policy, RefusedFile
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, DEAD_LETTER, INVENTORY, POLICY, SAMPLE
from slacktide.schemas.units import whole
from slacktide.streams.records import Out
from testbed import stream_rig
from testbed.brokers import EmbeddedBroker, free_port
from testbed.cluster.api_server import RefusedError
from testbed.cluster.bridge_rig import OPERATORS, BridgeRig, until
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.streaming_rig import GIB, Replica
from testbed.samples import body_of, keyframe

pytestmark = pytest.mark.cluster
SUPPRESS = {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60}}
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/slacktide-bridge"


async def _told(rig: BridgeRig, node: str) -> list[NodeInventory | None]:
    """What the log says of the node, from the first to the last; None: it is gone."""
    records = await rig.records(INVENTORY.name, node)
    return [None if one.value is None else decode(one.value, NodeInventory) for one in records]


async def _policies(rig: BridgeRig) -> list[Policy]:
    return [decode(record.value, Policy) for record in await rig.records(POLICY.name, KEY)]


def _leads(rig: BridgeRig) -> int:
    """The epoch of whoever writes; 0: nobody."""
    return int(metrics.EPOCH.collect()[0].samples[0].value)


def _holder(rig: BridgeRig) -> str:
    with contextlib.suppress(RefusedError):
        return str(rig.cluster.get(LEASE)["spec"]["holderIdentity"])
    return ""


def _works(replica: Replica) -> bool:
    """Whether it is connected both ways: who is killed while it connects leaves a warning of its Kafka client."""
    return not replica.health.not_ready and "log:" not in replica.health.not_fresh


async def test_nodes_and_policy_come_into_the_log_and_follow_what_becomes_of_them(rig: BridgeRig) -> None:
    rig.say_policy(threshold=SUPPRESS)
    annotations = {"node.koordinator.sh/colocation-strategy": "[", "example.com/other": "x"}
    node = rig.cluster.node(labels={"pool": "mixed"}, annotations=annotations)
    replica = rig.replica()
    await until(lambda: _works(replica))
    told = (await _told(rig, node))[-1]
    assert told is not None
    assert (told.facts.labels, told.facts.annotations) == (
        {"pool": "mixed"},
        {"node.koordinator.sh/colocation-strategy": "["},
    )
    assert (told.facts.capacity.cpu_milli, told.facts.capacity.mem_bytes) == (8_000, 16 * GIB)
    [policy] = await _policies(rig)
    assert policy.resource_threshold.cpu_suppress_threshold_pct == 60
    assert policy.writer_epoch == told.writer_epoch == _leads(rig) > 0
    assert policy.installation == told.installation != ""

    await until(lambda: [one for one in rig.cluster.get(EVENTS)["items"] if one["regarding"]["name"] == node])
    [event] = [one for one in rig.cluster.get(EVENTS)["items"] if one["regarding"]["name"] == node]
    assert (event["reason"], event["note"]) == (
        "FieldIgnored", "annotation node.koordinator.sh/colocation-strategy: ignored: it is not a JSON object"
    )  # fmt: skip

    said = len(await _told(rig, node))
    rig.cluster.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
    ]}})  # fmt: skip
    rig.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"pool": "batch"}}})
    rig.say_policy(threshold={"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 50}})
    rig.cluster.delete(f"/api/v1/nodes/{node}")
    async with asyncio.timeout(60):
        while (await _told(rig, node))[-1] is not None or len(await _policies(rig)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    changes = [one and one.facts.labels for one in (await _told(rig, node))[said:]]
    assert changes in ([{"pool": "batch"}, None], [None]), "a heartbeat says nothing"
    assert (await _policies(rig))[-1].resource_threshold.cpu_suppress_threshold_pct == 50


async def test_with_a_selector_nodes_are_published_while_they_have_the_label_and_written_to_by_its_value(
    rig: BridgeRig,
) -> None:
    other, trying = rig.cluster.node(), rig.cluster.node(labels={"colocation-agent": "slacktide-dry-run"})
    for node in (other, trying):
        rig.say(node, cpu=1_500, mem=4 * GIB)
    replica = rig.replica(node_selector=NodeSelector("colocation-agent", "slacktide"))
    await until(lambda: _works(replica))
    assert [bool(one) for one in await _told(rig, trying)] == [True]
    assert await _told(rig, other) == []

    label = f"/api/v1/nodes/{trying}"
    rig.cluster.patch(label, {"metadata": {"labels": {"colocation-agent": "slacktide"}}})
    await until(lambda: rig.resources(trying)["allocatable"])
    assert rig.resources(other)["allocatable"] == {}
    rig.cluster.patch(label, {"metadata": {"labels": {"colocation-agent": None}}})
    async with asyncio.timeout(60):
        while (await _told(rig, trying))[-1] is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert rig.resources(trying)["allocatable"], "they are left to the node's next owner"


async def test_figures_come_to_the_node_and_are_withdrawn_together(rig: BridgeRig) -> None:
    node = rig.cluster.node()
    rig.say(node, cpu=1_500, mem=4 * GIB, mid=500)
    rig.replica()
    both = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": str(4 * GIB),
            "kubernetes.io/mid-cpu": "500", "kubernetes.io/mid-memory": "500"}  # fmt: skip
    await until(lambda: rig.resources(node)["capacity"])
    assert rig.resources(node) == {"capacity": both, "allocatable": both}
    written = rig.writes("nodes")
    rig.say(node, cpu=1_600, mem=4 * GIB, mid=500)
    await asyncio.sleep(2.5)
    assert rig.writes("nodes") == written, "7% is no change"
    # To what runs there: its agent has fallen silent.
    rig.say(node, cpu=400, mem=GIB, floored=["batch_cpu_milli", "batch_mem_bytes"], stale_ms=10_000)
    floor = {"kubernetes.io/batch-cpu": "400", "kubernetes.io/batch-memory": str(GIB)}
    await until(lambda: rig.resources(node) == {"capacity": floor, "allocatable": floor})
    assert rig.writes("nodes") == written + 1, "capacity and allocatable go out together"


async def test_a_node_metric_says_what_the_log_says_and_goes_with_its_node(rig: BridgeRig) -> None:
    node = rig.cluster.node()
    rig.say(node, cpu=None, mem=None)
    rig.replica()
    path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{node}"
    await until(lambda: "status" in rig.cluster.kubectl("get", "nodemetric", node, "--ignore-not-found", "-o", "yaml"))
    shown = rig.cluster.get(path)
    assert shown["spec"] == {}
    assert shown["metadata"]["ownerReferences"][0]["name"] == node
    assert shown["status"] == node_status.metric_status(rig.metric[node])["status"]
    assert shown["status"]["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "138m", "memory": "1815637738"}
    assert shown["status"]["podsMetric"][0]["podUsage"]["resources"] == {"cpu": "300m", "memory": "17828Ki"}
    assert node in rig.cluster.kubectl("get", "nodemetrics")


async def test_the_api_server_is_written_to_within_its_budget(rig: BridgeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a minute of 2 s: one NodeMetric in each, and a Node write in two, however the figures swing."""
    minute_s = 2.0
    monkeypatch.setattr(node_status, "INTERVAL_S", minute_s)
    monkeypatch.setattr(node_status, "UNFORCED_S", minute_s)
    monkeypatch.setattr(node_status, "NODE_WRITE_S", 2 * minute_s)
    monkeypatch.setattr(node_status, "GAP_S", minute_s / 6)
    monkeypatch.setattr(node_status, "SAVED_MAX", 1.0)
    rig.say_policy(colocation={"enable": True, "metricReportIntervalSeconds": 1})
    nodes = [rig.cluster.node() for _ in range(3)]
    for node in nodes:
        rig.say(node, cpu=1_500, mem=4 * GIB)
    rig.replica()
    await until(lambda: all(rig.resources(node)["capacity"] for node in nodes))
    before = rig.writes("nodes"), rig.writes("nodemetrics")
    minutes = 4
    for tenth in range(round(minutes * minute_s * 10)):
        if tenth % 5 == 0:
            for node in nodes:
                rig.say(node, cpu=1_500 + 500 * (tenth % 2) + 10 * tenth, mem=(4 + tenth // 5 % 3) * GIB)
        await asyncio.sleep(0.1)
    node_writes, metric_writes = rig.writes("nodes") - before[0], rig.writes("nodemetrics") - before[1]
    assert 0 < node_writes <= len(nodes) * (0.5 * minutes + 1)
    assert len(nodes) * (minutes - 2) <= metric_writes <= len(nodes) * (minutes + 1)


async def test_a_replica_takes_over_from_one_that_stops_or_dies_with_a_higher_epoch(
    rig: BridgeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.say_policy(threshold=SUPPRESS)
    one = rig.replica("one")
    await until(lambda: _holder(rig) == "one" and _leads(rig))
    two = rig.replica("two")
    await until(lambda: not two.health.not_ready)
    await until(lambda: _works(one))
    first = _leads(rig)
    await one.stop()
    await until(lambda: _holder(rig) == "two" and _leads(rig) and _works(two))
    second = _leads(rig)
    three = rig.replica("three")

    async def nothing(_: Election) -> None:
        """Who dies gives nothing back."""

    monkeypatch.setattr(Election, "_release", nothing)
    await two.kill()
    assert _holder(rig) == "two"
    await until(lambda: _holder(rig) == "three" and _leads(rig) and _works(three))
    assert first < second < _leads(rig)
    async with asyncio.timeout(60):
        while (await _policies(rig))[-1].writer_epoch != _leads(rig):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    said = await _policies(rig)
    epochs = [policy.writer_epoch for policy in said]
    assert epochs == sorted(epochs)
    assert len({policy.installation for policy in said}) == 1, "each adopts the id that the first one drew"
    assert said[0].installation


async def test_what_each_node_sells_is_a_metric_until_the_lease_is_lost(rig: BridgeRig) -> None:
    """Another replica serves it then: who kept its own would show a cluster of an hour ago."""

    def sold(gauge: Gauge, of: str) -> dict[str, float]:
        return {one.labels["tier"]: one.value for one in gauge.collect()[0].samples if one.labels["node"] == of}

    def served(gauge: Gauge) -> list[float]:
        return [one.value for one in gauge.collect()[0].samples]

    node, other = rig.cluster.node(), rig.cluster.node()
    rig.say_policy(threshold=SUPPRESS)
    rig.say(node, cpu=1_500, mem=4 * GIB, mid=500)
    rig.replica("one")
    await until(lambda: sold(metrics.OFFERED_CPU, node) == {"batch": 1_500, "mid": 500, "free": 0})
    assert sold(metrics.OFFERED_MEMORY, node) == {"batch": 4 * GIB, "mid": 500, "free": 0}
    assert sold(metrics.OFFERED_CPU, other) == {"batch": 0, "mid": 0, "free": 0}, "it sells nothing"
    rig.cluster.delete(f"/api/v1/nodes/{other}")
    await until(lambda: sold(metrics.OFFERED_CPU, other) == {})
    await until(lambda: served(metrics.NODES)[0] >= 1 and served(metrics.TROUBLE))

    rig.cluster.patch(LEASE, {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3_600}})
    await until(lambda: served(metrics.LEADING) == [0])
    for gauge in (metrics.EPOCH, metrics.NODES, metrics.FROZEN, metrics.CAPPED):
        assert served(gauge) == [0]
    for gauge in (metrics.OFFERED_CPU, metrics.OFFERED_MEMORY, metrics.TROUBLE):
        assert served(gauge) == []
    rig.cluster.delete(LEASE)


async def test_the_epoch_rises_even_where_the_lease_was_deleted(rig: BridgeRig) -> None:
    rig.say_policy(threshold=SUPPRESS)
    one = rig.replica("one")
    await until(lambda: _leads(rig) > 0)
    before = _leads(rig)
    await until(lambda: _works(one))
    await one.stop()
    rig.cluster.delete(LEASE)
    two = rig.replica("two")
    await until(lambda: _leads(rig) > before and _works(two))
    assert rig.cluster.get(LEASE)["spec"]["leaseTransitions"] == _leads(rig) - 1


async def test_what_happened_while_no_bridge_ran_is_made_up_for(rig: BridgeRig) -> None:
    rig.say_policy(threshold=SUPPRESS)
    node = rig.cluster.node()
    one = rig.replica("one")
    await until(lambda: _works(one))
    good = (await _policies(rig))[-1]
    await one.stop()
    rig.cluster.delete(f"/api/v1/nodes/{node}")
    rig.say_policy(threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 600}})
    two = rig.replica("two")
    async with asyncio.timeout(60):
        while (await _told(rig, node))[-1] is not None or (await _policies(rig))[-1].writer_epoch == good.writer_epoch:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    last = (await _policies(rig))[-1]
    assert (last.version, last.writer_epoch) == (good.version, good.writer_epoch + 1), "the last good one stays"
    wrong = (
        'data["resource-threshold-config"].clusterStrategy.cpuSuppressThresholdPercent: 600: accepted: '
        "a whole number from 0 to 100"
    )
    assert last.refused == RefusedFile(since_ms=last.refused.since_ms, findings=[wrong])
    assert good.published_ms < last.refused.since_ms <= last.published_ms
    await until(lambda: metrics.POLICY_REFUSED.collect()[0].samples[0].value)
    events = rig.cluster.get(f"/apis/events.k8s.io/v1/namespaces/{OPERATORS}/events")["items"]
    [event] = [one for one in events if one["reason"] == "PolicyRefused"]
    assert event["regarding"]["kind"] == "ConfigMap"
    assert event["note"] == f"policy refused: {wrong}; version {good.version} is in force"
    assert event["note"] in two.health.not_fresh
    # Another replica says the same, of the same time.
    await two.stop()
    three = rig.replica("three")
    await until(lambda: event["note"] in three.health.not_fresh)
    async with asyncio.timeout(60):
        while (again := (await _policies(rig))[-1]).writer_epoch == last.writer_epoch:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert again.refused == last.refused
    rig.say_policy(threshold=SUPPRESS)
    await until(lambda: not metrics.POLICY_REFUSED.collect()[0].samples[0].value)
    async with asyncio.timeout(60):
        while (await _policies(rig))[-1].refused is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_record_that_cannot_be_used_stops_nothing_and_is_laid_aside(rig: BridgeRig) -> None:
    node = rig.cluster.node()
    rig.say_policy(threshold=SUPPRESS)
    replica = rig.replica()
    await until(lambda: _works(replica))
    await rig.put(Out(topic=ALLOCATABLE.name, key=node.encode(), value=b"{"))
    await until(lambda: rig.resources(node)["capacity"] == {})
    rig.say(node, cpu=1_500, mem=GIB)
    await until(lambda: rig.resources(node)["capacity"])
    async with asyncio.timeout(60):
        while not (letters := await rig.records(DEAD_LETTER.name, node)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    letter = decode(letters[0].value, DeadLetter)
    assert (letter.topic, letter.reader) == (ALLOCATABLE.name, "bridge")


async def test_a_node_never_shows_more_than_its_own_capacity(rig: BridgeRig) -> None:
    """The stream says 1 PiB: written are the Node's 16 GiB, and one dead letter tells of it."""
    node = rig.cluster.node()
    rig.say_policy(threshold=SUPPRESS)
    rig.say(node, cpu=76_000, mem=2**50, mid=2**45)
    rig.replica()
    own = {"kubernetes.io/batch-cpu": "8k", "kubernetes.io/batch-memory": str(16 * GIB),
           "kubernetes.io/mid-cpu": "8k", "kubernetes.io/mid-memory": str(16 * GIB)}  # fmt: skip
    await until(lambda: rig.resources(node) == {"capacity": own, "allocatable": own})
    async with asyncio.timeout(60):
        while not (letters := await rig.records(DEAD_LETTER.name, node)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    letters = await rig.records(DEAD_LETTER.name, node)
    assert len(letters) == 1, "once, not each time that it is said"
    assert (
        f"batch_mem_bytes is {2**50}, above the Node's capacity of {16 * GIB}"
        in decode(letters[0].value, DeadLetter).reason
    )
    assert metrics.CAPPED.collect()[0].samples[0].value >= 1


async def test_a_forged_sample_sells_no_more_than_the_node_has(rig: BridgeRig) -> None:
    """Through a real worker: what is sold goes by the bridge's inventory, and a node that it lacks is unknown."""
    node = rig.cluster.node()
    rig.say_policy(colocation={"enable": True, "metricAggregateDurationSeconds": 10})
    replica = rig.replica()
    await until(lambda: _works(replica))
    version = (await _policies(rig))[-1].version
    claimed = Resources(cpu_milli=76_000, mem_bytes=2**50)
    facts = NodeFacts(name=node, capacity=claimed, allocatable=claimed)

    async def send(seq: int, name: str) -> None:
        forged = keyframe(
            seq, name, policy_version=version, facts=facts, facts_revision=revision_of(facts), pods=[], pod_use=[]
        )
        await rig.put(Out(topic=SAMPLE.name, key=name.encode(), value=body_of(forged)))

    async with stream_rig.Rig(rig.bootstrap).worker():
        for seq in range(1, 5):
            await send(seq, node)
            await send(seq, "invented")
        await until(lambda: rig.resources(node)["capacity"])
        shown = rig.resources(node)["capacity"]
        assert 0 < whole(shown["kubernetes.io/batch-memory"]) <= 16 * GIB
        assert 0 < whole(shown["kubernetes.io/batch-cpu"]) <= 8_000
        sold = decode((await rig.records(ALLOCATABLE.name, node))[-1].value, NodeAllocatable)
        published = {one.revision for one in await _told(rig, node) if one is not None}
        assert sold.inventory_revision in published, "a newer one follows what the bridge wrote just now"
        assert await rig.records(ALLOCATABLE.name, "invented") == []
        [answer, *_] = await rig.records(COMMAND.name, "invented")
        assert decode(answer.value, NodeCommand).reason.startswith("unknown node")


async def test_without_a_config_map_everything_is_off_after_a_while(
    rig: BridgeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slacktide.agents.cluster.watching.ABSENT_S", 1.0)
    rig.say_policy(threshold=SUPPRESS)
    replica = rig.replica()
    await until(lambda: _works(replica))
    rig.withdraw_policy()
    async with asyncio.timeout(60):
        while (await _policies(rig))[-1].version != DEFAULT.version:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await until(lambda: f"ConfigMap {OPERATORS}/slo-controller-config does not exist" in replica.health.not_fresh)


async def test_it_goes_on_where_it_was_when_the_api_server_comes_back(rig: BridgeRig) -> None:
    node = rig.cluster.node()
    rig.say_policy(threshold=SUPPRESS)
    replica = rig.replica(timing=Timing(duration_s=100, renew_deadline_s=90.0, retry_s=0.2))
    await until(lambda: _works(replica))
    lists, epoch = _lists(), _leads(rig)
    rig.cluster.api.stop()
    await until(lambda: "Cannot connect" in replica.health.not_fresh)
    await asyncio.to_thread(rig.cluster.start)
    rig.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"pool": "new"}}})
    async with asyncio.timeout(60):
        while (told := (await _told(rig, node))[-1]) is None or told.facts.labels.get("pool") != "new":  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await until(lambda: "Cannot connect" not in replica.health.not_fresh)
    assert _leads(rig) == epoch
    assert _lists() <= lists + 1, "listed anew once, where the server remembers no more"


async def test_a_broker_that_lost_its_memory_is_told_everything_again(
    rig: BridgeRig, embedded_broker: EmbeddedBroker
) -> None:
    rig.say_policy(threshold=SUPPRESS)
    node = rig.cluster.node()
    replica = rig.replica()
    await until(lambda: _works(replica))
    await asyncio.to_thread(embedded_broker.forget)
    await until(lambda: bool(replica.health.not_ready))
    await until(lambda: _works(replica))
    assert (await _told(rig, node))[-1] is not None
    assert len(await _policies(rig)) == 1


def _lists() -> float:
    samples = [sample for one in metrics.LISTED.collect() for sample in one.samples]
    return sum(one.value for one in samples if one.name.endswith("_total") and one.labels["of"] == "nodes")


async def test_the_command_says_that_it_is_ready_and_gives_the_lease_back(rig: BridgeRig) -> None:
    rig.say_policy(threshold=SUPPRESS)
    port = free_port()
    with rig.command("--replica-name", "by-hand", "--metrics-port", str(port)) as process:
        await until(lambda: _holder(rig) == "by-hand" and _answers(port, "/ready"))
        told = _answers(port, "/metrics")
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
    assert "slacktide_bridge_leading 1.0" in told
    assert _holder(rig) == ""


def _answers(port: int, path: str) -> str:
    with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.read().decode()
    return ""
