"""`slacktide savings` on a live log, on both brokers: the log, its export and its offsets give the same figures."""

import concurrent.futures
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import Resources, revision_of
from slacktide.schemas.knob import pod_group
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.topics import OUTCOME
from testbed.samples import BATCH, BOOT, FACTS, GIB, SERVICE, START_MS, SUPPRESS, sample
from testbed.stream_rig import PARTITIONS, Rig, partition_of

NODES = ("node-1", "node-2", "node-3")
REQUESTS = Resources(batch_cpu_milli=4_000, batch_mem_bytes=GIB)
PODS = [SERVICE, msgspec.structs.replace(BATCH, requests=REQUESTS)]
CARRIED: dict[str, Any] = {"facts": FACTS, "pods": PODS}
SAMPLES = [
    sample(seq, node, pods_revision=revision_of(PODS), **(CARRIED if seq % 5 == 1 else {}))
    for seq in range(1, 21)
    for node in NODES
]
EVICTED = NodeOutcome(
    node="node-2", boot_id=BOOT, seq=20, command_id="c", rule="BEMemoryEvict", target=pod_group("be"), origin="stream",
    result="applied", policy_version="", observed_ms=START_MS, acted_ms=START_MS, age_ms=70,
    pod=PodName(namespace="jobs", name="batch"), spent=Spent(evictions=1),
)  # fmt: skip
CORE_H = 3_600.0
"""Core-seconds."""


def slacktide(*arguments: str | Path) -> str:
    """Call the command line, in a thread: it brings a loop of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        done = thread.submit(CliRunner().invoke, cli, list(map(str, arguments))).result()
    assert done.exit_code == 0, done.output
    return done.stdout


async def test_a_live_log_its_export_and_its_offsets_give_the_same_figures(broker, tmp_path: Path) -> None:
    """Each batch pod uses half a CPU and requests 4 of the 2 CPUs that are left: half of its use is a gain."""
    broker.apply_topics(PARTITIONS)
    async with Rig(broker.bootstrap) as rig:
        await rig.publish(SUPPRESS)
        await rig.send(SAMPLES)
        await rig.put(OUTCOME.name, [(b"node-2", encode(EVICTED), partition_of("node-2"))])
        live = slacktide("savings", "--bootstrap", broker.bootstrap, "-o", "json")
        made = json.loads(live)
        used, lost = 3 * 20 * 0.5 / CORE_H, 20 * 0.5 / CORE_H
        cpu = made["all"]["cpu"]
        assert [cpu[name] for name in ("used", "gained", "lost", "net")] == pytest.approx(
            [used, used / 2, lost, used / 2 - lost]
        )
        assert (made["all"]["evictions"], made["all"]["evicting"]["p50_ms"]) == (1, 70)

        slacktide("topics", "export", tmp_path / "day.jsonl.gz", "--bootstrap", broker.bootstrap)
        (tmp_path / "answer.json").write_text(live)
        await rig.send([sample(21, node, pods_revision=revision_of(PODS)) for node in NODES])
    metrics = tmp_path / "savings.prom"
    file = json.loads(slacktide("savings", tmp_path / "day.jsonl.gz", "-o", "json", "--prometheus-textfile", metrics))
    again = ("savings", "--from-offsets", tmp_path / "answer.json", "-o", "json")

    assert [file[name] for name in ("all", "nodes", "read")] == [made[name] for name in ("all", "nodes", "read")]
    assert slacktide(*again, tmp_path / "day.jsonl.gz") == live
    assert slacktide(*again, "--bootstrap", broker.bootstrap) == live

    net = re.findall(
        r'^slacktide_savings_core_seconds{kind="net",node="node-\d"} (.+)$', metrics.read_text(), re.MULTILINE
    )
    assert sum(map(float, net)) == pytest.approx(cpu["net"] * CORE_H)
