"""A node's kernel through cgroups v1 or v2. Implements ``slacktide.agents.node.interfaces.Kernel``."""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.apply import CpusetHolder, Holder, Originals
from slacktide.agents.node.cgroup.best_effort import CgroupBestEffort
from slacktide.agents.node.cgroup.container_cpu import ContainersReader
from slacktide.agents.node.cgroup.files import Room
from slacktide.agents.node.cgroup.group_knobs import GroupKnobs
from slacktide.agents.node.cgroup.hierarchy import Hierarchy, Layout, find
from slacktide.agents.node.cgroup.parse import Counters, rates
from slacktide.agents.node.cgroup.plan import Bandwidth
from slacktide.agents.node.cgroup.read import NodeReader, Notes, PodsReader
from slacktide.agents.node.interfaces import ContainersLook, Reading
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod, Processor
from slacktide.schemas.sample import Limits, Missing, NodeUse, PodUse
from slacktide.streams.decisions.known_pods import is_unsuppressed

MISSING_MAX = 20
"""Most missing figures listed in one reading. The others are counted."""


class CgroupKernel:
    """Reads a node and its pods, and limits its best-effort pods. Plain folders with the same files work, too.

    ``kubepods`` is relative to each hierarchy; None: searched. ``state_folder`` stores the quotas before they were cut.

    Raises:
        CgroupError: no hierarchy, or no cgroup of pods.
    """

    def __init__(
        self,
        cgroup_mount: Path,
        proc_mount: Path,
        kubepods: str | None,
        state_folder: Path,
        layout: Layout | None = None,
    ) -> None:
        self.hierarchy: Hierarchy = find(cgroup_mount, kubepods, layout)
        self.best_effort = CgroupBestEffort(self.hierarchy, proc_mount)
        room = Room.of_process()
        self._node = NodeReader(proc_mount, room)
        self._pods = PodsReader(self.hierarchy, room)
        self._containers = ContainersReader(self.hierarchy, room, self._pods.group, self._pods.still)
        self._originals = Originals(state_folder)
        self._holder = Holder(self.hierarchy, self._originals)
        self._cpuset = None if self.hierarchy.cpuset is None else CpusetHolder(self.hierarchy, self.hierarchy.cpuset)
        self._groups = GroupKnobs(self.hierarchy, self._holder, self._settable)
        self.held, self.put, self.as_reads_back = self._groups.held, self._groups.put, self._groups.as_reads_back
        # /sys is beside /proc, also if both are mounted below another folder.
        self._sys_cpu = proc_mount.parent / "sys/devices/system/cpu"
        self._before: Counters | None = None

    def read(self, mono_ns: int) -> Reading:
        """Read every figure once. Unreadable figures are listed in ``missing``; nothing is raised for them."""
        notes = Notes()
        cpu_ns = self._node.cpu_ns(notes)
        pods = self._pods.read(mono_ns, notes)
        now = Counters(mono_ns=mono_ns, cpu_ns=cpu_ns, pods={uid: pod.counters for uid, pod in pods.items()})
        rate = rates(self._before, now)
        self._before = now
        use = NodeUse(
            cpu_milli=rate.cpu_milli, mem_bytes=self._node.mem_bytes(notes), pressure=self._node.pressure(notes)
        )
        if self._originals.trouble:
            notes.add(str(self._originals.path), self._originals.trouble)
            self._originals.trouble = ""
        limits = None
        try:
            limits = self.limits()
        except CgroupError as error:
            notes.add(os.path.relpath(error.path, self.hierarchy.mount), error.why)
        return Reading(
            interval_ms=rate.interval_ms,
            use=use,
            pod_use=[
                PodUse(
                    uid=uid,
                    cpu_milli=rate.pods[uid].cpu_milli,
                    mem_bytes=pod.mem_bytes,
                    periods=rate.pods[uid].periods,
                    throttled_periods=rate.pods[uid].throttled_periods,
                    best_effort_group=pod.best_effort,
                )
                for uid, pod in pods.items()
            ],
            limits=limits,
            missing=bounded(notes.missing + rate.missing),
        )

    def containers(self, pods: Sequence[Pod], mono_ns: int, spare: Collection[str] = ()) -> ContainersLook:
        """Read the CPU of these pods' containers that have a limit. Files of other pods are closed."""
        look = self._containers.read(pods, mono_ns, spare)
        return replace(look, missing=bounded(look.missing))

    def limits(self) -> Limits:
        """Implement ``Kernel.limits``."""
        held = self._holder.held()
        cpus = None if self._cpuset is None else self._cpuset.held()
        return Limits(
            be_cfs_quota_us=held.quota_us,
            be_cfs_period_us=held.period_us,
            be_cpuset=None if cpus is None else sorted(cpus),
        )

    def hold(self, limits: Limits) -> None:
        """Implement ``Kernel.hold``. If one knob replaces the other, it is set before the other is lifted."""
        wanted = Bandwidth(limits.be_cfs_quota_us, limits.be_cfs_period_us)
        held = self._holder.held()
        if wanted != held and wanted.within(held):
            self._holder.hold(wanted)
        if limits.be_cpuset is not None:
            cpus = frozenset(limits.be_cpuset)
            if self._cpuset is None:
                raise CgroupError("cpuset", f"the controller is not mounted under {self.hierarchy.mount}")
            if cpus != self._cpuset.held():
                self._cpuset.hold(cpus)
        if not wanted.within(held):
            self._holder.hold(wanted)

    def know(self, pods: Sequence[Pod]) -> None:
        """Set the known pods. Knobs of other pods are neither read nor set."""
        self._groups.know(pods)
        self._holder.spared = frozenset(pod.uid for pod in pods if is_unsuppressed(pod))

    def pod_group(self, uid: str) -> PurePosixPath | None:
        """Return a pod's cgroup at the last reading, relative to each root; None: it had none."""
        return self._pods.group(uid)

    def processors(self) -> list[Processor]:
        """Return the CPUs that pods may run on, ascending; empty if best-effort pods cannot be bound to CPUs."""
        return [] if self._cpuset is None else processors(self._sys_cpu, self._cpuset.allowed())

    def close(self) -> None:
        """Close all files. Limits stay in force."""
        self._node.close()
        self._pods.close()
        self._containers.close()

    def _settable(self, uid: str) -> PurePosixPath | None:
        group = self._pods.group(uid)
        return group if group is not None and self.hierarchy.layout.may_set(group) else None


def bounded(missing: list[Missing]) -> list[Missing]:
    """Return the first 20, and the number of the others."""
    if len(missing) <= MISSING_MAX:
        return missing
    more = len(missing) - MISSING_MAX
    return [*missing[:MISSING_MAX], Missing(what=f"and {more} more", why=f"only the first {MISSING_MAX} are listed")]


def processors(folder: Path, allowed: Collection[int]) -> list[Processor]:
    """Return the allowed CPUs that are online, ascending. CPUs with unreadable topology are left out."""
    try:
        online = parse.cpus((folder / "online").read_bytes())
    except (OSError, ValueError):
        return []
    found: list[Processor] = []
    for cpu in sorted(online & set(allowed)):
        place = folder / f"cpu{cpu}"
        with suppress(OSError, ValueError):
            siblings = parse.cpus((place / "topology/thread_siblings_list").read_bytes())
            socket = max(0, int((place / "topology/physical_package_id").read_bytes()))
            node = min((int(node.name.removeprefix("node")) for node in place.glob("node[0-9]*")), default=0)
            # The core's id is its first CPU, since the kernel's ids repeat on each die.
            found.append(Processor(cpu=cpu, core=min(siblings | {cpu}), socket=socket, numa_node=node))
    return found
