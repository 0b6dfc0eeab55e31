"""Nodes whose latency-sensitive load moves by the clock, and steps when told: ``python -m bench.tides --help``.

Load is a function of node and time alone, so that whoever judges placements afterwards knows it, too.
"""

import argparse
import asyncio
import math
import random
from pathlib import Path
from typing import Any, ClassVar

import uvloop
import yaml

from bench.fleet import CAPACITY, PODS, FleetNode
from bench.generator import SLICE_S
from bench.send import batches
from bench.stamp import SYSTEM_MILLI, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas import policy as policies
from slacktide.schemas.inventory import Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import SAMPLE

BASE_PART = 0.10, 0.50
"""Of a node's CPU, by node."""
TIDE_PART, TIDE_S = 0.12, 240.0
STEP_PART, STEPPED_EACH = 0.30, 10
"""The load step, and that it is every tenth node's."""
CPU_MILLI = CAPACITY.cpu_milli or 0
CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {
        "colocation-config": '{"enable": true, "metricAggregateDurationSeconds": 2}',
        "resource-threshold-config": '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}',
    },
}
"""Averages over 2 s: what a scheduler shall see within 2 s cannot be an average over 5 minutes."""


def load_milli(number: int, now_ms: int, step_ms: int | None = None) -> int:
    """What a node's pods and system use at a time; with a step, every tenth one's from then on."""
    dice = random.Random(number)
    base, phase = dice.uniform(*BASE_PART), dice.random()
    part = base + TIDE_PART * math.sin(2 * math.pi * (now_ms / 1_000 / TIDE_S + phase))
    if step_ms is not None and number % STEPPED_EACH == 0 and now_ms >= step_ms:
        part += STEP_PART
    return max(SYSTEM_MILLI + PODS, round(part * CPU_MILLI))


class _ServiceNode(FleetNode):
    """All its pods are services: batch pods come by the scheduler."""

    def _pod(self, place: int) -> Pod:
        return super()._pod(3 * place + 1)


class TidalNode(StampedNode):
    """A node whose pods share its load evenly."""

    KIND = _ServiceNode
    step_ms: ClassVar[int | None] = None

    def pods_cpu_milli(self, now_ms: int) -> list[int]:
        """An equal share each."""
        return [(load_milli(self._number, now_ms, self.step_ms) - SYSTEM_MILLI) // PODS] * PODS

    def pods_mem_bytes(self) -> list[int]:
        """As services do, each keeps what it has; else there would be news of every node every second."""
        return self._mem_bytes


def policy() -> Policy:
    """What the ConfigMap says."""
    return policies.parse(CONFIG_MAP, "the bench's policy").policy


async def _generate(bootstrap: str, nodes: list[TidalNode], each_s: float, step: Path) -> None:
    clock = SystemClock()
    async with batches(bootstrap, SAMPLE.name) as out:
        start_ns, sent = clock.mono_ns(), 0
        while True:
            await asyncio.sleep(SLICE_S)
            TidalNode.step_ms = _told(step)
            due = int((clock.mono_ns() - start_ns) / 1e9 / each_s * len(nodes))
            now_ms = clock.wall_ms()
            for turn in range(max(sent, due - len(nodes)), due):  # what a stall made late is left out
                await out.add(nodes[turn % len(nodes)].stamp(now_ms, round(each_s * 1_000)))
            await out.flush()
            sent = due


def _told(step: Path) -> int | None:
    text = step.read_text()
    return int(text) if text else None


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser(description="Send samples of nodes whose load moves.")
    parser.add_argument("bootstrap", metavar="BROKER")
    parser.add_argument("nodes", type=int)
    parser.add_argument("--each", type=float, default=1.0, metavar="SECONDS", help="how often each node reports")
    parser.add_argument("--step", type=Path, required=True, metavar="FILE", help="holds the time of a step, UTC ms")
    asked = parser.parse_args()
    in_force = policy()
    nodes = [TidalNode(number, in_force) for number in range(asked.nodes)]
    uvloop.run(_generate(asked.bootstrap, nodes, asked.each, asked.step))


def config_map() -> str:
    """The policy as it is applied."""
    return yaml.safe_dump(CONFIG_MAP)


if __name__ == "__main__":
    main()
