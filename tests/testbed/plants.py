"""What pods run on: a virtual machine with fitted behaviour, or real processes in this machine's control groups.

A fluid virtual machine meets demand exactly and at once. ``Behaviour`` is by how much a real kernel differs.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from kernel.groups import Groups

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.interfaces import Reading
from slacktide.deploy.virtual.machine import BEST_EFFORT, Machine
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.sample import Limits, NodeUse
from testbed.virtual.kernel import VirtualKernel

STEP_S = 2
"""Between two readings."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How use differs from the lesser of demand and limit."""

    met_part: float = 1.0
    """Of its demand, what a pod uses that is not held back: mean."""
    met_more_milli: float = 0.0
    """What it uses beside that."""
    met_sd: float = 0.0
    """The same by its demand: standard deviation between samples."""
    used_part: float = 1.0
    """Of their limit, what pods use that are held back by it: mean."""
    used_sd: float = 0.0
    late_ms: float = 0.0
    """From a new limit until use follows it."""
    end_ms: float = 0.0
    """From the end of a victim's work until its group is empty."""
    mem_part: float = 1.0
    """Of what a pod holds, its working set: mean."""
    mem_more_bytes: float = 0.0
    """Its working set beside that: mean."""
    mem_more_sd_bytes: float = 0.0
    """The same: standard deviation between pods."""
    mem_sd: float = 0.0
    """By what it holds: standard deviation between samples of a pod."""


FLUID = Behaviour()


class Plant(Protocol):
    """A machine with pods of two tiers."""

    def begin(self, uid: str, *, best_effort: bool, request_milli: int = 0) -> None:
        """Start a pod that wants nothing yet."""

    def want(self, uid: str, milli: int, mem_bytes: int) -> None:
        """What a pod uses from now on, if nothing holds it back."""

    def terminate(self, uid: str) -> None:
        """Ask a pod to end; it works on for its grace."""

    def gone(self, uid: str) -> bool:
        """Whether a pod that was asked has ended."""

    def hold(self, limits: Limits) -> None:
        """Hold best-effort pods."""

    def step(self) -> Reading:
        """Let ``STEP_S`` pass, and read."""


class VirtualPlant:
    """``Machine``, with a behaviour; its dice are its own, so that loads do not depend on it."""

    def __init__(
        self, *, cpus: int, mem_bytes: int, grace_s: float, behaviour: Behaviour = FLUID, seed: Sequence[int] = (0,)
    ) -> None:
        self.machine = Machine(cpus=cpus, mem_bytes=mem_bytes)
        self._kernel = VirtualKernel(self.machine)
        self._grace_s, self._behaviour = grace_s, behaviour
        self._dice = np.random.default_rng([*seed, 1])
        self._held: Limits | None = None
        self._next: Limits | None = None
        self._wants: dict[str, int] = {}
        self._more_bytes: dict[str, float] = {}

    def begin(self, uid: str, *, best_effort: bool, request_milli: int = 0) -> None:
        pod = self.machine.add_pod(uid, "BestEffort" if best_effort else "Burstable", request_milli=request_milli)
        pod.linger_ms = round(self._grace_s * 1_000 + self._behaviour.end_ms)
        self._more_bytes[uid] = self._noise(self._behaviour.mem_more_bytes, self._behaviour.mem_more_sd_bytes)

    def want(self, uid: str, milli: int, mem_bytes: int) -> None:
        own = self._behaviour
        self._wants[uid] = milli
        held = mem_bytes * self._noise(own.mem_part, own.mem_sd) + self._more_bytes[uid]
        self.machine.pods[uid].mem_bytes = round(held)

    def terminate(self, uid: str) -> None:
        self.machine.terminate_pod(uid)

    def gone(self, uid: str) -> bool:
        return uid not in self.machine.pods

    def hold(self, limits: Limits) -> None:
        self._next = limits

    def step(self) -> Reading:
        own = self._behaviour
        for uid in self._wants.keys() & self.machine.pods.keys():
            wanted = self._wants[uid] * self._noise(own.met_part, own.met_sd) + own.met_more_milli
            self.machine.pods[uid].demand_milli = round(wanted)
        used = self._noise(own.used_part, own.used_sd)
        late_ms = 0 if self._next is None or self._held is None else min(round(own.late_ms), STEP_S * 1_000)
        if late_ms:
            self._quota(used)
            self.machine.step(late_ms)
        self._held, self._next = self._next or self._held, None
        self._quota(used)
        if late_ms < STEP_S * 1_000:
            self.machine.step(STEP_S * 1_000 - late_ms)
        read = self._kernel.read(self.machine.elapsed_ns)
        return read if self._held is None else dataclasses.replace(read, limits=self._held)

    def _quota(self, used: float) -> None:
        """A limit of which only a part is used is a lower one."""
        quota_us = None if self._held is None else self._held.be_cfs_quota_us
        self.machine.set_quota(BEST_EFFORT, None if quota_us is None else max(1_000, round(quota_us * used)))

    def _noise(self, mean: float, sd: float) -> float:
        return mean if not sd else max(0.0, float(self._dice.normal(mean, sd)))


