"""``slacktide explain`` as a process against real brokers: it tells what stands in the log, and changes nothing."""

import asyncio
import concurrent.futures
import json
import signal
import subprocess
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaProducer

from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.outcome import NodeOutcome, Spent
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, NODE_PARTITIONS, OUTCOME, POLICY, SAMPLE, Topic
from slacktide.streams.analysis.replay.figures import OF_ITS_SAMPLE
from slacktide.streams.kafka import WHOLE, Sender, Tail, describe_topics, partition_of
from slacktide.streams.kept import answers_in
from slacktide.streams.records import Out, Record
from slacktide.streams.samples import SampleReader
from testbed.brokers import DATED_BY_CLIENTS, free_port
from testbed.chains import evicted
from testbed.one_machine import NODE, SLACKTIDE, eventually, one_machine
from testbed.samples import SERVICE, body_of, keyframe

pytestmark = pytest.mark.nightly  # on Apache Kafka

T = TypeVar("T")
ASKED_MILLI = 4_000
"""What the machine's batch pods have asked for: nothing less is published."""
POD = {
    "kind": "Pod",
    "metadata": {"name": "etl-x2lqp", "namespace": "default", "labels": {"koordinator.sh/qosClass": "BE"}},
    "spec": {
        "nodeSelector": {"pool": "batch"},
        "containers": [
            {
                "name": "main",
                "resources": {"requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}},
            }
        ],
    },
}


def explain(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [SLACKTIDE, "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, input=given, check=False, timeout=60)


def explained(*arguments: str, given: str | None = None) -> dict[str, Any]:
    """Its JSON output."""
    done = explain(*arguments, "--output", "json", given=given)
    assert done.returncode == 0, done.stderr
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def run_nodes(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As kubectl calls its plug-in."""
    command = [str(Path(SLACKTIDE).with_name("kubectl-slacktide")), "nodes", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def nodes(*arguments: str) -> str:
    done = run_nodes(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _first_screen(*arguments: str) -> str:
    """What ``top`` shows, and that it shows it again."""
    with subprocess.Popen([SLACKTIDE, "top", *arguments], stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        lines = [top.stdout.readline() for _ in range(6)]
        top.send_signal(signal.SIGINT)
    assert lines[0].count("NODE") == lines[3].count("NODE") == 1
    return lines[2]


def findings(body: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["text"] for one in body["findings"]}


def alone(work: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def held(bootstrap: str, topic: str, partition: int) -> dict[int, Record]:
    """All that a partition holds, by offset."""
    async with Tail(Cluster(bootstrap), 100) as reader:
        read = await reader.read({(topic, partition): WHOLE})
    return {record.offset: record for record in read.records}


async def put(bootstrap: str, *bodies: NodeOutcome | NodeSample, topic: Topic = OUTCOME) -> None:
    sender = Sender(Cluster(bootstrap), client_id="test", acks="all", timeout_s=5)
    await sender.connect([topic.name])
    values = [body_of(one) if isinstance(one, NodeSample) else encode(one) for one in bodies]
    await sender.send(
        [Out(topic=topic.name, key=one.node.encode(), value=value) for one, value in zip(bodies, values, strict=True)]
    )
    await sender.close()


@pytest.mark.timeout(120)
def test_a_node_and_its_pods_are_explained_by_what_stands_in_the_log(broker, tmp_path: Path) -> None:
    """One machine, its agent and a worker: healthy, then its service takes all, then the agent falls silent."""
    broker.apply_topics()
    with one_machine(tmp_path, "--bootstrap", broker.bootstrap) as (node, up):
        at = ("--bootstrap", broker.bootstrap)
        up.wait_logged(r"first (applied decision .* s after the start, )?(decision )?by the stream")
        eventually(lambda: len(explained("node", NODE, *at)["figures"]) >= 2, every_s=0.5)

        healthy = explained("node", NODE, *at)
        assert not {"agent.silent", "worker.silent", "policy.other", "batch.disabled"} & findings(healthy).keys()
        assert {step["name"] for step in healthy["steps"]} >= {"sample", "window", "allocatable", "command", "outcome"}
        _each_record_stands_where_it_is_said(broker.bootstrap, healthy)
        shortly = explained("node", NODE, *at, "--since", "0s")
        assert "agent.silent" not in findings(shortly)
        assert all(one["place"] for step in shortly["steps"][:4] for one in step["inputs"])
        cpu = healthy["figures"][0]
        terms, adds = cpu["because"]["terms"], cpu["because"]["adds"]
        left = sum(int(f"{part[0]}1") * terms[part[1:]] for part in adds)
        assert cpu["published"] == max(left, ASKED_MILLI)
        text = explain("node", NODE, *at)
        assert text.returncode == 0
        assert "+ capacity_milli                             8,000  ████" in text.stdout

        waits = explained("pod", "default/etl-x2lqp", "--file", "-", *at, given=json.dumps(POD))
        assert (
            f"{NODE}: nodeSelector requires pool=batch, the node has no label pool"
            in findings(waits)["pending.selector"]
        )
        assert "not koord-scheduler" in findings(waits)["pending.scheduler"]
        runs = explained("pod", "default/batch-0", *at)
        assert (runs["running"]["node"], runs["priority_class"]) == (NODE, "koord-batch")

        [row] = json.loads(nodes(*at, "-o", "json"))
        assert (row["node"], row["capacity_cpu_milli"]) == (NODE, 8_000)
        assert row["batch_cpu_milli"] >= ASKED_MILLI
        assert row["severity"] in {"ok", "note"}, row
        assert row["age_ms"] < 45_000
        assert row["limits"] is not None
        assert nodes("al*", *at).splitlines()[1].split()[0] == NODE
        assert "known: alpha" in run_nodes("beta", *at).stderr
        assert "1 node, 0 with a problem or a warning; used " in _first_screen(*at)
        once = subprocess.run([SLACKTIDE, "top", *at, "-o", "json"], capture_output=True, check=True, timeout=60)
        assert [one["node"] for one in json.loads(once.stdout)] == [NODE]

        node.service.demand_milli = 8_000
        full = eventually(lambda: findings(explained("node", NODE, *at)).get("batch.exhausted"), every_s=0.5)
        assert full is not None
        assert "because of high_priority_milli" in full
        assert "largest: default/service" in full

        up.part("agent").suspend()
        silent = eventually(lambda: findings(explained("node", NODE, *at)).get("agent.silent"), every_s=1)
        assert silent is not None
        assert "its last sample, seq " in silent
        row = eventually(lambda: _problem(*at), every_s=0.5)
        assert row is not None
        assert (row["fact"], row["why"].partition(",")[0]) == ("agent.silent", silent.partition(",")[0])


def _problem(*at: str) -> dict[str, Any] | None:
    """The node's row, once it is a problem."""
    [row] = json.loads(nodes(*at, "-o", "json", "--problems"))
    assert row["node"] == NODE
    return row if row["severity"] == "problem" else None


def _each_record_stands_where_it_is_said(bootstrap: str, body: dict[str, Any]) -> None:
    topics = {
        "sample": SAMPLE,
        "window": METRIC,
        "allocatable": ALLOCATABLE,
        "command": COMMAND,
        "outcome": OUTCOME,
    }
    partition = partition_of(NODE, NODE_PARTITIONS)
    for step in body["steps"]:
        if step["name"] not in topics:
            continue
        place = step["place"]
        assert (place["topic"], place["partition"]) == (topics[step["name"]].name, partition)
        kept = alone(held(bootstrap, place["topic"], partition))
        record = kept[place["offset"]]
        assert record.value is not None
        samples = SampleReader()
        read = {offset: samples.read(one) for offset, one in kept.items()} if step["name"] == "sample" else {}
        if read:
            assert json.loads(encode(read[place["offset"]])) == step["record"]
        else:
            [said] = answers_in(record, NODE.encode())
            ours = json.loads(said.value or b"")
            if ours.get("answer") == "keep":  # the sample has the rest
                ours |= {name: step["record"][name] for name in OF_ITS_SAMPLE}
            assert ours == step["record"]
        assert record.timestamp_ms == place["logged_ms"]
    [window] = [step for step in body["steps"] if step["name"] == "window"]
    [sample] = [one["place"] for one in window["inputs"] if one["what"] == "sample"]
    record = alone(held(bootstrap, sample["topic"], partition))[sample["offset"]]
    assert record.value is not None
    assert json.loads(record.value)["now"][0] == window["record"]["seq"]


def test_every_eviction_of_a_pod_is_found_on_whichever_node_it_was(broker) -> None:
    broker.apply_topics()
    one = evicted(1, reason="SIGTERM", spent=Spent(evictions=1), node="alpha")
    other = evicted(2, reason="SIGTERM", spent=Spent(evictions=4), node="beta")
    alone(put(broker.bootstrap, one, other, evicted(3, "report-x2lqp", spent=Spent(evictions=1), node="beta")))
    body = explained("pod", "jobs/etl-x2lqp", "--bootstrap", broker.bootstrap)

    assert [(each["node"], each["spent"]) for each in body["evictions"]] == [("beta", 4), ("alpha", 1)]
    assert body["evictions"][0]["observed"] == "83% used, threshold 70%"
    [place] = body["evictions"][1]["places"]
    assert (place["topic"], place["partition"]) == (OUTCOME.name, partition_of("alpha", NODE_PARTITIONS))


def test_a_pod_is_found_by_the_newest_pod_list_where_no_figures_tell_of_it(broker) -> None:
    """No worker runs: its node's samples say where it is; a list that has it no more says that it is gone."""
    broker.apply_topics()
    old, new = keyframe(1, "alpha"), keyframe(2, "alpha", pods=[SERVICE])
    alone(put(broker.bootstrap, old, new, keyframe(1, "beta"), topic=SAMPLE))
    at = ("--bootstrap", broker.bootstrap)

    assert explained("pod", "jobs/batch", *at)["node"] == "beta"
    assert "pod.unmeasured" in findings(explained("pod", "shop/front", *at))
    alone(put(broker.bootstrap, keyframe(2, "beta", pods=[]), topic=SAMPLE))
    assert explain("pod", "jobs/batch", *at).returncode == 1


def test_what_nobody_knows_ends_with_1_and_the_names_that_are_near(broker) -> None:
    broker.apply_topics()
    alone(put(broker.bootstrap, evicted(1, node="alpha")))
    node = explain("node", "alpah", "--bootstrap", broker.bootstrap)
    pod = explain("pod", "jobs/nobody", "--bootstrap", broker.bootstrap)

    assert (node.returncode, pod.returncode) == (1, 1)
    assert f"{broker.bootstrap}: no topic has a record of node alpah; none is known" in node.stderr
    assert "kubectl get pod -n jobs nobody -o yaml | slacktide explain pod jobs/nobody --file -" in pod.stderr


def test_a_broker_without_topics_is_told_with_what_makes_them(embedded_broker) -> None:
    """Asking makes none."""
    done = explain("node", NODE, "--bootstrap", embedded_broker.bootstrap)

    assert done.returncode == 1
    assert SAMPLE.name in done.stderr
    assert f"slacktide topics apply --bootstrap {embedded_broker.bootstrap}" in done.stderr
    assert alone(describe_topics(embedded_broker.cluster, [SAMPLE.name])) == {}


def test_a_broker_that_does_not_answer_is_named() -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    done = explain("node", NODE, "--bootstrap", bootstrap)

    assert done.returncode == 1
    assert bootstrap.rpartition(":")[2] in done.stderr
    assert "check that the broker runs" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("pod", "no-namespace"), id="a pod without a namespace"),
        pytest.param(("node",), id="no name"),
        pytest.param(("node", NODE, "--since", "10"), id="a time span without a unit"),
        pytest.param(("node", NODE, "--since", "99999d"), id="a time before all clocks"),
        pytest.param(("node", "\udcff"), id="a node's name that is no UTF-8"),
        pytest.param(("pod", "jobs/\udcff"), id="a pod's name that is no UTF-8"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert explain(*arguments).returncode == 2


async def fill(bootstrap: str, stamps_ms: list[int]) -> None:
    """Outcomes of one node, logged at these times."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for seq, stamp_ms in enumerate(stamps_ms):
            await producer.send_and_wait(
                OUTCOME.name, encode(evicted(seq)), key=b"n", partition=0, timestamp_ms=stamp_ms
            )
    finally:
        await producer.stop()


async def test_a_tail_goes_back_as_far_as_is_asked_and_says_where_it_was_cut(broker) -> None:
    """By time also where the broker cannot look it up."""
    broker.apply_topics(settings=DATED_BY_CLIENTS)
    now_ms = time.time_ns() // 1_000_000
    await fill(broker.bootstrap, [now_ms - age_ms for age_ms in range(60_000, 0, -1_000)])
    place = (OUTCOME.name, 0)
    async with Tail(broker.cluster, 50, most=1_000) as reader:
        lately = await reader.read({place: now_ms - 10_500})
        whole = await reader.read({place: WHOLE, (POLICY.name, 0): WHOLE})
        none = await reader.read({place: WHOLE}, lambda _: False)
    async with Tail(broker.cluster, 50, most=4) as reader:
        cut = await reader.read({place: now_ms - 30_500})

    assert [record.offset for record in lately.records] == list(range(50, 60))
    assert lately.short == []
    assert [record.offset for record in whole.records] == list(range(60))
    assert [record.offset for record in cut.records] == list(range(56, 60))
    assert cut.short == [place]
    assert none.records == []
