"""The node that an agent is measured on: this machine under the demo's own groups, or a virtual one."""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from bench import ls_load
from bench.plan import Plan
from bench.proc import OwnProc
from bench.process import environment
from bench.rig import CannotRunError, Rig
from slacktide.deploy.demo import busy, join
from slacktide.deploy.demo.groups import KUBEPODS, OWN, Groups, NoGroupsError
from slacktide.deploy.demo.pods import DemoPod, batch_pods, inventory_yaml, policy_yaml, service_pod
from slacktide.deploy.runtime import child_process
from slacktide.deploy.virtual import machine as model
from slacktide.deploy.virtual.files import Projection

NAME = "bench"
MOUNT = Path("/sys/fs/cgroup")
VIRTUAL_CPUS = 8
VIRTUAL_MEM_BYTES = 32 << 30
TICK_S = 0.05
AHEAD_S = 1.0
"""Processes need a moment to start: a plan begins after it."""


class Node(Protocol):
    """One machine with pods."""

    mode: str
    arguments: list[str]
    """What an agent needs to find it."""
    policy: Path
    """The demo's policy as a file."""

    def play(self, plan: Plan) -> float:
        """Ask the service for a load; the instant of the monotonic clock at which it begins, in seconds."""

    def quota_us(self) -> int | None:
        """The best-effort group's limit in force, as its file says; None: unlimited."""


@contextlib.contextmanager
def node(rig: Rig, *, more: Sequence[DemoPod] = (), crunch: bool, alone: bool = False) -> Iterator[Node]:
    """A node with the demo's service and batch pods, real where that can be had.

    Args:
        rig: the run.
        more: further pods, which do nothing.
        crunch: whether the batch pods would eat the whole machine.
        alone: whether the agent shall see no CPU use but these pods', whatever else runs on the machine.

    """
    if os.geteuid() != 0 or rig.virtual:
        with VirtualNode(rig, more, crunch=crunch) as made:
            yield made
        return
    with RealNode(rig, more, crunch=crunch) as real, contextlib.ExitStack() as stack:
        if alone:
            proc = stack.enter_context(OwnProc(rig.memory / f"proc-{time.monotonic_ns()}", real.used_s))
            real.arguments += ["--proc-mount", str(proc.folder)]
        yield real


def _arguments(folder: Path, capacity_milli: int, mem_bytes: int, pods: Sequence[DemoPod]) -> list[str]:
    inventory = folder / "inventory.yaml"
    inventory.write_text(inventory_yaml([NAME], capacity_milli, mem_bytes, pods))
    return ["--node-name", NAME, "--inventory", str(inventory)]


def _policy(folder: Path) -> Path:
    file = folder / "policy.yaml"
    file.write_text(policy_yaml(suppress=True))
    return file


def _limit(group: Path, version: int) -> int | None:
    text = (group / ("cpu.cfs_quota_us" if version == 1 else "cpu.max")).read_text().split()[0]
    return None if text in {"-1", "max"} else int(text)


