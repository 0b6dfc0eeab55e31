"""PURE: the control files that Slacktide writes, and the controllers that they belong to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller of control groups."""

    name: str
    needed: str
    required: bool
    """Whether an agent can do its work without it."""


CONTROLLERS = (
    Controller(name="cpu", needed="to hold best-effort CPU", required=True),
    Controller(name="cpuacct", needed="to know what each pod uses", required=True),
    Controller(name="memory", needed="to know each pod's memory", required=False),
    Controller(name="cpuset", needed="for cpuSuppressPolicy cpuset", required=False),
    Controller(name="freezer", needed="to stop best-effort pods for whose eviction credit lacks", required=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One thing that can be set on a group, in the words of each version."""

    name: str
    controller: str
    v1: tuple[str, ...]
    v2: tuple[str, ...]
    needed: str
    required: bool = False
    """Whether an agent can do its work without it."""
    absent: str
    """What to do where the kernel has no such file."""

    def files(self, version: int) -> tuple[str, ...]:
        """Its files; none: that version has no such knob."""
        return self.v1 if version == 1 else self.v2


_BANDWIDTH = "use a kernel with CONFIG_CFS_BANDWIDTH"
_SHARES = "use a kernel with CONFIG_FAIR_GROUP_SCHED"

KNOBS = (
    Knob(
        name="cpu-quota",
        controller="cpu",
        v1=("cpu.cfs_quota_us", "cpu.cfs_period_us"),
        v2=("cpu.max",),
        needed="to hold best-effort CPU",
        required=True,
        absent=_BANDWIDTH,
    ),
    Knob(
        name="cpu-weight",
        controller="cpu",
        v1=("cpu.shares",),
        v2=("cpu.weight",),
        needed="so that best-effort pods share by what they bought",
        absent=_SHARES,
    ),
    Knob(
        name="cpu-burst",
        controller="cpu",
        v1=("cpu.cfs_burst_us",),
        v2=("cpu.max.burst",),
        needed="for CPU burst",
        absent="use kernel 5.14 or newer",
    ),
    Knob(
        name="cpu-idle",
        controller="cpu",
        v1=("cpu.idle",),
        v2=("cpu.idle",),
        needed="for schedIdle: best-effort pods only on idle CPUs",
        absent="use kernel 5.15 or newer",
    ),
    Knob(
        name="cpu-set",
        controller="cpuset",
        v1=("cpuset.cpus",),
        v2=("cpuset.cpus",),
        needed="for cpuSuppressPolicy cpuset",
        absent="see controller.cpuset",
    ),
    Knob(
        name="memory-limit",
        controller="memory",
        v1=("memory.limit_in_bytes",),
        v2=("memory.max",),
        needed="to hold best-effort pods to the memory they bought",
        absent="see controller.memory",
    ),
    Knob(
        name="memory-high",
        controller="memory",
        v1=(),
        v2=("memory.high",),
        needed="for memoryQOS: slow down what nears its limit",
        absent="see controller.memory",
    ),
    Knob(
        name="freeze",
        controller="freezer",
        v1=("freezer.state",),
        v2=("cgroup.freeze",),
        needed="to stop best-effort pods for whose eviction credit lacks",
        absent="use kernel 5.2 or newer (cgroup v2), or see controller.freezer (v1)",
    ),
)
