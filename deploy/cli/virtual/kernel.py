"""A virtual machine's kernel as the agent sees it, in memory: no files, so that a simulation runs fast. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.plan_cpuset import plan_cpuset_v1, plan_cpuset_v2
from slacktide.agents.node.kernel import Reading
from slacktide.deploy.cli.virtual.machine import BEST_EFFORT, Group, Machine
from slacktide.deploy.cli.virtual.stall import Stall
from slacktide.schemas.inventory import Processor
from slacktide.schemas.sample import Limits, NodeUse, PodUse, Pressure
from slacktide.streams.decisions.cpu_list import cpu_list


@dataclass(frozen=True, slots=True)
class _Counters:
    """A pod's counters at one reading; a pod under the same uid, but started anew, is another group."""

    group: Group
    usage_ns: int
    periods: int | None
    throttled_periods: int | None


class VirtualKernel:
    """Implements ``slacktide.agents.node.kernel.Kernel`` on a machine whose time the caller moves."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._read_ns: int | None = None
        self._usage_ns = 0
        self._pods: dict[str, _Counters] = {}

    def read(self, mono_ns: int) -> Reading:
        """Read every figure once; rates since the previous reading."""
        machine = self.machine
        interval_ns = 0 if self._read_ns is None else mono_ns - self._read_ns
        pods = {uid: _counters(machine.pods[uid]) for uid in sorted(machine.pods)}
        reading = Reading(
            interval_ms=interval_ns // 1_000_000,
            use=NodeUse(
                cpu_milli=_rate_milli(machine.root.usage_ns - self._usage_ns, interval_ns),
                mem_bytes=min(machine.mem_bytes, machine.root.sums()[0]),
                pressure=_pressure(machine.cpu_stall, machine.mem_stall),
            ),
            pod_use=[_pod_use(now, self._pods.get(uid), interval_ns) for uid, now in pods.items()],
            limits=self.limits(),
            missing=[],
        )
        self._read_ns, self._usage_ns, self._pods = mono_ns, machine.root.usage_ns, pods
        return reading

    def limits(self) -> Limits:
        """What the best-effort group holds now."""
        group = self.machine.best_effort
        cpus = group.cpuset or self.machine.effective_cpus(BEST_EFFORT)
        return Limits(be_cfs_quota_us=group.quota_us, be_cfs_period_us=group.period_us, be_cpuset=sorted(cpus))

    def processors(self) -> list[Processor]:
        """The machine's CPUs."""
        return self.machine.processors

    def hold(self, limits: Limits) -> None:
        """Make the best-effort group hold these limits.

        On cgroup v1 pods below it that hold more are cut first, for the kernel refuses a child above its parent.

        Raises:
            CgroupError: the model refuses it as the kernel would.

        """
        machine, quota_us, period_us = self.machine, limits.be_cfs_quota_us, limits.be_cfs_period_us
        if machine.version == 1 and quota_us is not None:
            for pod in machine.best_effort.children:
                if pod.quota_us is not None and pod.quota_us * period_us > quota_us * pod.period_us:
                    machine.set_quota(pod.path, quota_us, period_us)
        machine.set_quota(BEST_EFFORT, quota_us, period_us)
        if limits.be_cpuset is not None:
            self._bind(frozenset(limits.be_cpuset))

    def _bind(self, cpus: frozenset[int]) -> None:
        machine = self.machine
        below = machine.best_effort.walk() if machine.version == 1 else ()
        held = {PurePosixPath(group.path).relative_to(BEST_EFFORT): group.cpuset or frozenset() for group in below}
        plan = plan_cpuset_v1(held, cpus) if held else plan_cpuset_v2(cpus)
        machine.set_cpusets(
            {str(PurePosixPath(BEST_EFFORT, write.group)): frozenset(cpu_list(write.text) or ()) for write in plan}
        )


def _counters(group: Group) -> _Counters:
    limited = group.quota_us is not None
    return _Counters(
        group, group.usage_ns, group.periods if limited else None, group.throttled_periods if limited else None
    )


def _pod_use(now: _Counters, before: _Counters | None, interval_ns: int) -> PodUse:
    group = now.group
    same = before is not None and before.group is group
    return PodUse(
        uid=group.uid,
        cpu_milli=_rate_milli(now.usage_ns - before.usage_ns, interval_ns) if before and same else None,
        mem_bytes=group.mem_bytes,
        periods=_since(now.periods, before.periods) if before and same else None,
        throttled_periods=_since(now.throttled_periods, before.throttled_periods) if before and same else None,
        best_effort_group=group.path.startswith(f"{BEST_EFFORT}/"),
    )


def _rate_milli(used_ns: int, interval_ns: int) -> int | None:
    return used_ns * 1000 // interval_ns if interval_ns > 0 else None


def _since(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _pressure(cpu: Stall, mem: Stall) -> Pressure:
    return Pressure(
        cpu_some_pct=cpu.avg10_pct,
        mem_some_pct=mem.avg10_pct,
        mem_full_pct=mem.avg10_pct,
        io_some_pct=0.0,
        io_full_pct=0.0,
    )