class RealNode:
    """This machine: real groups, real processes."""

    mode = "real"

    def __init__(self, rig: Rig, more: Sequence[DemoPod], *, crunch: bool) -> None:
        self._folder = rig.folder
        self.policy = _policy(rig.folder)
        self.cpus = os.cpu_count() or 1
        self._capacity_milli = self.cpus * 1000
        self._service = service_pod(NAME, self._capacity_milli)
        self._batch = batch_pods("besteffort", NAME, self._capacity_milli)
        self._pods = [self._service, *self._batch, *more]
        self._crunch = crunch
        self._service_processes: list[subprocess.Popen[bytes]] = []
        self._batch_processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._groups = Groups(MOUNT)
            self._groups.open(self._capacity_milli)
        except NoGroupsError as error:
            raise CannotRunError(f"no control groups: {error} (--virtual does without)") from error
        try:
            self._fill()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def play(self, plan: Plan) -> float:
        """As many processes a CPU as it says, anew for each plan."""
        self._end(self._service_processes)
        start_s = time.monotonic() + AHEAD_S
        phases = [(seconds, part / plan.processes_per_cpu) for seconds, part in plan.phases]
        said = json.dumps({"start_s": start_s, "phases": phases})
        count = self.cpus * plan.processes_per_cpu
        self._service_processes += [self._run(ls_load.__name__, self._service, said) for _ in range(count)]
        return start_s

    def quota_us(self) -> int | None:
        """From the kernel."""
        mount = MOUNT / "cpu" if self._groups.version == 1 else MOUNT
        return _limit(mount / KUBEPODS / "besteffort", self._groups.version)

    def used_s(self) -> float:
        """CPU seconds of all pods so far."""
        return self._groups.cpu_s(OWN)

    def _fill(self) -> None:
        self._groups.make([pod.group for pod in self._pods], self._capacity_milli)
        mem_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.arguments = [
            *_arguments(self._folder, self._capacity_milli, mem_bytes, self._pods),
            *("--cgroup-mount", str(MOUNT), "--kubepods", KUBEPODS),
        ]
        if self._crunch:
            crunchers = [pod for pod in self._batch for _ in range(-(-self.cpus // len(self._batch)))]
            self._batch_processes += [self._run(busy.__name__, pod) for pod in crunchers]

    def _run(self, module: str, pod: DemoPod, *arguments: str) -> subprocess.Popen[bytes]:
        command = join.command(module, *arguments, join=self._groups.join_files(pod.group))
        return child_process.popen(command, env=environment())

    def _leave(self) -> None:
        self._end(self._batch_processes)
        self._end(self._service_processes)
        self._groups.close()

    @staticmethod
    def _end(processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.kill()
            process.wait()
        processes.clear()


class VirtualNode:
    """A kernel model, driven in real time by a thread, its cgroup files in a folder."""

    mode = "virtual"

    def __init__(self, rig: Rig, more: Sequence[DemoPod], *, crunch: bool) -> None:
        capacity_milli = VIRTUAL_CPUS * 1000
        self._machine = model.Machine(cpus=VIRTUAL_CPUS, mem_bytes=VIRTUAL_MEM_BYTES)
        service, batch = service_pod(NAME, capacity_milli), batch_pods("besteffort", NAME, capacity_milli)
        pods = [service, *batch, *more]
        groups = {pod.uid: self._add(pod) for pod in pods}
        self._service = groups[service.uid]
        for pod in batch:
            groups[pod.uid].demand_milli = capacity_milli if crunch else 0
        self._machine.system.demand_milli = capacity_milli // 30
        folder = rig.memory / f"virtual-{time.monotonic_ns()}"
        folder.mkdir()
        self.policy = _policy(folder)
        self._files = Projection(self._machine, folder / "machine")
        self.arguments = [
            *_arguments(folder, capacity_milli, VIRTUAL_MEM_BYTES, pods),
            *("--cgroup-mount", str(self._files.cgroup_mount), "--proc-mount", str(self._files.proc_mount)),
            *("--kubepods", model.KUBEPODS),
        ]
        self._start_s, self._plan = 0.0, Plan(phases=[], steps_s=[], plateaus_s=[])
        self._stop = threading.Event()
        self._driver = threading.Thread(target=self._drive, name="virtual node", daemon=True)

    def __enter__(self) -> Self:
        self._driver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._driver.join()

    def play(self, plan: Plan) -> float:
        """From the next tick on."""
        self._start_s, self._plan = time.monotonic() + AHEAD_S, plan
        return self._start_s

    def quota_us(self) -> int | None:
        """From the file."""
        return _limit(self._files.cgroup_mount / model.BEST_EFFORT, self._machine.version)

    def _add(self, pod: DemoPod) -> model.Group:
        group = self._machine.add_pod(pod.uid, pod.kube_qos, request_milli=pod.request_milli)
        group.mem_bytes = 100 << 20
        return group

    def _drive(self) -> None:
        last_s = time.monotonic()
        while not self._stop.wait(TICK_S):
            now_s = time.monotonic()
            dt_ms = round((now_s - last_s) * 1000)
            last_s += dt_ms / 1000
            part = self._plan.part_at(max(0.0, now_s - self._start_s))
            self._service.demand_milli = round(part * VIRTUAL_CPUS * 1000)
            self._files.read_back()
            self._machine.step(dt_ms)
            self._files.write_files()
