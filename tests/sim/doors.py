"""The agent's kernel and spool, watched: each act is told to the checker, may fail, and may be the agent's last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from slacktide.agents.node.kernel import BestEffortPods, Held, Reading
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod, Processor
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, Missing
from testbed.virtual.best_effort import VirtualBestEffort
from testbed.virtual.kernel import VirtualKernel

if TYPE_CHECKING:
    from sim.node import Node


class CrashError(BaseException):
    """The agent's process is killed, here and now."""


def perhaps_the_last(node: Node) -> None:
    """One step of an act: the agent may be killed here.

    Raises:
        CrashError: it is.

    """
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
        self._inner = VirtualKernel(node.machine)

    def restart(self) -> None:
        """A new agent starts: rates begin anew."""
        self._inner = VirtualKernel(self._node.machine)

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

    def processors(self) -> list[Processor]:
        return self._inner.processors()

    def limits(self) -> Limits:
        if self.hides:
            raise CgroupError("cpu.max", "hidden")
        return self._inner.limits()

    def know(self, pods: Sequence[Pod]) -> None:
        self._inner.know(pods)

    def held(self, keys: Iterable[KnobKey]) -> Held:
        return self._inner.held(keys)

    def put(self, key: KnobKey, value: int | None) -> None:
        self._inner.put(key, value)

    def as_reads_back(self, knob: Knob, value: int | None) -> int | None:
        return self._inner.as_reads_back(knob, value)

    def hold(self, limits: Limits) -> None:
        node = self._node
        perhaps_the_last(node)
        node.advance()
        node.world.checker.acts(node)
        before = self._inner.limits()
        if self.refuses:
            node.world.checker.held(node, before, limits, refused=True)
            raise CgroupError("cpu.max", "refused")
        self._inner.hold(limits)
        node.world.checker.held(node, before, limits, refused=False)
        perhaps_the_last(node)


class WatchedBestEffort:
    """A virtual machine's best-effort pods, of which each act is seen, and sometimes refused."""

    freeze_trouble = ""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._inner = VirtualBestEffort(node.machine)
        self.frozen = self._inner.frozen

    def processes(self, uid: str) -> int:
        self._node.advance()
        return self._inner.processes(uid)

    def terminate(self, uid: str) -> None:
        perhaps_the_last(self._node)
        self._node.world.checker.terminates(self._node, uid)
        self._tried()
        self._inner.terminate(uid)
        perhaps_the_last(self._node)

    def kill(self, uid: str) -> None:
        perhaps_the_last(self._node)
        self._node.world.checker.kills(self._node, uid)
        self._tried()
        self._inner.kill(uid)
        perhaps_the_last(self._node)

    def freeze(self, uid: str) -> bool:
        perhaps_the_last(self._node)
        self._node.world.checker.freezes(self._node, uid)
        self._tried()
        frozen = self._inner.freeze(uid)
        perhaps_the_last(self._node)
        return frozen

    def thaw(self, uid: str) -> None:
        perhaps_the_last(self._node)
        self._tried()
        self._inner.thaw(uid)
        perhaps_the_last(self._node)

    def _tried(self) -> None:
        if self._node.kernel.refuses:
            raise CgroupError("cgroup.procs", "refused")


class WatchedSpool:
    """A spool that outlives the agent's process, and may be the last thing that it touches."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def reopen(self) -> None:
        """A new process opens what the last one left."""
        inner = self._inner = self._node.world.parts.spool(self._node.name)
        self.interrupted = inner.interrupted
        self.pending = inner.pending
        self.acknowledge = inner.acknowledge

    def intend(self, outcome: NodeOutcome) -> None:
        perhaps_the_last(self._node)
        self._inner.intend(outcome)
        self._node.world.checker.intended(self._node, outcome)
        perhaps_the_last(self._node)

    def conclude(self, outcome: NodeOutcome) -> None:
        perhaps_the_last(self._node)
        self._inner.conclude(outcome)
        self._node.world.checker.concluded(self._node, outcome)
        perhaps_the_last(self._node)
