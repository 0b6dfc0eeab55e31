"""For information: samples a worker answers per CPU second when it is behind, both shells on the same backlog."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from bench import log, loop
from bench.fleet import FleetNode, Raw
from bench.rig import Rig
from bench.rows import Row, told
from slacktide.agents.clock import SystemClock
from slacktide.schemas.topics import COMMAND, SAMPLE

SAMPLES, NODES = 20_000, 200
WITHIN_S = 90.0


def measure(rig: Rig) -> list[Row]:
    """The worker is held by SIGSTOP while the backlog is written, well within its session."""
    rig.say(f"throughput: making {SAMPLES} samples of {NODES} nodes")
    records = backlog()
    rates = {shell: _run(rig, shell, records) for shell in loop.SHELLS}
    ratio = rates["faust"] / rates["plain"]
    bytes_each = sum(len(value) for _, value, _ in records) / len(records)
    said = f"Faust {rates['faust']:,.0f}, plain {rates['plain']:,.0f} samples/s per CPU second: {ratio:.2f} x"
    return [
        told(
            f"worker at a backlog of {SAMPLES:,}",
            f"{said}; {bytes_each:.0f} B a sample",
            n=SAMPLES,
            ratio=ratio,
            **rates,
        )
    ]


def backlog() -> list[Raw]:
    """Samples that end now, in the order in which they would have come."""
    rounds = SAMPLES // NODES
    start_ms = SystemClock().wall_ms() - rounds * 1000
    nodes = [FleetNode(number, log.POLICY_IN_FORCE) for number in range(NODES)]
    return [node.record(start_ms + second * 1000) for second in range(rounds) for node in nodes]


def _run(rig: Rig, shell: loop.Shell, records: list[Raw]) -> float:
    bootstrap = rig.kafka().bootstrap
    rig.say(f"throughput: {loop.TITLES[shell]} worker")
    with loop.worker(rig, bootstrap, shell) as worker:
        asyncio.run(_write(bootstrap, records[:NODES]))
        log.wait_for_end(bootstrap, COMMAND, NODES, WITHIN_S, worker)
        worker.process.suspend()
        try:
            asyncio.run(_write(bootstrap, records[NODES:]))
        finally:
            worker.process.resume()
        cpu_s = worker.cpu_s()
        log.wait_for_end(bootstrap, COMMAND, len(records), WITHIN_S, worker)
        return (len(records) - NODES) / (worker.cpu_s() - cpu_s)


async def _write(bootstrap: str, records: list[Raw]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=5, max_batch_size=1 << 19) as producer:
        for key, value, headers in records:
            await producer.send(SAMPLE.name, value, key, headers=headers)
        await producer.flush()
