"""Exclusive CPUs of pods, from the kubelet's ``cpu_manager_state``, else from the cpusets of their containers.

The kubelet writes its file when it admits a pod, before the containers start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from slacktide.agents.files import Stamp, stamp_of
from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.apply import CpusetHolder
from slacktide.agents.node.cgroup.container_cpu import container_groups
from slacktide.agents.node.cgroup.hierarchy import GUARANTEED, Hierarchy
from slacktide.agents.node.cgroup.plan import CPUSET_FILE, Cpus
from slacktide.agents.node.zones.kubelet import CPU_STATE, cpu_state
from slacktide.schemas.errors import ZonesError
from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.cpu_list import cpu_ranges


def whole_cpus(limit_milli: int | None) -> int:
    """Return the number of CPUs of a limit; 0: no limit, or not whole CPUs."""
    return 0 if not limit_milli or limit_milli % 1000 else limit_milli // 1000


class ExclusiveCpus:
    """Exclusive CPUs of pods on one node. Without ``kubelet_folder`` only cpusets are read."""

    def __init__(self, hierarchy: Hierarchy, kubelet_folder: Path | None) -> None:
        self._hierarchy = hierarchy
        self._file = None if kubelet_folder is None else kubelet_folder / CPU_STATE
        self._stamp: Stamp | None = None
        self._of_file: Mapping[str, str] | None = None

    @property
    def watched(self) -> bool:
        """Whether there is a kubelet file to watch."""
        return self._file is not None

    def changed(self) -> bool:
        """Return whether the kubelet's file has changed since it was read. Cheap."""
        return self._file is not None and stamp_of(self._file) != self._stamp

    def look(self, pods: Sequence[Pod]) -> Mapping[str, str]:
        """Return the CPU lists such as ``2-3``, by pod uid. If the file is torn, the last valid content counts."""
        if self._file is not None:
            self._stamp = stamp_of(self._file)
            with suppress(OSError, ZonesError):
                held = cpu_state(self._file.read_bytes())
                self._of_file = {uid: cpu_ranges(cpus) for uid, cpus in held.exclusive.items() if cpus}
            if self._stamp is not None and self._of_file is not None:
                return self._of_file
        return {uid: cpu_ranges(cpus) for uid, cpus in self._of_cpusets(pods)}

    def _of_cpusets(self, pods: Sequence[Pod]) -> Iterator[tuple[str, Cpus]]:
        """Exclusive CPUs by cpuset: a Guaranteed container with as many CPUs as it requests, and not all CPUs."""
        root = self._hierarchy.cpuset
        guaranteed = [pod for pod in pods if pod.kube_qos == "Guaranteed"]
        wanted = [pod for pod in guaranteed if any(whole_cpus(one.limits.cpu_milli) for one in pod.containers)]
        if root is None or not wanted:
            return
        allowed = CpusetHolder(self._hierarchy, root).allowed()
        groups: dict[str, str] = {}
        with suppress(OSError):
            groups = dict(self._hierarchy.pod_groups(GUARANTEED))
        for pod in wanted:
            if pod.uid not in groups:
                continue
            found = Cpus()
            there = container_groups(self._hierarchy, root, PurePosixPath(groups[pod.uid]), pod)
            for container in pod.containers:
                if container.name in there:
                    with suppress(OSError, ValueError):
                        cpus = parse.cpus((root / there[container.name] / CPUSET_FILE).read_bytes())
                        if cpus < allowed and len(cpus) == whole_cpus(container.limits.cpu_milli):
                            found |= cpus
            if found:
                yield pod.uid, found
