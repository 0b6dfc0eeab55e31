"""Runs the demo on the real machine, as processes in cgroups."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from slacktide.deploy.demo import agents, busy, join, ls_worker
from slacktide.deploy.demo.backend import DemoError, Machine, Served, Used
from slacktide.deploy.demo.conditions import Scenario
from slacktide.deploy.demo.groups import KUBEPODS, OWN, Groups, NoGroupsError
from slacktide.deploy.demo.load import Load
from slacktide.deploy.demo.pods import BATCH_PODS, DemoPod, Form, batch_pods, service_pod
from slacktide.deploy.runtime import child_process
from slacktide.deploy.runtime.broker import FETCH_WAIT_MS
from slacktide.deploy.runtime.supervisor import PROGRAM
from slacktide.schemas.connection import Cluster

MOUNT = Path("/sys/fs/cgroup")
CALIBRATION_S_MAX = 20.0
PIPE_BYTES = 1 << 20


def groups_here(mount: Path = MOUNT) -> Groups:
    """Open the machine's cgroups, and check that they are writable.

    Raises:
        NoGroupsError: they are not available; the text has the reason.
    """
    if os.geteuid() != 0:
        raise NoGroupsError("not root")
    groups = Groups(mount)
    groups.open(this_machine().capacity_milli)
    return groups


def this_machine() -> Machine:
    """Return the machine's CPUs and memory."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(capacity_milli=(os.cpu_count() or 1) * 1000, mem_bytes=pages)


