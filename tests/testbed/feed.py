"""Nodes under load on a worker's rig, and what must hold of their answers whatever broke meanwhile."""

import asyncio
import itertools
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from slacktide.schemas.command import NodeCommand
from slacktide.schemas.sample import NodeSample
from testbed.history.answers import decided
from testbed.samples import keyframe, sample
from testbed.stream_rig import Rig, until

NODES = [f"node-{number}" for number in range(4)]
EVERY_S = 0.01


class Feed:
    """Nodes that send a sample every 10 ms each, until told to stop."""

    def __init__(self, rig: Rig, nodes: Sequence[str] = NODES, every_s: float = EVERY_S) -> None:
        self._rig = rig
        self._nodes = nodes
        self._every_s = every_s
        self._task = asyncio.create_task(self._run())
        self.sent: list[NodeSample] = []

    async def _run(self) -> None:
        for seq in itertools.count(1):
            samples = [keyframe(seq, node) if seq == 1 else sample(seq, node) for node in self._nodes]
            await self._rig.send(samples)
            self.sent += samples
            await asyncio.sleep(self._every_s)

    async def stop(self) -> list[NodeSample]:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.sent


def agree(answers: Mapping[object, Sequence[NodeCommand]]) -> bool:
    return all(len({decided(each) for each in several}) == 1 for several in answers.values())


@dataclass(slots=True)
class Workers:
    """Workers of a rig, each a process of its own; killed at the end."""

    rig: Rig
    _running: dict[str, subprocess.Popen[bytes]]

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._running = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def start(self, name: str) -> int:
        self._running[name] = self.rig.process(name)
        return self._running[name].pid

    def tell(self, name: str, what: signal.Signals) -> None:
        self._running[name].send_signal(what)
        if what == signal.SIGKILL:
            self._running[name].wait()

    async def answering(self, *names: str, last: int = 50) -> None:
        await until(lambda: self._lately(last) == set(names), f"{', '.join(names)} answer")

    def _lately(self, last: int) -> set[str]:
        return {several[-1].worker for several in itertools.islice(reversed(self.rig.answers.values()), last)}
