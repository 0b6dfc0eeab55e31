"""Runs the demo on the real machine, as processes in cgroups.

In the memory scenario, the cgroups have a memory limit, so that they represent a small machine. Batch work could evict
the service's data from the page cache.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slacktide.agents.files import write_whole
from slacktide.deploy.demo import busy, join, ls_worker
from slacktide.deploy.demo.backend import DemoError, Machine, Nodes, Place, Served, Used
from slacktide.deploy.demo.conditions import Load
from slacktide.deploy.demo.groups import KUBEPODS, OWN, SHARES_MIN, Groups, NoGroupsError, shares_of
from slacktide.deploy.demo.pods import BATCH_PODS, DemoPod, Form, batch_pods, service_pod
from slacktide.deploy.runtime import child_process
from slacktide.deploy.runtime.broker import FETCH_WAIT_MS
from slacktide.deploy.runtime.supervisor import PROGRAM
from slacktide.schemas.connection import Cluster

MOUNT = Path("/sys/fs/cgroup")
CALIBRATION_S_MAX = 20.0
PIPE_BYTES = 1 << 20
MIB = busy.MIB
DATA_MIB = 128
"""Size of the service's data in the page cache."""
BATCH_MIB = 48
"""Memory request of a batch pod's process."""
LEFT_MIB = DATA_MIB // 4
"""Free memory beside unlimited batch work and the processes' own memory."""
THERE_PART = 0.95
"""The part of the data, or of the batch work's memory, that counts as loaded."""
TIER = f"{KUBEPODS}/besteffort"
DISK = Path("/var/tmp")  # noqa: S108 - the file has no name there; in a tmpfs, as /tmp may be, it would be no page cache


def groups_here() -> Groups:
    """Open the machine's cgroups, and check that they are writable. Raises NoGroupsError with the reason."""
    if os.geteuid() != 0:
        raise NoGroupsError("not root")
    groups = Groups(MOUNT)
    groups.open(this_machine().capacity_milli)
    return groups


