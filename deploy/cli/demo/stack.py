"""The parts of Slacktide under the demo: broker, topics, publisher, stream worker, agents; each a real process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from slacktide.agents.kafka import create_topics
from slacktide.deploy.cli import main, tied
from slacktide.deploy.cli.broker import EmbeddedBroker
from slacktide.deploy.cli.demo.pods import DemoPod, inventory_yaml, policy_yaml
from slacktide.deploy.cli.demo.world import Machine

STOP_S = 4.0
LAST_WORDS_BYTES = 4_000


class OperatorFiles:
    """The operator's files: the policy, and each node's inventory. All nodes are alike."""

    def __init__(self, folder: Path, nodes: Sequence[str], machine: Machine) -> None:
        self.policy = folder / "policy.yaml"
        self.inventories = {node: folder / f"inventory-{node}.yaml" for node in nodes}
        self._machine = machine

    def write(self, pods: Sequence[DemoPod], *, suppress: bool) -> None:
        """Let inventory and policy say this; a file that says it already stays untouched."""
        _replace(self.policy, policy_yaml(suppress=suppress))
        for node, file in self.inventories.items():
            _replace(file, inventory_yaml(node, self._machine.capacity_milli, self._machine.mem_bytes, pods))


def _replace(file: Path, text: str) -> None:
    """At once, so that no watcher reads half a file."""
    if file.exists() and file.read_text() == text:
        return
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


class Part:
    """One process of the stack, its output in a log file."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        self._file: IO[bytes] = self.log.open("wb")
        self._process: subprocess.Popen[bytes] = tied.popen(
            [sys.executable, "-m", main.__name__, *arguments], stdout=self._file, stderr=subprocess.STDOUT
        )

    def trouble(self) -> str:
        """How it ended, with its last words; "" while it runs."""
        code = self._process.poll()
        return "" if code is None else f"the {self.name} ended with exit code {code}; it said: {self._last_line()}"

    async def stop(self) -> None:
        """End it in order."""
        await tied.end(self._process, STOP_S)
        self._file.close()

    def _last_line(self) -> str:
        lines = self.log.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing"


class Stack:
    """All parts, started in order and stopped in the reverse one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = EmbeddedBroker()
        self._parts: list[Part] = []

    @property
    def bootstrap(self) -> str:
        """Where the broker listens."""
        return self._broker.bootstrap

    async def start(self, agents: Sequence[Sequence[str]], files: OperatorFiles) -> None:
        """Start broker, topics, worker, then an agent for each list of arguments.

        Raises:
            SlacktideError: a part did not start.

        """
        await self._broker.start()
        await create_topics(self.bootstrap)
        raise NotImplementedError

    def trouble(self) -> str:
        """The first part that ended, in words; "" where all run."""
        if not self._broker.running:
            return "the broker ended"
        return next((trouble for part in self._parts if (trouble := part.trouble())), "")

    async def stop(self) -> None:
        """Stop all, agents first."""
        await asyncio.gather(*(part.stop() for part in reversed(self._parts)))
        await self._broker.stop()
