"""The kernel's files of a virtual machine: cgroup v1, v2 and /proc as text. Pure."""

from __future__ import annotations

from slacktide.agents.node.cgroup.group_knobs import FILES
from slacktide.deploy.virtual.machine import Group, Machine
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.knob_table import CONTROLS
from slacktide.streams.decisions.cpu_list import cpu_list, cpu_ranges

CONTROL = {
    version: tuple(file for row in CONTROLS if row.controller != "freezer" for file in row.files(version))
    for version in (1, 2)
}
"""Files that the agent writes; the kernel writes all others."""
_JIFFY_NS = 10_000_000


def v2(group: Group, effective: frozenset[int]) -> dict[str, str]:
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


def v1(group: Group, effective: frozenset[int]) -> dict[str, dict[str, str]]:
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


def proc(machine: Machine) -> dict[str, str]:
    """Return the text by path below /proc. IO is not modelled, so there is no IO pressure."""
    none = "avg10=0.00 avg60=0.00 avg300=0.00 total=0"
    return {
        "stat": _stat(machine),
        "meminfo": _meminfo(machine),
        "pressure/cpu": f"{machine.cpu_stall.line('some')}\nfull {none}",
        "pressure/memory": f"{machine.mem_stall.line('some')}\n{machine.mem_stall.line('full')}",
        "pressure/io": f"some {none}\nfull {none}",
    }


def sys_cpu(machine: Machine) -> dict[str, str]:
    """Return the text by path below /sys/devices/system/cpu: the CPU topology."""
    found = {"online": cpu_ranges(range(machine.cpus))}
    for one in machine.processors:
        siblings = [other.cpu for other in machine.processors if other.core == one.core]
        found[f"cpu{one.cpu}/topology/thread_siblings_list"] = cpu_ranges(siblings)
        found[f"cpu{one.cpu}/topology/physical_package_id"] = str(one.socket)
        found[f"cpu{one.cpu}/node{one.numa_node}/cpulist"] = ""
    return found


def cpuset_of(text: str) -> frozenset[int] | None:
    """Parse ``cpuset.cpus``; None: empty. Raises CgroupError if it is not a list of CPUs."""
    cpus = cpu_list(text)
    if cpus is None:
        raise CgroupError("cpuset.cpus", f"invalid argument: {text!r}")
    return frozenset(cpus) or None


def quota_of_v1(quota: str, period: str) -> tuple[int | None, int]:
    """Parse quota (None: unlimited) and period in microseconds, from both files. Raises CgroupError."""
    quota_us = number(quota)
    return None if quota_us < 0 else quota_us, number(period)


def quota_of_v2(text: str, period_us: int) -> tuple[int | None, int]:
    """Parse quota and period of ``cpu.max``. Without a second word the period is unchanged. Raises CgroupError."""
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise CgroupError("cpu.max", f"invalid argument: {text!r}")
    quota_us = None if words[0] == "max" else number(words[0])
    return quota_us, number(words[1]) if words[1:] else period_us


def number(text: str) -> int:
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
