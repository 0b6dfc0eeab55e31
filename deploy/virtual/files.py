"""Projects a virtual machine to files for an unmodified agent: cgroup mount and /proc in a folder.

Readers never see a partial file:

- A file is written elsewhere and renamed into place, so readers must reopen it each time, as the agent does. (A write
in place would keep descriptors valid, but readers on another CPU can see a mix: 2 in 100 reads on ext4, measured.)
- A cgroup's folder is created elsewhere and renamed into place, and renamed away before it is deleted.
- Control files (quota, period, weight) are written once, when the cgroup appears, and again only to undo an invalid
write. Otherwise they belong to the agent.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slacktide.agents.node.cgroup.group_knobs import FILES, KnobFile, as_reads_back, weight_of
from slacktide.deploy.virtual import texts
from slacktide.deploy.virtual.machine import Group, Machine
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.knob_table import Knob


class Projection:
    """One machine's files. Call ``read_back``, then ``machine.step``, then ``write_files``."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        """Create the files in an empty folder, best on tmpfs: ext4 flushes replaced files immediately."""
        self.machine = machine
        self.cgroup_mount, self.proc_mount = folder / "cgroup", folder / "proc"
        self._aside = folder / "aside"
        self._groups: dict[str, Group] = {}
        self._written: dict[Path, str] = {}
        for made in (self.cgroup_mount, self._aside, self.proc_mount / "pressure"):
            made.mkdir(parents=True)
        for name, text in texts.sys_cpu(machine).items():
            file = folder / "sys/devices/system/cpu" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        self.write_files()

    def write_files(self) -> None:
        """Write the current figures of all cgroups; add new pods and remove others."""
        for path in [path for path, group in self._groups.items() if self.machine.groups.get(path) is not group]:
            self._remove(path)
        for path, group in self.machine.groups.items():
            if path not in self._groups:
                self._make(group)
                continue
            for file, text in self._texts(group).items():
                if file.name not in self._control:
                    self._write(file, text)
        for name, text in texts.proc(self.machine).items():
            self._write(self.proc_mount / name, text)

    def read_back(self) -> list[CgroupError]:
        """Apply writes to control files since the last call. Return rejected writes, which are undone in the files."""
        there = [group for path, group in self._groups.items() if path and self.machine.groups.get(path) is group]
        asked = [group for group in there if self._asks(group)]
        errors: dict[str, CgroupError] = {}
        with suppress(CgroupError):  # together: on v1 the order matters if all move to other CPUs
            self.machine.set_cpusets(self._cpusets_asked(asked))
        # Files have no order of writes, so writes that depend on a parent's or child's are retried.
        for _ in range(len(asked)):
            errors = {group.path: error for group in asked if (error := self._take_over(group)) is not None}
            asked = [group for group in asked if group.path in errors]
            if not asked:
                break
        for file, text in (one for group in asked for one in self._texts(group).items()):
            if file.name in self._control:
                self._write(file, text)
        return list(errors.values())

    @property
    def _control(self) -> tuple[str, ...]:
        return texts.CONTROL[self.machine.version]

    def _texts(self, group: Group) -> dict[Path, str]:
        """Return the texts by file."""
        cpus = self.machine.effective_cpus(group.path)
        found = texts.v1(group, cpus) if self.machine.version == 1 else {"": texts.v2(group, cpus)}
        folders = {self.cgroup_mount / hierarchy / group.path: named for hierarchy, named in found.items()}
        return {folder / name: text for folder, named in folders.items() for name, text in named.items()}

    def _file(self, group: Group, name: str) -> Path:
        hierarchy = "" if self.machine.version == 2 else name.partition(".")[0]
        return self.cgroup_mount / hierarchy / group.path / name

    def _asks(self, group: Group) -> bool:
        """Return whether a control file changed. An empty file is ignored: its write is not complete."""
        differ = False
        for name in self._control:
            text = self._file(group, name).read_text().partition("\n")[0].strip()
            if text and text != self._written[self._file(group, name)]:
                self._written[self._file(group, name)] = text
                differ = True
        return differ

    def _cpusets_asked(self, asked: Sequence[Group]) -> dict[str, frozenset[int]]:
        """Return the changed CPU sets, and those of new cgroups, which in a kernel inherit the parent's CPUs."""
        cpusets = {group.path: cpus for group in asked if (cpus := self._cpuset_asked(group))}
        if self.machine.version == 1:
            for path in self.machine.groups.keys() - self._groups.keys():
                cpus = cpusets.get(path.rpartition("/")[0])
                cpusets |= {} if cpus is None else {path: cpus}
        return cpusets

    def _cpuset_asked(self, group: Group) -> frozenset[int] | None:
        return texts.cpuset_of(self._written[self._file(group, "cpuset.cpus")])

    def _take_over(self, group: Group) -> CgroupError | None:
        values = {name: self._written[self._file(group, name)] for name in self._control}
        try:
            if self.machine.version == 1:
                quota_us, period_us = texts.quota_of_v1(values["cpu.cfs_quota_us"], values["cpu.cfs_period_us"])
                weight = values["cpu.shares"]
            else:
                quota_us, period_us = texts.quota_of_v2(values["cpu.max"], group.period_us)
                weight = values["cpu.weight"]
            self.machine.set_quota(group.path, quota_us, period_us)
            cpus = self._cpuset_asked(group)
            if cpus is not None:
                self.machine.set_cpusets({group.path: cpus})
            self.machine.set_weight(group.path, texts.number(weight))
            for knob, file in plain(self.machine.version).items():
                write(self.machine, group.path, knob, file.read(values[file.name].encode()))
        except CgroupError as error:
            return error
        except ValueError as error:
            return CgroupError(group.path, f"invalid argument: {error}")
        return None

    def _make(self, group: Group) -> None:
        self._groups[group.path] = group
        made, new = self._texts(group), self._aside / "new"
        for place in dict.fromkeys(file.parent for file in made):
            files = {file: text for file, text in made.items() if file.parent == place}
            if place.exists():  # the mount itself
                for file, text in files.items():
                    self._write(file, text)
                continue
            new.mkdir()
            for file, text in files.items():
                (new / file.name).write_text(f"{text}\n")
            self._written |= files
            place.parent.mkdir(exist_ok=True)
            new.rename(place)

    def _remove(self, path: str) -> None:
        files, gone = self._texts(self._groups.pop(path)), self._aside / "gone"
        for place in dict.fromkeys(file.parent for file in files):
            place.rename(gone)
            shutil.rmtree(gone)
        for file in files:
            del self._written[file]

    def _write(self, file: Path, text: str) -> None:
        if self._written.get(file) != text:
            part = self._aside / "part"
            part.write_text(f"{text}\n")
            part.replace(file)
            self._written[file] = text


def plain(version: int) -> Mapping[Knob, KnobFile]:
    """Return the knobs that the model only stores, with their files, by cgroup version."""
    return {knob: file for knob, file in FILES[version].items() if knob != "cpu_shares"}


def write(machine: Machine, path: str, knob: Knob, value: int | None) -> None:
    """Set a cgroup's knob, except for its quota. Raises CgroupError where the kernel would reject it."""
    if knob == "cpu_shares":
        machine.set_weight(path, (value or 0) if machine.version == 1 else weight_of(value or 0))
    elif knob == "cfs_burst_us":
        machine.set_burst(path, value or 0)
    else:
        machine.groups[path].knobs[knob] = as_reads_back(knob, value, machine.version)
