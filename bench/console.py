"""Figures: the console's history of seven days and a thousand nodes asked for any moment, and followed live."""

import asyncio
import gzip
import random
import statistics
import time
import urllib.request
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
from aiohttp import ClientSession, ClientTimeout, TCPConnector

from bench.rig import Rig
from bench.rows import Row, judged, told
from slacktide.deploy.console.history.file import block_key, transaction
from slacktide.deploy.console.history.points import COUNTS, FINE, POINTS, STEPS_S, Block, empty, packed, rolled
from slacktide.deploy.console.history.recorder import TOPICS
from slacktide.deploy.console.history.store import HORIZON_S, Store
from slacktide.deploy.console.run import FILE
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.inventory import Pod, revision_of
from slacktide.schemas.sample import PodUse
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, Record
from testbed.brokers import EmbeddedBroker, running
from testbed.chains import Chain, outcome
from testbed.console import console
from testbed.samples import START_MS, keyframe, sample

NODES, BRIEF_NODES = 1_000, 40
KINDS = 300
"""Blocks that differ; the others are these again."""
MOMENTS = 60
MOMENT_MS, MEMORY_MB = 300, 300
FOLLOWED_S, SETTLED_S = 150, 20
VIEWERS = 50
PODS = 30
_PODS = [
    Pod(uid=f"0a1b2c3d-0000-4000-8000-{at:012d}", namespace="jobs" if at % 3 else "shop", name=f"pod-{at}",
        qos_label="BE" if at % 3 else "", kube_qos="BestEffort" if at % 3 else "Burstable")
    for at in range(PODS)
]  # fmt: skip
_USE = [
    PodUse(uid=one.uid, cpu_milli=30, mem_bytes=1 << 28, best_effort_group=one.kube_qos == "BestEffort")
    for one in _PODS
]
FOLLOWED = frozenset(topic.name for topic in TOPICS)
_STEADY = {
    "state", "severity", "why", "policy", "boot", "origin", "sample_topic",
    "ceiling_cpu_milli", "capacity_cpu_milli", "capacity_mem_bytes", *COUNTS[2:],
}  # fmt: skip
_SELDOM = {"sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli", "requested_mem_bytes", "limit_cpu_milli"}


def measure(rig: Rig) -> list[Row]:
    """A generated file asked over HTTP, then a broker followed by a console with a viewer."""
    nodes = BRIEF_NODES if rig.brief else NODES
    path = rig.folder / "asked" / FILE
    path.parent.mkdir()
    rows_s, sizes = _generate(rig, path, nodes)
    return [*_asked(path.parent, nodes), told("console: blocks written", f"{rows_s:,.0f} a second", n=nodes),
            told("console: size at 1 Hz", ", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in sizes.items()),
                 n=nodes), *_followed(rig, nodes)]  # fmt: skip


