"""Chooses the nodes of the demo, and runs its workload without conditions, for ``slacktide up --sample``."""

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slacktide.agents.clock import SystemClock
from slacktide.deploy.demo.backend import DemoError
from slacktide.deploy.demo.conditions import Scenario, spiky
from slacktide.deploy.demo.groups import NoGroupsError
from slacktide.deploy.demo.pods import policy_yaml
from slacktide.deploy.demo.real import MemoryBackend, RealBackend, groups_here
from slacktide.deploy.demo.virtual import VirtualBackend

log = logging.getLogger(__name__)
Backend = RealBackend | VirtualBackend
FOLDER = "slacktide-demo-"
NODES_USUAL = 2
"""Default number of virtual nodes."""
LOAD_S = 600.0
"""Period of the service's load."""
POLL_S = 1.0


def choose(virtual_nodes: int | None, folder: Path, usual: int = NODES_USUAL, scenario: Scenario = "cpu") -> Backend:
    """Return the real machine if possible and not overridden, else virtual nodes.

    Raises NoGroupsError if the memory scenario has no real cgroups.
    """
    if scenario == "memory":
        groups = groups_here()
        try:
            return MemoryBackend(groups, folder)
        except NoGroupsError:
            groups.close()
            raise
    if virtual_nodes is not None:
        return VirtualBackend(virtual_nodes, folder, "as asked")
    try:
        return RealBackend(groups_here(), folder)
    except NoGroupsError as exc:
        return VirtualBackend(usual, folder, str(exc))


def sweep(folder: Path) -> None:
    """Remove leftovers of killed demos: the folder name has the process id."""
    for left in folder.glob(f"{FOLDER}*-*"):
        pid = left.name.removeprefix(FOLDER).partition("-")[0]
        if not pid.isdigit():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except PermissionError:  # it runs as another user
            continue


@contextmanager
def own_folder() -> Iterator[Path]:
    """Create a folder for this process's files, and remove it afterwards."""
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-") as folder:
        yield Path(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The running workload, and how an agent finds it."""

    backend: Backend
    node: str
    inventory: Path
    policy: Path
    """It limits by CPU use, so that limits change often."""

    async def keep(self) -> None:
        """Play the service's load, and restart evicted batch work, until cancelled. Raises DemoError if that fails."""
        clock = SystemClock()
        seed, ends_s = 0, 0.0
        while True:
            now_s = clock.mono_ns() / 1e9
            if now_s >= ends_s:
                seed, ends_s = seed + 1, now_s + LOAD_S
                self.backend.play({self.node: spiky(seed, LOAD_S)}, seed, now_s)
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
    with own_folder() as folder:
        backend = choose(None, folder, usual=1)
        try:
            await backend.open()
            await backend.enter("besteffort")
            (node,) = backend.nodes
            inventory = folder / "inventory.yaml"
            inventory.write_text(backend.inventory())
            policy = folder / "policy.yaml"
            policy.write_text(policy_yaml(suppress=True))
            log.warning("sample: node %s with a service and batch work; %s", node, backend.why)
            yield Sample(backend=backend, node=node, inventory=inventory, policy=policy)
        finally:
            await backend.close()
