"""The agent's kernel and spool, watched: each act is told to the checker, may fail, and may be the agent's last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from slacktide.agents.node.interfaces import BestEffortPods, Reading
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, Missing
from testbed.virtual.best_effort import VirtualBestEffort
from testbed.virtual.kernel import VirtualKernel

if TYPE_CHECKING:
    from sim.node import Node


class CrashError(BaseException):
    """The agent's process is killed, here and now."""


@contextmanager
def perhaps_the_last(node: Node) -> Iterator[None]:
    """An act: the agent may be killed before it, and after it."""
    _step(node)
    yield
    _step(node)


def _step(node: Node) -> None:
    if node.crash_in is None:
        return
    node.crash_in -= 1
    if node.crash_in <= 0:
        node.crash_in = None
        raise CrashError


class WatchedKernel:
    """A virtual kernel whose every change is seen, and which sometimes refuses."""

    def __init__(self, node: Node) -> None:
        self.refuses = False
        self.hides = False
        self._node = node
        self.restart()

    def restart(self) -> None:
        """Rates begin anew."""
        self._inner = VirtualKernel(self._node.machine)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, mono_ns: int) -> Reading:
        self._node.advance()
        reading = self._inner.read(mono_ns)
        if not self.hides:
            return reading
        return Reading(
            interval_ms=reading.interval_ms,
            use=msgspec.structs.replace(reading.use, cpu_milli=None),
            pod_use=reading.pod_use,
            limits=None,
            missing=[Missing(what="node cpu", why="hidden"), Missing(what="limits", why="hidden")],
        )

    @property
    def best_effort(self) -> BestEffortPods:
        return WatchedBestEffort(self._node)

    def limits(self) -> Limits:
        if self.hides:
            raise CgroupError("cpu.max", "hidden")
        return self._inner.limits()

    def hold(self, limits: Limits) -> None:
        node = self._node
        with perhaps_the_last(node):
            node.advance()
            node.world.checker.acts(node)
            before = self._inner.limits()
            if not self.refuses:
                self._inner.hold(limits)
            node.world.checker.held(node, before, limits, refused=self.refuses)
            if self.refuses:
                raise CgroupError("cpu.max", "refused")


class WatchedBestEffort:
    """A virtual machine's best-effort pods, of which each act is seen, and sometimes refused."""

    freeze_trouble = ""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._inner = VirtualBestEffort(node.machine)
        self.frozen, self.memory = self._inner.frozen, self._inner.memory

    def processes(self, uid: str) -> int:
        self._node.advance()
        return self._inner.processes(uid)

    def terminate(self, uid: str) -> None:
        self._act(self._inner.terminate, uid, self._node.world.checker.terminates)

    def kill(self, uid: str) -> None:
        self._act(self._inner.kill, uid, self._node.world.checker.kills)

    def freeze(self, uid: str) -> bool:
        return self._act(self._inner.freeze, uid, self._node.world.checker.freezes)

    def thaw(self, uid: str) -> None:
        self._act(self._inner.thaw, uid, lambda node, uid: None)

    def _act(self, act: Callable[[str], Any], uid: str, tell: Callable[[Node, str], None]) -> Any:
        with perhaps_the_last(self._node):
            tell(self._node, uid)
            if self._node.kernel.refuses:
                raise CgroupError("cgroup.procs", "refused")
            return act(uid)


class WatchedSpool:
    """A spool that outlives the agent's process, and may be the last thing that it touches."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def reopen(self) -> None:
        inner = self._inner = self._node.world.parts.spool(self._node.name)
        self.interrupted = inner.interrupted
        self.pending = inner.pending
        self.acknowledge = inner.acknowledge

    def intend(self, outcome: NodeOutcome) -> None:
        with perhaps_the_last(self._node):
            self._inner.intend(outcome)
            self._node.world.checker.intended(self._node, outcome)

    def conclude(self, outcome: NodeOutcome) -> None:
        with perhaps_the_last(self._node):
            self._inner.conclude(outcome)
            self._node.world.checker.concluded(self._node, outcome)
