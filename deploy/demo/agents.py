"""All agents of virtual nodes in one process: ``python -m slacktide.deploy.demo.agents FILE``.

FILE is JSON, see ``Plan``. Each node runs the same loop and cgroup code as ``slacktide agent``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from slacktide.agents.node import loop
from slacktide.agents.node.cgroup.kernel import CgroupKernel
from slacktide.agents.node.settings import LoopSettings
from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.logs import configure
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    cgroup_mount: str
    proc_mount: str
    kubepods: str
    state_folder: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The process's configuration."""

    bootstrap: Cluster
    inventory: str
    fetch_wait_ms: int
    nodes: list[PlannedNode]


async def run(plan: Plan, stop: asyncio.Event) -> None:
    """Run all agents until ``stop`` is set, or one fails."""
    async with asyncio.TaskGroup() as agents:
        for node in plan.nodes:
            agents.create_task(_agent(plan, node, stop), name=node.name)


async def _agent(plan: Plan, node: PlannedNode, stop: asyncio.Event) -> None:
    state = Path(node.state_folder)
    kernel = CgroupKernel(Path(node.cgroup_mount), Path(node.proc_mount), node.kubepods, state)
    settings = LoopSettings(
        node=node.name,
        bootstrap=plan.bootstrap,
        inventory=Path(plan.inventory),
        state_folder=state,
        fetch_wait_ms=plan.fetch_wait_ms,
    )
    try:
        await loop.run(kernel, settings, stop, Health())
    finally:
        kernel.close()


def main() -> None:
    """Read the plan and run it until a signal."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    for node in plan.nodes:
        Path(node.state_folder).mkdir(parents=True, exist_ok=True)
    configure("agents", "info", "human")
    process.until_stopped(lambda stop: run(plan, stop))


if __name__ == "__main__":
    main()