POD = """import mmap, os, signal, sys, time
path, grace_s = {path!r}, {grace_s}
CHUNK, PERIOD_S = 65536, 0.05
end_s = time.monotonic() + 900
def asked(*_):
    global end_s
    end_s = min(end_s, time.monotonic() + grace_s)
signal.signal(signal.SIGTERM, asked)
chunks, next_s = [], time.monotonic()
while next_s < end_s:
    begun = time.process_time()
    try:
        with open(path) as file: milli, size = map(int, file.read().split())
    except OSError:
        break
    while len(chunks) < size // CHUNK:
        chunk = mmap.mmap(-1, CHUNK)
        chunk.write(b"x" * CHUNK)
        chunks.append(chunk)
    while len(chunks) > size // CHUNK: chunks.pop().close()
    while time.process_time() - begun < milli / 1000 * PERIOD_S: pass
    next_s = max(next_s + PERIOD_S, time.monotonic())
    time.sleep(max(0, next_s - time.monotonic()))
"""
"""Wants so much of one CPU and so much memory. What it does not get in 50 ms is not made up for. Ends by itself."""


class RealPlant:
    """Processes in real groups. The node's use is that of its pods: other work on this machine is left out."""

    def __init__(self, groups: Groups, folder: Path, grace_s: float) -> None:
        self._groups, self._folder, self._grace_s = groups, folder, grace_s
        # Over the machine's other groups.
        (groups.cpu.parent / "cpu.shares").write_text("262144")
        self._kernel = CgroupKernel(Path("/sys/fs/cgroup"), Path("/proc"), groups.kubepods, folder)
        self._group_of: dict[str, str] = {}
        self._asked_s: dict[str, float] = {}
        self._next_s = 0.0
        self.ended_ms: dict[str, float] = {}
        """From the signal until a victim's group was empty."""

    def begin(self, uid: str, *, best_effort: bool, request_milli: int = 0) -> None:
        group = self._group_of[uid] = self._groups.add_pod("besteffort" if best_effort else "burstable", uid)
        if request_milli:
            (self._groups.cpu / group / "cpu.shares").write_text(str(max(2, request_milli * 1024 // 1000)))
        self.want(uid, 0, 0)
        self._groups.start(group, POD.format(path=str(self._folder / uid), grace_s=self._grace_s))

    def want(self, uid: str, milli: int, mem_bytes: int) -> None:
        new = self._folder / f"{uid}.new"
        new.write_text(f"{milli} {mem_bytes}")
        new.replace(self._folder / uid)

    def terminate(self, uid: str) -> None:
        self._kernel.best_effort.terminate(uid)
        self._asked_s[uid] = time.monotonic()

    def gone(self, uid: str) -> bool:
        return uid in self.ended_ms

    def hold(self, limits: Limits) -> None:
        self._kernel.hold(limits)

    def step(self) -> Reading:
        """Sleep to the next reading, and look for the end of victims meanwhile."""
        self._next_s = self._next_s or time.monotonic()
        self._next_s += STEP_S
        while (left_s := self._next_s - time.monotonic()) > 0:
            self._look()
            time.sleep(min(left_s, 0.02 if self._asked_s else left_s))
        read = self._kernel.read(time.monotonic_ns())
        of_pods = [(use.cpu_milli, use.mem_bytes) for use in read.pod_use]
        use = NodeUse(cpu_milli=sum(cpu or 0 for cpu, _ in of_pods), mem_bytes=sum(mem or 0 for _, mem in of_pods))
        return dataclasses.replace(read, use=use)

    def close(self) -> None:
        """Close the agent's files. Groups and processes are the caller's."""
        self._kernel.close()

    def _look(self) -> None:
        for uid, asked_s in list(self._asked_s.items()):
            try:
                left = self._kernel.best_effort.processes(uid)
            except CgroupError:
                left = 0
            if not left:
                self.ended_ms[uid] = (time.monotonic() - asked_s) * 1_000
                del self._asked_s[uid]
                self._groups.remove(self._group_of.pop(uid))
