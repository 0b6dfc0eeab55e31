"""The table of knobs: files, range, cgroups and requirements of each.

Rules, the agent's writer and permission check, doctor and the kernel model read it. A new knob needs a row here, a rule
and a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Knob = Literal[
    "cpu_shares",
    "cfs_quota_us",
    "cfs_burst_us",
    "cpu_idle",
    "mem_limit_bytes",
    "mem_min_bytes",
    "mem_low_bytes",
    "mem_high_bytes",
    "cpus",
]
"""Knobs in messages, in units independent of the cgroup version: weights are v1 shares, quotas per 100 ms.

``cpus`` is a list such as ``0-3,6``.
"""
GroupKind = Literal["best-effort tier", "other tier", "best-effort pod", "other pod"]
"""A container counts as its pod."""
Unit = Literal["number", "shares", "bytes", "bandwidth", "cpus"]
"""``bytes`` come in pages; ``bandwidth`` is a quota with its period; ``shares`` are a weight on v2; ``cpus`` is a list
of CPUs."""

SHARES_MIN = 2
SHARES_MAX = 262_144
"""The kernel's maximum."""
QUOTA_US_MIN = 1_000
"""The kernel's minimum."""
PAGE_BYTES = 4_096
_BYTES_MAX = 1 << 60
_BEST_EFFORT: frozenset[GroupKind] = frozenset({"best-effort tier", "best-effort pod"})
_PODS: frozenset[GroupKind] = frozenset({"best-effort pod", "other pod"})
_ANY: frozenset[GroupKind] = _BEST_EFFORT | _PODS | {"other tier"}
_MEMORY = "see controller.memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One setting of a cgroup."""

    name: str
    """Its name in doctor."""
    controller: Literal["cpu", "cpuset", "memory", "freezer"]
    v1: tuple[str, ...] = ()
    """Its files; empty: the version lacks the knob."""
    v2: tuple[str, ...] = ()
    needed: str
    required: bool = False
    """Whether agents need it."""
    absent: str
    """Advice if the kernel lacks the file."""

    def files(self, version: int) -> tuple[str, ...]:
        """Its files in this version of cgroups."""
        return self.v1 if version == 1 else self.v2


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRow(Control):
    """A control with one value, which is used in messages."""

    unit: Unit = "number"
    low: int = 0
    high: int = _BYTES_MAX
    default: int | None
    """Value to restore. None: unlimited, which may be set, too."""
    groups: frozenset[GroupKind]
    """The only cgroups in which it is written."""
    from_spec: bool = False
    """Whether the kubelet sets it on pods that are not best-effort, so that ``default`` is not restored there."""


# fmt: off
KNOBS: Mapping[Knob, KnobRow] = {
    "cfs_quota_us": KnobRow(
        name="cpu-quota", controller="cpu", v1=("cpu.cfs_quota_us", "cpu.cfs_period_us"), v2=("cpu.max",),
        unit="bandwidth", low=QUOTA_US_MIN, high=1 << 43, default=None, from_spec=True, groups=_PODS,
        needed="to limit best-effort CPU", required=True, absent="use a kernel with CONFIG_CFS_BANDWIDTH"),
    "cpu_shares": KnobRow(
        name="cpu-weight", controller="cpu", v1=("cpu.shares",), v2=("cpu.weight",),
        unit="shares", low=SHARES_MIN, high=SHARES_MAX, default=SHARES_MIN, from_spec=True, groups=_BEST_EFFORT,
        needed="to share CPU among best-effort pods by their requests",
        absent="use a kernel with CONFIG_FAIR_GROUP_SCHED"),
    "cfs_burst_us": KnobRow(
        name="cpu-burst", controller="cpu", v1=("cpu.cfs_burst_us",), v2=("cpu.max.burst",),
        default=0, groups=_PODS - _BEST_EFFORT,
        needed="for CPU burst", absent="use kernel 5.14 or newer"),
    "cpu_idle": KnobRow(
        name="cpu-idle", controller="cpu", v1=("cpu.idle",), v2=("cpu.idle",),
        high=1, default=0, from_spec=True, groups=_BEST_EFFORT,
        needed="for schedIdle: run best-effort pods only on idle CPUs", absent="use kernel 5.15 or newer"),
    "mem_limit_bytes": KnobRow(
        name="memory-limit", controller="memory", v1=("memory.limit_in_bytes",), v2=("memory.max",),
        unit="bytes", low=PAGE_BYTES, default=None, from_spec=True, groups=_BEST_EFFORT & _PODS,
        needed="to limit the memory of best-effort pods to their limits", absent=_MEMORY),
    "mem_min_bytes": KnobRow(
        name="memory-min", controller="memory", v2=("memory.min",), unit="bytes", default=0, groups=_ANY,
        needed="for memoryQOS: memory that is never reclaimed", absent=_MEMORY),
    "mem_low_bytes": KnobRow(
        name="memory-low", controller="memory", v2=("memory.low",), unit="bytes", default=0, groups=_ANY,
        needed="for memoryQOS: memory that is reclaimed last", absent=_MEMORY),
    "mem_high_bytes": KnobRow(
        name="memory-high", controller="memory", v2=("memory.high",),
        unit="bytes", low=PAGE_BYTES, default=None, groups=_PODS,
        needed="for memoryQOS: throttle pods that approach their limit", absent=_MEMORY),
    "cpus": KnobRow(
        name="cpu-set", controller="cpuset", v1=("cpuset.cpus",), v2=("cpuset.cpus",),
        unit="cpus", default=None, groups=_PODS - _BEST_EFFORT,
        needed="for cpuSuppressPolicy cpuset", absent="see controller.cpuset"),
}
CONTROLS: tuple[Control, ...] = (
    *KNOBS.values(),
    Control(
        name="freeze", controller="freezer", v1=("freezer.state",), v2=("cgroup.freeze",),
        needed="to freeze best-effort pods that lack eviction credit",
        absent="use kernel 5.2 or newer (cgroup v2), or see controller.freezer (v1)"),
    Control(
        name="memory-reclaim", controller="memory", v2=("memory.reclaim",),
        needed="to reclaim memory of best-effort pods before any is evicted",
        absent="use kernel 5.19 or newer, or see controller.memory"),
)
# fmt: on