def this_machine() -> Machine:
    """Return the machine's CPUs and memory."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(capacity_milli=(os.cpu_count() or 1) * 1000, mem_bytes=pages)


class RealBackend(Nodes):
    """One node: this machine."""

    mode = "real"

    def __init__(self, groups: Groups, folder: Path) -> None:
        """Take open cgroups, and a folder for the workers' input."""
        self.machine = this_machine()
        self.nodes = ("demo",)
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
        """Create the service's pod and start its workers. Raises DemoError if they did not start."""
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

    def place(self, node: str) -> Place:
        """Return the demo's cgroups."""
        del node
        state_folder = self._folder / "agent"
        return Place(
            cgroup_mount=self._groups.mount, proc_mount=Path("/proc"), kubepods=KUBEPODS, state_folder=state_folder
        )

    def agents(self, bootstrap: Cluster, inventory: Path) -> list[str]:
        """Return the command of one agent for the demo's cgroups."""
        (node,) = self.nodes
        place = self.place(node)
        return [
            PROGRAM, "agent", "--bootstrap", str(bootstrap), "--inventory", str(inventory), "--node-name", node,
            "--cgroup-mount", str(place.cgroup_mount), "--kubepods", place.kubepods,
            "--state-folder", str(place.state_folder), "--fetch-wait-ms", str(FETCH_WAIT_MS), "--metrics-port", "0",
        ]  # fmt: skip

    async def enter(self, form: Form) -> None:
        """Stop the batch work, and start it in pods of this form; no change if it runs in it already."""
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
        """Start a load at an instant of the monotonic clock: the workers poll for it a few times a second."""
        load = loads[self.nodes[0]]
        rates = load.rates(self.machine.capacity_milli, self._cpus)
        write_whole(self._play, json.dumps({"start_s": start_s, "seed": seed, "phases": rates}).encode())

    def served(self) -> list[Served]:
        """Read the output of the workers."""
        served = []
        for worker in self._workers:
            assert worker.stdout is not None
            chunk = worker.stdout.read(PIPE_BYTES) or b""
            *lines, self._unread[worker.pid] = (self._unread.get(worker.pid, b"") + chunk).split(b"\n")
            served += [Served(*request) for line in lines for request in json.loads(line)]
        return served

    def used(self) -> Used:
        """Return the CPU use of the pods' cgroups."""
        return Used(
            service_s=self._groups.cpu_s(self._service.group.path),
            batch_s=sum(self._groups.cpu_s(pod.group.path) for pod in self._batch),
        )

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

    @staticmethod
    async def _end(processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.kill()
        for process in processes:
            await child_process.ended(process)
            if process.stdout is not None:
                process.stdout.close()
        processes.clear()


class MemoryBackend(RealBackend):
    """One node."""

    scenario = "memory"

    def __init__(self, groups: Groups, folder: Path) -> None:
        """Take open cgroups, and limit their memory. Raises NoGroupsError if memory cannot be limited."""
        super().__init__(groups, folder)
        batch = BATCH_PODS * self._processes
        machine_mib = 2 * DATA_MIB + BATCH_MIB * batch + busy.OWN_MIB * self._cpus
        self._wanted_mib = (machine_mib - LEFT_MIB - busy.OWN_MIB * (self._cpus + batch)) // batch
        """MiB of each batch process."""
        groups.limit_memory(machine_mib * MIB)
        self.why = f"{self.why}, with {machine_mib} MiB of memory"
        self._file = tempfile.TemporaryFile(dir=DISK)  # noqa: SIM115 - closed with the backend
        self._open_files = [self._file.fileno()]

    async def enter(self, form: Form) -> None:
        """Change the form. Plain batch pods have a high weight until they hold their memory, so that they get CPU."""
        await super().enter(form)
        if form == "plain":
            self._groups.weigh(TIER, shares_of(self.machine.capacity_milli))

    def used(self) -> Used:
        """Return the use, with the service's memory."""
        return replace(super().used(), service_mem_bytes=self._groups.memory_bytes(self._service.group.path))

    def unsettled(self) -> str:
        """Return what is missing: the batch pods' memory or limits, or the service's data; "": nothing."""
        if self._form == "plain":
            held_mib = sum(self._groups.memory_bytes(pod.group.path) for pod in self._batch) // MIB
            wanted_mib = THERE_PART * self._wanted_mib * BATCH_PODS * self._processes
            if held_mib < wanted_mib:
                return f"no batch work with {held_mib} MiB of memory yet"
            self._groups.weigh(TIER, SHARES_MIN)
            return ""
        if not all(busy.least(file.read_text() for file in self._limit_files(pod)) for pod in self._batch):
            return "a batch pod has no memory limit in the kernel"
        held_mib = self._groups.memory_bytes(self._service.group.path) // MIB
        return f"no service with {held_mib} MiB of memory yet" if held_mib < THERE_PART * DATA_MIB else ""

    async def close(self) -> None:
        """Close the backend. The data is deleted with its last open file."""
        await super().close()
        self._file.close()

    async def _data(self) -> list[str]:
        path = f"/proc/self/fd/{self._file.fileno()}"
        joined = self._groups.join_files(self._service.group)
        command = join.command(ls_worker.__name__, "fill", path, str(DATA_MIB * MIB), join=joined)
        if code := await child_process.ended(
            child_process.popen(command, keep=self._open_files, stderr=subprocess.DEVNULL)
        ):
            raise DemoError(f"the service's data could not be written to {DISK}: exit code {code}")
        return [path]

    def _batch_pods(self, form: Form) -> list[DemoPod]:
        return [replace(pod, mem_mib=BATCH_MIB * self._processes) for pod in super()._batch_pods(form)]

    def _limit_files(self, pod: DemoPod) -> list[Path]:
        """Return the kernel's files with the pod's limits; none without requests."""
        return self._groups.limit_files(pod.group) if pod.cpu_milli else []

    def _work(self, pod: DemoPod) -> list[str]:
        files = map(str, self._limit_files(pod))
        return [busy.__name__, str(self._wanted_mib), str(self._processes), *files]
