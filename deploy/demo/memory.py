"""The memory scenario: this machine, and a service whose data batch work could evict from the page cache.

The demo's cgroups have a memory limit, so that they represent a small machine.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from slacktide.deploy.demo import join, keeper, ls_worker
from slacktide.deploy.demo.backend import DemoError, Used
from slacktide.deploy.demo.conditions import Scenario
from slacktide.deploy.demo.groups import KUBEPODS, SHARES_MIN, Groups, shares_of
from slacktide.deploy.demo.pods import BATCH_PODS, DemoPod, Form
from slacktide.deploy.demo.real import RealBackend
from slacktide.deploy.runtime import child_process

MIB = keeper.MIB
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


class MemoryBackend(RealBackend):
    """One node."""

    scenario: Scenario = "memory"

    def __init__(self, groups: Groups, folder: Path) -> None:
        """Take open cgroups, and limit their memory.

        Raises:
            NoGroupsError: memory cannot be limited.
        """
        super().__init__(groups, folder)
        batch = BATCH_PODS * self._processes
        machine_mib = 2 * DATA_MIB + BATCH_MIB * batch + keeper.OWN_MIB * self._cpus
        self._wanted_mib = (machine_mib - LEFT_MIB - keeper.OWN_MIB * (self._cpus + batch)) // batch
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
        if not all(keeper.least(file.read_text() for file in self._limit_files(pod)) for pod in self._batch):
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
        return [keeper.__name__, str(self._wanted_mib), str(self._processes), *files]
