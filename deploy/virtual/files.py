"""Projects a virtual machine to files for an unmodified agent: cgroup mount and /proc in a folder.

Readers never see a partial file:

- A file is written elsewhere and renamed into place, so readers must reopen it each time, as the agent does. (A write
in place would keep descriptors valid, but readers on another CPU can see a mix: 2 in 100 reads on ext4, measured.)
- A cgroup's folder is created elsewhere and renamed into place, and renamed away before it is deleted.
- Control files (quota, period, weight) are written once, when the cgroup appears, and again only to undo an invalid
write. Otherwise they belong to the agent.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slacktide.agents.node.cgroup.group_knobs import FILES, KnobFile, as_reads_back, weight_of
from slacktide.deploy.virtual.machine import Group, Machine
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.knob_table import KNOBS, Knob
from slacktide.streams.decisions.cpu_list import cpu_list, cpu_ranges

CONTROL = {version: tuple(file for row in KNOBS.values() for file in row.files(version)) for version in (1, 2)}
"""Files that the agent writes; the kernel writes all others."""
_JIFFY_NS = 10_000_000


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
        for name, text in sys_cpu_texts(machine).items():
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
        for name, text in proc_texts(self.machine).items():
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
        return CONTROL[self.machine.version]

    def _texts(self, group: Group) -> dict[Path, str]:
        """Return the texts by file."""
        cpus = self.machine.effective_cpus(group.path)
        found = v1_texts(group, cpus) if self.machine.version == 1 else {"": v2_texts(group, cpus)}
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
        """Return the CPU set that was written; None: none. Raises CgroupError if it is no list of CPUs."""
        text = self._written[self._file(group, "cpuset.cpus")]
        cpus = cpu_list(text)
        if cpus is None:
            raise CgroupError("cpuset.cpus", f"invalid argument: {text!r}")
        return frozenset(cpus) or None

    def _take_over(self, group: Group) -> CgroupError | None:
        values = {name: self._written[self._file(group, name)] for name in self._control}
        try:
            if self.machine.version == 1:
                given_us = _number(values["cpu.cfs_quota_us"])
                quota_us, period_us = None if given_us < 0 else given_us, _number(values["cpu.cfs_period_us"])
                weight = values["cpu.shares"]
            else:
                words = values["cpu.max"].split()
                if not 1 <= len(words) <= 2:
                    return CgroupError("cpu.max", f"invalid argument: {values['cpu.max']!r}")
                quota_us = None if words[0] == "max" else _number(words[0])
                period_us = _number(words[1]) if words[1:] else group.period_us  # unchanged without a second word
                weight = values["cpu.weight"]
            self.machine.set_quota(group.path, quota_us, period_us)
            cpus = self._cpuset_asked(group)
            if cpus is not None:
                self.machine.set_cpusets({group.path: cpus})
            self.machine.set_weight(group.path, _number(weight))
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
        held = as_reads_back(knob, value, machine.version)
        assert not isinstance(held, str), "CPU sets have a model of their own"
        machine.groups[path].knobs[knob] = held


def v2_texts(group: Group, effective: frozenset[int]) -> dict[str, str]:
    """Return the text by file name for one cgroup; ``effective``: the CPUs that it may use."""
    mem_bytes, cache_bytes = group.sums()
    usage_us = group.usage_ns // 1000
    stat = {"usage_usec": usage_us, "user_usec": usage_us, "system_usec": 0}
    files = {"cgroup.controllers": "cpuset cpu memory", "cgroup.procs": "", "cpu.stat": _pairs(stat)}
    files["cpuset.cpus.effective"] = cpu_ranges(effective)
    if not group.path:
        return files
    stat |= {
        "nr_periods": group.periods,
        "nr_throttled": group.throttled_periods,
        "throttled_usec": group.throttled_ns // 1000,
    }
    quota = "max" if group.quota_us is None else str(group.quota_us)
    return files | {
        "cpu.stat": _pairs(stat),
        "cpu.max": f"{quota} {group.period_us}",
        "cpu.weight": str(group.weight),
        "cpuset.cpus": cpu_ranges(group.cpuset or ()),
        "memory.current": str(mem_bytes + cache_bytes),
        "cpu.max.burst": str(group.burst_us),
        **_held(group, 2),
        "memory.stat": _pairs({"anon": mem_bytes, "file": cache_bytes, "inactive_file": cache_bytes, "active_file": 0}),
    }


def v1_texts(group: Group, effective: frozenset[int]) -> dict[str, dict[str, str]]:
    """Return the text by hierarchy and file name for one cgroup; ``effective``: the CPUs that it may use."""
    mem_bytes, cache_bytes = group.sums()
    cpu_stat = {
        "nr_periods": group.periods,
        "nr_throttled": group.throttled_periods,
        "throttled_time": group.throttled_ns,
    }
    memory_stat = {"cache": cache_bytes, "rss": mem_bytes, "inactive_file": cache_bytes, "active_file": 0}
    return {
        "cpu": {
            "cgroup.procs": "",
            "cpu.cfs_quota_us": str(-1 if group.quota_us is None else group.quota_us),
            "cpu.cfs_period_us": str(group.period_us),
            "cpu.shares": str(group.weight),
            "cpu.cfs_burst_us": str(group.burst_us),
            **_held(group, 1, "cpu"),
            "cpu.stat": _pairs(cpu_stat),
        },
        "cpuset": {
            "cgroup.procs": "",
            "cpuset.cpus": cpu_ranges(group.cpuset or ()),
            "cpuset.effective_cpus": cpu_ranges(effective),
        },
        "cpuacct": {"cgroup.procs": "", "cpuacct.usage": str(group.usage_ns)},
        "memory": {
            "cgroup.procs": "",
            "memory.usage_in_bytes": str(mem_bytes + cache_bytes),
            **_held(group, 1, "memory"),
            "memory.stat": _pairs(memory_stat | {f"total_{name}": value for name, value in memory_stat.items()}),
        },
    }


def proc_texts(machine: Machine) -> dict[str, str]:
    """Return the text by path below /proc. IO is not modelled, so there is no IO pressure."""
    none = "avg10=0.00 avg60=0.00 avg300=0.00 total=0"
    return {
        "stat": _stat(machine),
        "meminfo": _meminfo(machine),
        "pressure/cpu": f"{machine.cpu_stall.line('some')}\nfull {none}",
        "pressure/memory": f"{machine.mem_stall.line('some')}\n{machine.mem_stall.line('full')}",
        "pressure/io": f"some {none}\nfull {none}",
    }


def sys_cpu_texts(machine: Machine) -> dict[str, str]:
    """Return the text by path below /sys/devices/system/cpu: the CPU topology."""
    found = {"online": cpu_ranges(range(machine.cpus))}
    for one in machine.processors:
        siblings = [other.cpu for other in machine.processors if other.core == one.core]
        found[f"cpu{one.cpu}/topology/thread_siblings_list"] = cpu_ranges(siblings)
        found[f"cpu{one.cpu}/topology/physical_package_id"] = str(one.socket)
        found[f"cpu{one.cpu}/node{one.numa_node}/cpulist"] = ""
    return found


def _number(text: str) -> int:
    """Parse a control file's number. Raises CgroupError where the kernel would return EINVAL."""
    try:
        return int(text)
    except ValueError:
        raise CgroupError("control file", f"invalid argument: {text!r}") from None