def _generate(rig: Rig, path: Path, nodes: int) -> tuple[float, dict[str, float]]:
    """Seven days in all three resolutions; blocks a second, and bytes of a day of each."""
    draw = random.Random(1)
    fine = [_block(draw) for _ in range(KINDS)]
    tens = [rolled(draw.choices(fine, k=10), 1, 10) for _ in range(KINDS // 3)]
    hours = [rolled(draw.choices(tens, k=6), 10, 60) for _ in range(KINDS // 3)]
    store, end_s = Store(path, size_bytes_max=1 << 40), START_MS // 3_600_000 * 3_600
    db, count, sizes = store._db, 0, {}
    db.executemany("INSERT INTO node VALUES (?, ?)", ((at + 1, f"node-{at:04d}") for at in range(nodes)))
    began_s = time.monotonic()
    for step_s, kinds in zip(STEPS_S, (fine, tens, hours), strict=True):
        rig.say(f"console: writing {HORIZON_S[step_s] // 3_600} h of {nodes} nodes at {step_s} s")
        blobs, before = [packed(block) for block in kinds], path.stat().st_size
        for begin in range(end_s - HORIZON_S[step_s], end_s, step_s * POINTS):
            rows = ((block_key(begin, step_s, at + 1), *blobs[draw.randrange(len(blobs))]) for at in range(nodes))
            with transaction(db):
                db.executemany(f"INSERT INTO p{step_s} VALUES (?, ?, ?)", rows)
            count += nodes
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes[f"{step_s} s for {HORIZON_S[step_s] // 3_600} h"] = float(path.stat().st_size - before)
    for name, value in (("newest_s", end_s), ("rolled_10", end_s), ("rolled_60", end_s)):
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
    store.close()
    return count / (time.monotonic() - began_s), sizes


def _block(draw: random.Random) -> Block:
    """A minute of one node whose figures walk: no two seconds alike, as little compressible as real ones."""
    block = empty(1)
    for name, column in zip(FINE, block, strict=True):
        value, width = draw.randrange(2_000, 30_000), 400
        if "mem_bytes" in name:
            value, width = draw.randrange(1 << 33, 1 << 37) // 4_096, 1 << 10
        for slot in range(POINTS):
            if name.endswith("_offset") or name == "seq":
                value += draw.randrange(60, 110) if name != "seq" else 1
            elif name not in _STEADY and (name not in _SELDOM or draw.random() < 0.2):
                value = max(0, value + draw.randrange(-width, width))
            column[slot] = value * (4_096 if "mem_bytes" in name else 1)
        if name == "present":
            column[:] = array("q", [1]) * POINTS
        elif name in _STEADY or name in COUNTS:
            column[:] = array("q", [0]) * POINTS
    return block


def _asked(folder: Path, nodes: int) -> Iterator[Row]:
    """By a viewer over HTTP, as a browser asks: the answer is packed JSON."""
    with console(folder, "127.0.0.1:1", store=folder) as url:
        process = _process()
        newest_ms = int(_get(f"{url}/api/cluster")["at_ms"])
        yield from _moments(url, process, newest_ms, nodes)
        for hours in (1, 24, 7 * 24):
            took_ms, _, answer = _timed(
                process, f"{url}/api/node?node=node-0007&span={hours * 3_600_000}&at={newest_ms}"
            )
            points = len(answer["series"]["t_ms"])
            yield told(f"console: one node over {hours} h", f"{took_ms:.0f} ms for {points} points", n=1)


def _moments(url: str, process: psutil.Process, newest_ms: int, nodes: int) -> Iterator[Row]:
    draw, took, cpu = random.Random(2), list[float](), list[float]()
    for _ in range(MOMENTS):
        at_ms = draw.randrange(newest_ms - HORIZON_S[60] * 1_000 + 3_600_000, newest_ms)
        took_ms, cpu_ms, answer = _timed(process, f"{url}/api/cluster?at={at_ms}")
        took.append(took_ms)
        cpu.append(cpu_ms)
        assert len(answer["columns"]["node"]) == nodes
    text = (
        f"p50 {statistics.median(took):.0f} ms, at most {max(took):.0f} ms; "
        f"CPU of the console {statistics.mean(cpu):.0f} ms on average"
    )
    yield judged("console: all nodes at any moment of 7 days, over HTTP", f"<= {MOMENT_MS} ms", text, n=MOMENTS,
                 met=max(took) <= MOMENT_MS, max_ms=max(took))  # fmt: skip


def _timed(process: psutil.Process, url: str) -> tuple[float, float, Any]:
    """Milliseconds by the clock until the answer is there, of the console's CPU, and the answer."""
    before, began_s = process.cpu_times(), time.monotonic()
    answer = _get(url)
    took_ms, after = 1e3 * (time.monotonic() - began_s), process.cpu_times()
    return took_ms, 1e3 * (after.user + after.system - before.user - before.system), answer


def _process() -> psutil.Process:
    """The console's, which this one started."""
    return next(one for one in psutil.Process().children() if "console" in one.cmdline())


def _get(url: str) -> Any:
    asked = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        body = answer.read()
    return msgspec.json.decode(gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body)


def _followed(rig: Rig, nodes: int) -> Iterator[Row]:
    """Samples and outcomes of all nodes, one a second, over a broker: the whole process, with its viewers."""
    rig.say(f"console: following {nodes} nodes for {FOLLOWED_S} s")
    (rig.folder / "followed").mkdir()
    with running(EmbeddedBroker) as broker:
        broker.apply_topics()
        with console(rig.folder / "followed", broker.bootstrap) as url:
            process = _process()
            sizes, core_pct, took_ms = asyncio.run(_put(broker.cluster, process, url, nodes))
    yield told(f"console: one core while following at 1 Hz, all of the process, {VIEWERS} viewers", f"{core_pct:.0f}%",
               n=nodes, core_pct=core_pct)  # fmt: skip
    text = f"p50 {statistics.median(took_ms):.0f} ms, p95 {statistics.quantiles(took_ms, n=20)[-1]:.0f} ms"
    yield told(f"console: the live cluster for each of {VIEWERS} viewers, all asking at once", text, n=len(took_ms))
    size_mb = max(sizes) / 1e6
    yield judged("console: memory of the process while it follows", f"<= {MEMORY_MB} MB", f"{size_mb:.0f} MB", n=nodes,
                 met=size_mb <= MEMORY_MB)  # fmt: skip


async def _put(cluster: Cluster, process: psutil.Process, url: str, nodes: int) -> tuple[list[int], float, list[float]]:
    """A second of records each second, and viewers; the console's sizes, its share of a core, how long answers took."""
    chain, mine = Chain(pods=_PODS), list[Record]()
    for seq in range(1, 30):
        chain.take(seq, pod_use=_USE)
    newest = {(one.topic, one.key): one for one in chain.records if one.topic in FOLLOWED and one.topic != SAMPLE.name}
    for number in range(nodes):
        mine += [_renamed(one, number) for one in newest.values() if one.key == b"node-1"]
    mine += [one for one in newest.values() if one.key != b"node-1"]
    sender, sizes = Sender(cluster, client_id="bench", acks="1", timeout_s=30), list[int]()
    await sender.connect(sorted({SAMPLE.name, OUTCOME.name, *(one.topic for one in mine)}))
    await _send(sender, mine)
    spent_s, settled_s, began_s, took_ms = 0.0, 0.0, time.monotonic(), list[float]()
    viewers = []
    session = ClientSession(url, connector=TCPConnector(limit=0), auto_decompress=False)
    for second in range(FOLLOWED_S):
        await _send(sender, list(_second(nodes, 30 + second)))
        if second == SETTLED_S:
            answer = await asyncio.to_thread(_get, f"{url}/api/cluster")
            assert len(answer["columns"]["node"]) == nodes
            viewers = [asyncio.create_task(_view(session, took_ms)) for _ in range(VIEWERS)]
            spent_s, settled_s = sum(process.cpu_times()[:2]), time.monotonic()
        sizes.append(process.memory_info().rss)
        await asyncio.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
    spent_s = sum(process.cpu_times()[:2]) - spent_s
    await sender.close()
    assert not [one for one in viewers if one.done()]
    for one in viewers:
        one.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    await session.close()
    return sizes, 100 * spent_s / (time.monotonic() - settled_s), took_ms


async def _view(session: ClientSession, took_ms: list[float]) -> None:
    """Follow ticks, and ask for all nodes at each, as the page of the cluster does."""
    async with session.get("/api/ticks", timeout=ClientTimeout(total=None)) as ticks:
        async for line in ticks.content:
            if line.startswith(b"data"):
                began_s = time.monotonic()
                async with session.get("/api/cluster") as answer:
                    assert len(await answer.read()) > 0
                took_ms.append(1e3 * (time.monotonic() - began_s))


async def _send(sender: Sender, records: Sequence[Record]) -> None:
    await sender.send([Out(topic=one.topic, key=one.key, value=one.value) for one in records])


def _renamed(record: Record, number: int) -> Record:
    name = f"node-{number:04d}".encode()
    value = None if record.value is None else record.value.replace(b'"node-1"', b'"' + name + b'"')
    return msgspec.structs.replace(record, key=name, value=value)


def _second(nodes: int, seq: int) -> Iterator[Record]:
    """Of each node a sample and what came of it; every fifth changes the limit."""
    revision = revision_of(_PODS)
    for number in range(nodes):
        name, at_ms = f"node-{number:04d}", START_MS + seq * 1_000
        changes = {"pod_use": _USE, "pods_revision": revision, **({"pods": _PODS} if seq % 60 == number % 60 else {})}
        taken = (keyframe if "pods" in changes else sample)(seq, name, **changes)
        done = outcome(seq, node=name, result="applied" if seq % 5 == number % 5 else "unchanged")
        for topic, body in ((SAMPLE, taken), (OUTCOME, done)):
            yield Record(topic=topic.name, partition=number % 12, offset=seq, timestamp_ms=at_ms,
                         key=name.encode(), value=encode(body))  # fmt: skip
