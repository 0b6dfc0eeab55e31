"""Sends a fleet's samples, each node once a second, all spread evenly: ``python -m bench.generator BROKER NODES``."""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiokafka import AIOKafkaProducer

from bench.fleet import FleetNode
from bench.log import POLICY_IN_FORCE
from slacktide.agents.clock import SystemClock
from slacktide.schemas.topics import SAMPLE


async def generate(bootstrap: str, count: int) -> None:
    """Until the process is ended."""
    clock = SystemClock()
    nodes = [FleetNode(number, POLICY_IN_FORCE) for number in range(count)]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1) as producer:
        turn, start_ns = 0, clock.mono_ns()
        while True:
            key, value, headers = nodes[turn % count].record(clock.wall_ms())
            await producer.send(SAMPLE.name, value, key, headers=headers)
            turn += 1
            await asyncio.sleep(max(0.0, turn / count - (clock.mono_ns() - start_ns) / 1e9))


def main() -> None:
    """Run until ended."""
    uvloop.run(generate(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