def _held(group: Group, version: int, *controllers: str) -> dict[str, str]:
    """Return the files of stored knobs; default: of all controllers."""
    files = {knob: file for knob, file in FILES[version].items() if knob in group.knobs}
    return {
        file.name: file.text(group.knobs[knob])
        for knob, file in files.items()
        if not controllers or file.controller in controllers
    }


def _pairs(figures: dict[str, int]) -> str:
    return "\n".join(f"{name} {value}" for name, value in figures.items())


def _stat(machine: Machine) -> str:
    """Format CPU times in jiffies. All use counts as user time, divided evenly among the CPUs."""
    user = machine.root.usage_ns // _JIFFY_NS
    idle = machine.cpus * machine.elapsed_ns // _JIFFY_NS - user
    lines = [f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0"]
    for cpu in range(machine.cpus):
        mine = [(figure + cpu) // machine.cpus for figure in (user, idle)]
        lines.append(f"cpu{cpu} {mine[0]} 0 0 {mine[1]} 0 0 0 0 0 0")
    return "\n".join([*lines, "ctxt 0", "btime 0", "processes 0"])


def _meminfo(machine: Machine) -> str:
    mem_bytes, cache_bytes = machine.root.sums()
    used_kib = min(mem_bytes, machine.mem_bytes) // 1024
    total_kib, cache_kib = machine.mem_bytes // 1024, cache_bytes // 1024
    figures = {
        "MemTotal": total_kib,
        "MemFree": total_kib - used_kib - cache_kib,
        "MemAvailable": total_kib - used_kib,
        "Buffers": 0,
        "Cached": cache_kib,
        "Active(file)": 0,
        "Inactive(file)": cache_kib,
        "Shmem": 0,
        "SReclaimable": 0,
    }
    return "\n".join(f"{name + ':':<16}{value:>8} kB" for name, value in figures.items())
