"""Figures: the console's history of seven days and a thousand nodes asked for any moment, and followed live."""

from __future__ import annotations

import random
import statistics
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from bench.rig import Rig
from bench.rows import Row, judged, told
from slacktide.deploy.console.history.points import COUNTS, FINE, POINTS, STEPS_S, Block, empty, packed, rolled
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.recorder import TOPICS, Recorder
from slacktide.deploy.console.history.store import HORIZON_S, Store, block_key
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import Pod, revision_of
from slacktide.schemas.sample import PodUse
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.records import Record
from testbed.chains import Chain, outcome
from testbed.samples import START_MS, keyframe, sample

NODES, BRIEF_NODES = 1_000, 40
KINDS = 300
"""Blocks that differ; the others are these again."""
MOMENTS = 60
MOMENT_MS, MEMORY_MB = 300, 300
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
    """A generated file asked, then records followed."""
    nodes = BRIEF_NODES if rig.brief else NODES
    path = rig.folder / "history.db"
    rows_s, sizes = _generate(rig, path, nodes)
    return [*_asked(path, nodes), told("console: blocks written", f"{rows_s:,.0f} a second", n=nodes),
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
            with store._transaction():
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


def _asked(path: Path, nodes: int) -> Iterator[Row]:
    history, draw, took, cpu = History(path), random.Random(2), list[float](), list[float]()
    bounds = history.bounds()
    assert bounds.newest_ms is not None
    for _ in range(MOMENTS):
        at_ms = draw.randrange(bounds.newest_ms - HORIZON_S[60] * 1_000 + 3_600_000, bounds.newest_ms)
        began_s, cpu_s = time.monotonic(), time.process_time()
        rows = history.cluster_at(at_ms)
        took.append(1e3 * (time.monotonic() - began_s))
        cpu.append(1e3 * (time.process_time() - cpu_s))
        assert len(rows) == nodes
    text = f"p50 {statistics.median(took):.0f} ms, at most {max(took):.0f} ms; CPU at most {max(cpu):.0f} ms"
    yield judged("console: all nodes at any moment of 7 days", f"<= {MOMENT_MS} ms", text, n=MOMENTS,
                 met=max(took) <= MOMENT_MS, max_ms=max(took))  # fmt: skip
    for hours in (1, 24, 7 * 24):
        began_s = time.monotonic()
        series = history.node_series("node-0007", bounds.newest_ms - hours * 3_600_000, bounds.newest_ms, 600)
        spent_ms = 1e3 * (time.monotonic() - began_s)
        yield told(f"console: one node over {hours} h", f"{spent_ms:.0f} ms for {len(series.at_ms)} points", n=1)


def _followed(rig: Rig, nodes: int) -> Iterator[Row]:
    """Two minutes of samples, answers and outcomes of all nodes through recorder and store, in this process."""
    rig.say(f"console: following {nodes} nodes")
    store = Store(rig.folder / "followed.db")
    recorder, chain = Recorder(START_MS // 1_000, first=True), Chain(pods=_PODS)
    for seq in range(1, 30):
        chain.take(seq, pod_use=_USE)
    mine = [one for one in chain.records if one.topic in FOLLOWED]
    for number in range(nodes):  # what holds of each node is that of one
        for one in mine:
            recorder.take(_renamed(one, number) if one.key == b"node-1" else one, known=True)
    took_s = 0.0
    for seq in range(30, 150):
        records = list(_second(nodes, seq))
        began_s = time.process_time()
        for one in records:
            recorder.take(one)
        while recorder.minutes:
            store.add(recorder.minutes.pop(0))
        took_s += time.process_time() - began_s
    size_mb = psutil.Process().memory_info().rss / 1e6
    store.close()
    share = 100 * took_s / 120
    yield told("console: one core while following at 1 Hz, without the client", f"{share:.0f}%", n=nodes,
               core_pct=share)  # fmt: skip
    yield judged("console: memory", f"<= {MEMORY_MB} MB", f"{size_mb:.0f} MB", n=nodes, met=size_mb <= MEMORY_MB)


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