class RealBackend:
    """One node: this machine."""

    mode: Literal["real", "virtual"] = "real"
    scenario: Scenario = "cpu"

    def __init__(self, groups: Groups, folder: Path) -> None:
        """Take open cgroups, and a folder for the workers' input."""
        self.machine = this_machine()
        self.nodes: Sequence[str] = ("demo",)
        self.why = f"root, cgroup v{groups.version} at {groups.mount}: real processes under {OWN}"
        self._groups = groups
        self._folder = folder
        self._play = folder / "play.json"
        self._cpus = self.machine.capacity_milli // 1000
        self._service = service_pod(self.nodes[0], self.machine.capacity_milli)
        self._form: Form = "none"
        self._batch: list[DemoPod] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._crunchers: list[subprocess.Popen[bytes]] = []
        self._unread: dict[int, bytes] = {}
        self._processes = -(-self._cpus // BATCH_PODS)
        """Processes per batch pod."""
        self._open_files: Sequence[int] = ()
        """Inherited by the service's workers."""

    async def open(self) -> None:
        """Create the service's pod and start its workers.

        Raises:
            DemoError: they did not start.
        """
        self._groups.make([self._service.group], self.machine.capacity_milli)
        units = await self._calibrate()
        joined = self._groups.join_files(self._service.group)
        more = await self._data()
        for number in range(self._cpus):
            arguments = join.command(ls_worker.__name__, str(units), str(self._play), str(number), *more, join=joined)
            worker = child_process.popen(arguments, stdout=subprocess.PIPE, keep=self._open_files)
            assert worker.stdout is not None
            os.set_blocking(worker.stdout.fileno(), False)
            self._workers.append(worker)

    def planned(self) -> list[agents.PlannedNode]:
        """Return this machine with the demo's cgroups."""
        return [
            agents.PlannedNode(
                name=self.nodes[0],
                cgroup_mount=str(self._groups.mount),
                proc_mount="/proc",
                kubepods=KUBEPODS,
                state_folder=str(self._folder / "agent"),
            )
        ]

    def agent_commands(self, bootstrap: Cluster, inventory: Path) -> list[list[str]]:
        """Return the command of one agent for the demo's cgroups."""
        (node,) = self.planned()
        return [[
            PROGRAM, "agent", "--bootstrap", str(bootstrap), "--inventory", str(inventory),
            "--node-name", node.name, "--cgroup-mount", node.cgroup_mount, "--kubepods", node.kubepods,
            "--state-folder", node.state_folder, "--fetch-wait-ms", str(FETCH_WAIT_MS),
            "--metrics-port", "0",
        ]]  # fmt: skip

    async def enter(self, form: Form) -> None:
        """Stop the batch work, and start it in pods of the other form."""
        if form == self._form:
            return
        await self._end(self._crunchers)
        self._form, self._batch = form, self._batch_pods(form)
        self._groups.make([pod.group for pod in self.pods()], self.machine.capacity_milli)
        for pod in self._batch:
            joined = self._groups.join_files(pod.group)
            for _ in range(self._processes):
                self._crunchers.append(child_process.popen(join.command(*self._work(pod), join=joined)))

    def pods(self) -> list[DemoPod]:
        """Return the service and the batch work."""
        return [self._service, *self._batch]

    def play(self, loads: Mapping[str, Load], seed: int, start_s: float) -> None:
        """Pass it to the workers, which poll a few times a second."""
        load = loads[self.nodes[0]]
        rates = load.rates(self.machine.capacity_milli, self._cpus)
        new = self._play.with_suffix(".new")
        new.write_text(json.dumps({"start_s": start_s, "seed": seed, "phases": rates}))
        new.replace(self._play)

    def served(self) -> list[Served]:
        """Read the output of the workers."""
        return [Served(*request) for worker in self._workers for line in self._lines(worker) for request in line]

    def used(self) -> Used:
        """Return the CPU use of the pods' cgroups."""
        return Used(
            service_s=self._groups.cpu_s(self._service.group.path),
            batch_s=sum(self._groups.cpu_s(pod.group.path) for pod in self._batch),
        )

    def unsettled(self) -> str:
        """Return "", since batch work uses CPU immediately."""
        return ""

    def trouble(self) -> str:
        """Return which worker or batch process ended; "": none."""
        for what, processes in (("a worker of the service", self._workers), ("a batch process", self._crunchers)):
            ended = next((process for process in processes if process.poll() is not None), None)
            if ended is not None:
                return f"{what} (pid {ended.pid}) ended with exit code {ended.returncode}"
        return ""

    async def close(self) -> None:
        """Stop the processes, remove the cgroups."""
        await self._end(self._crunchers)
        await self._end(self._workers)
        self._groups.close()

    async def _data(self) -> list[str]:
        """Return data arguments for the service's workers."""
        return []

    def _batch_pods(self, form: Form) -> list[DemoPod]:
        return batch_pods(form, self.nodes[0], self.machine.capacity_milli)

    def _work(self, pod: DemoPod) -> list[str]:
        """Return the module and arguments of a batch pod's process."""
        del pod
        return [busy.__name__]

    async def _calibrate(self) -> int:
        """Return the amount of work in a request of 5 ms."""
        arguments = [sys.executable, "-m", ls_worker.__name__, "calibrate"]
        process = child_process.popen(arguments, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as output:
            try:
                async with asyncio.timeout(CALIBRATION_S_MAX):
                    code = await child_process.ended(process)
            except TimeoutError:
                process.kill()
                process.wait()
                raise DemoError(f"the work of a request could not be measured within {CALIBRATION_S_MAX:g} s") from None
            if code:
                raise DemoError(f"the service's worker did not start: exit code {code}")
            return int(output.read())

    def _lines(self, worker: subprocess.Popen[bytes]) -> list[list[tuple[float, float]]]:
        assert worker.stdout is not None
        chunk = worker.stdout.read(PIPE_BYTES) or b""
        *lines, rest = (self._unread.get(worker.pid, b"") + chunk).split(b"\n")
        self._unread[worker.pid] = rest
        return [json.loads(line) for line in lines]

    @staticmethod
    async def _end(processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.kill()
        for process in processes:
            await child_process.ended(process)
            if process.stdout is not None:
                process.stdout.close()
        processes.clear()
