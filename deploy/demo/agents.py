"""All agents of virtual nodes in one process.

``python -m slacktide.deploy.demo.agents BOOTSTRAP INVENTORY FOLDER NODE …``: FOLDER has a folder per node. Each node
runs the same loop and cgroup code as ``slacktide agent``.
"""

import asyncio
import sys
from contextlib import closing
from pathlib import Path

from slacktide.agents.node import loop
from slacktide.agents.node.cgroup.kernel import CgroupKernel
from slacktide.agents.node.settings import LoopSettings
from slacktide.deploy.demo.virtual import place_of
from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.broker import FETCH_WAIT_MS
from slacktide.deploy.runtime.process import configure
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health


async def run(bootstrap: Cluster, inventory: Path, folders: list[Path], stop: asyncio.Event) -> None:
    """Run all agents until ``stop`` is set, or one fails."""
    async with asyncio.TaskGroup() as agents:
        for folder in folders:
            agents.create_task(_agent(bootstrap, inventory, folder, stop), name=folder.name)


async def _agent(bootstrap: Cluster, inventory: Path, folder: Path, stop: asyncio.Event) -> None:
    place = place_of(folder)
    place.state_folder.mkdir(parents=True, exist_ok=True)
    settings = LoopSettings(
        node=folder.name,
        bootstrap=bootstrap,
        inventory=inventory,
        state_folder=place.state_folder,
        fetch_wait_ms=FETCH_WAIT_MS,
    )
    kernel = CgroupKernel(place.cgroup_mount, place.proc_mount, place.kubepods, place.state_folder)
    with closing(kernel):
        await loop.run(kernel, settings, stop, Health())


def main() -> None:
    """Run them until a signal."""
    bootstrap, inventory, folder, *nodes = sys.argv[1:]
    folders = [Path(folder) / node for node in nodes]
    configure("agents", "info", "human")
    process.until_stopped(lambda stop: run(Cluster(bootstrap), Path(inventory), folders, stop))


if __name__ == "__main__":
    main()
