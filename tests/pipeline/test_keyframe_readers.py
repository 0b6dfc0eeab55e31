"""Whoever reads samples finds the list that they name, although its keyframe is not among the newest samples."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from slacktide.schemas.sample import PodPressure
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.kafka import partition_of
from testbed.brokers import DATED_BY_CLIENTS, EmbeddedBroker, KafkaBroker
from testbed.parts import SLACKTIDE
from testbed.samples import PODS, keyframe, sample
from testbed.stream_rig import PARTITIONS, Rig

WAITED_S = 8
"""How old the last sample is that has the pods' pressure."""
AGE_S = 45
"""Of 70: the commands take some seconds to start."""


@pytest.fixture
async def bootstrap(broker: EmbeddedBroker | KafkaBroker) -> AsyncIterator[str]:
    """A keyframe, and a sample a second since."""
    broker.apply_topics(PARTITIONS, DATED_BY_CLIENTS)
    now_ms = time.time_ns() // 1_000_000
    async with Rig(broker.bootstrap) as rig:
        for seq in range(1, AGE_S + 1):
            at_ms = now_ms - (AGE_S - seq) * 1_000
            waited = [PodPressure(uid=pod.uid, cpu_some_pct=12.5) for pod in PODS] if seq == AGE_S - WAITED_S else []
            taken = (keyframe if seq == 1 else sample)(seq, pod_pressure=waited)
            body = encoded(msgspec.structs.replace(taken, observed_ms=at_ms), PODS)
            await rig.put(SAMPLE.name, [(b"node-1", body, partition_of("node-1", PARTITIONS))], at_ms)
        yield broker.bootstrap


async def ran(*arguments: str) -> str:
    """What a command prints."""
    command = [SLACKTIDE, *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_they_find_it(bootstrap: str, tmp_path: Path) -> None:
    at, file = ("--bootstrap", bootstrap), tmp_path / "span.jsonl"
    lines, explained, _ = await asyncio.gather(
        ran("topics", "tail", "node.sample.v2", "--key", "node-1", "-n", "1", *at),
        ran("explain", "pod", "jobs/batch", "--output", "json", *at),
        ran("topics", "export", str(file), "--since", "2s", *at),
    )

    assert [line.split()[0] for line in lines.splitlines()[1:]] == ["shop/front", "jobs/batch"]
    assert json.loads(explained)["node"] == "node-1"
    assert "waited in 10 s: for CPU 12.5% of the time" in explained
    assert any('"pods":[' in line for line in file.read_text().splitlines())
