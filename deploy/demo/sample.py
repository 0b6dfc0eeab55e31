"""Runs the demo's service and batch work without conditions, for ``slacktide up --sample``."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from slacktide.agents.clock import SystemClock
from slacktide.deploy.demo.agents import PlannedNode
from slacktide.deploy.demo.backend import Backend, DemoError
from slacktide.deploy.demo.conditions import spiky
from slacktide.deploy.demo.pods import inventory_yaml
from slacktide.deploy.demo.session import FOLDER, choose, sweep

log = logging.getLogger(__name__)
LOAD_S = 600.0
"""Period of the service's load."""
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The running workload, and how an agent finds it."""

    backend: Backend
    node: PlannedNode
    inventory: Path

    async def keep(self) -> None:
        """Play the service's load, and restart evicted batch work, until cancelled. Raises DemoError if that fails."""
        clock = SystemClock()
        seed, ends_s = 0, 0.0
        while True:
            now_s = clock.mono_ns() / 1e9
            if now_s >= ends_s:
                seed, ends_s = seed + 1, now_s + LOAD_S
                self.backend.play({self.node.name: spiky(seed, LOAD_S)}, seed, now_s)
            self.backend.served()  # drain the service's output, lest it blocks
            if trouble := self.backend.trouble():
                log.warning("sample: %s; starting the batch work again", trouble)
                await self.backend.enter("none")
                await self.backend.enter("besteffort")
                if still := self.backend.trouble():
                    raise DemoError(f"The sample stopped: {still}.")
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def sample() -> AsyncIterator[Sample]:
    """Start it in this machine's cgroups if possible, else on a virtual node; clean up at exit. Raises DemoError."""
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-") as folder:
        backend = choose(None, Path(folder), usual=1)
        try:
            await backend.open()
            await backend.enter("besteffort")
            (node,) = backend.planned()
            size, inventory = backend.machine, Path(folder) / "inventory.yaml"
            inventory.write_text(inventory_yaml(backend.nodes, size.capacity_milli, size.mem_bytes, backend.pods()))
            log.warning("sample: node %s with a service and batch work; %s", node.name, backend.why)
            yield Sample(backend=backend, node=node, inventory=inventory)
        finally:
            await backend.close()
