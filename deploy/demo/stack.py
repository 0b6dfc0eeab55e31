"""Runs Slacktide's processes in the demo: broker, topics, publisher, stream worker, agents."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml

from slacktide.agents.clock import Clock
from slacktide.agents.files import write_whole
from slacktide.agents.publisher import Publisher
from slacktide.deploy.demo.pods import policy_yaml
from slacktide.deploy.demo.workload import Backend
from slacktide.deploy.runtime import child_process, console_process
from slacktide.deploy.runtime.broker import SAMPLES_WAIT_MS, SESSION_S, EmbeddedBroker
from slacktide.deploy.runtime.supervisor import PROGRAM, how
from slacktide.schemas.connection import Cluster
from slacktide.schemas.kubernetes import described
from slacktide.schemas.policy import parse
from slacktide.streams.kafka import create_topics

STOP_S = 4.0
LAST_WORDS_BYTES = 4_000


class Part:
    """One process with a log file, which is not restarted."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        """Start the module in ``arguments[0]`` with the other arguments."""
        self.name = name
        self._log = folder / f"{name.replace(' ', '-')}.log"
        with self._log.open("wb") as log:
            # Its files are deleted with the demo's folder, even if it is killed.
            self._process: subprocess.Popen[bytes] = child_process.popen(
                [sys.executable, "-P", "-m", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"TMPDIR": str(folder)},
            )

    def trouble(self) -> str:
        """Return how the process ended, with its last output; "": it runs."""
        if (code := self._process.poll()) is None:
            return ""
        lines = self._log.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip().splitlines()
        return f"the {self.name} ended ({how(code)}); its last output: {lines[-1] if lines else 'nothing'}"

    async def stop(self) -> None:
        """Stop it gracefully."""
        await child_process.end(self._process, STOP_S)


class Stack:
    """All processes, started in order and stopped in reverse."""

    def __init__(self, backend: Backend, folder: Path, clock: Clock, *, console: bool = False) -> None:
        self._backend = backend
        self._folder = folder
        self._clock = clock
        self._with_console = console
        self.console = ""
        """The console's address, or why there is none."""
        self._broker = EmbeddedBroker()
        self._parts: list[Part] = []
        self._consoles: list[Part] = []
        self._publisher: Publisher | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._inventory = folder / "inventory.yaml"

    @property
    def running(self) -> bool:
        """Return whether the processes were started."""
        return bool(self._parts)

    @property
    def bootstrap(self) -> Cluster:
        """Return the broker's address."""
        return self._broker.bootstrap

    async def start(self) -> None:
        """Start broker, topics, publisher, worker and agents. Raises SlacktideError if a process did not start."""
        await self._broker.start()
        topics = partial(create_topics, self.bootstrap)
        await topics()
        self._publisher = Publisher(
            self.bootstrap, ensure_topics=topics, now_ms=self._clock.wall_ms, node_source="open"
        )
        self.publish(suppress=False)
        self._publishing = asyncio.create_task(self._publisher.run(self._stop), name="publisher")
        worker = [
            PROGRAM, "stream", "--bootstrap", str(self.bootstrap), "--fetch-wait-ms", str(SAMPLES_WAIT_MS),
            "--session-timeout", str(SESSION_S), "--metrics-port", "0",
        ]  # fmt: skip
        self._parts.append(Part("stream worker", worker, self._folder))
        self._parts.append(Part("agent", self._backend.agents(self.bootstrap, self._inventory), self._folder))
        if self._with_console and console_process.is_installed():
            port = console_process.usual_port()
            arguments = console_process.console_arguments(self.bootstrap, self._folder / "console", port)
            self._consoles.append(Part("console", [PROGRAM, *arguments], self._folder))
            self.console = f"console: {console_process.url_of(port)}"
        elif self._with_console:
            self.console = console_process.LACKING

    def publish(self, *, suppress: bool) -> None:
        """Publish policy and inventory: to the operator's files, and directly to Kafka.

        ``suppress``: whether the policy limits best-effort work.
        """
        assert self._publisher is not None
        policy, inventory = policy_yaml(suppress=suppress), self._backend.inventory()
        write_whole(self._folder / "policy.yaml", policy.encode())
        write_whole(self._inventory, inventory.encode())
        self._publisher.policy(parse(yaml.safe_load(policy), "policy.yaml").policy)
        document = yaml.safe_load(inventory)
        for node in self._backend.nodes:
            self._publisher.inventory(described(document, self._inventory.name, node).facts)

    def trouble(self) -> str:
        """Return which process ended first; "": all run."""
        if self._parts and not self._broker.running:
            return "the broker ended"
        if self._publishing is not None and self._publishing.done():
            return "the publisher ended"
        return next((trouble for part in self._parts if (trouble := part.trouble())), "")

    async def stop(self) -> None:
        """Stop all, the broker last."""
        self._stop.set()
        await asyncio.gather(*(part.stop() for part in [*self._parts, *self._consoles]))
        if self._publishing is not None:
            await asyncio.gather(self._publishing, return_exceptions=True)
        await self._broker.stop()
