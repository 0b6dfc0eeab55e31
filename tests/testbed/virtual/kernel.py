"""Provides a virtual machine's kernel to the agent, in memory, for fast simulations. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.group_knobs import as_reads_back
from slacktide.agents.node.cgroup.plan import (
    PERIOD_FILE,
    Bandwidth,
    Clipped,
    Plan,
    plan_cpuset_v1,
    plan_cpuset_v2,
    plan_own_v1,
    plan_v1,
)
from slacktide.agents.node.interfaces import ContainersLook, Held, Reading
from slacktide.deploy.virtual.files import write
from slacktide.deploy.virtual.machine import BEST_EFFORT, Group, Machine
from slacktide.schemas.inventory import Pod, Processor
from slacktide.schemas.knob import KnobKey
from slacktide.schemas.knob_table import SHARES_MIN, Knob
from slacktide.schemas.sample import Limits, NodeUse, PodUse, Pressure
from slacktide.streams.decisions.cpu_list import cpu_list
from testbed.virtual import knobs
from testbed.virtual.best_effort import VirtualBestEffort
from testbed.virtual.containers import VirtualContainers


@dataclass(frozen=True, slots=True)
class _Counters:
    """A pod's counters at one reading; a restarted pod has another cgroup."""

    group: Group
    usage_ns: int
    periods: int | None
    throttled_periods: int | None


class VirtualKernel:
    """Implements ``slacktide.agents.node.interfaces.Kernel`` on a machine whose clock the caller advances."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.best_effort = VirtualBestEffort(machine)
        self._containers = VirtualContainers(machine)
        self._read_ns: int | None = None
        self._usage_ns = 0
        self._pods: dict[str, _Counters] = {}
        self._known: Mapping[str, Pod] = {}
        self._clipped: Mapping[PurePosixPath, Clipped] = {}

    def read(self, mono_ns: int) -> Reading:
        machine = self.machine
        interval_ns = 0 if self._read_ns is None else mono_ns - self._read_ns
        pods = {uid: _counters(machine.pods[uid]) for uid in sorted(machine.pods)}
        reading = Reading(
            interval_ms=interval_ns // 1_000_000,
            use=NodeUse(
                cpu_milli=_rate_milli(machine.root.usage_ns - self._usage_ns, interval_ns),
                mem_bytes=min(machine.mem_bytes, machine.root.sums()[0]),
                pressure=Pressure(
                    cpu_some_pct=machine.cpu_stall.avg10_pct,
                    mem_some_pct=machine.mem_stall.avg10_pct,
                    mem_full_pct=machine.mem_stall.avg10_pct,
                    io_some_pct=0.0,
                    io_full_pct=0.0,
                ),
            ),
            pod_use=[_pod_use(now, self._pods.get(uid), interval_ns) for uid, now in pods.items()],
            limits=self.limits(),
            missing=[],
        )
        self._read_ns, self._usage_ns, self._pods = mono_ns, machine.root.usage_ns, pods
        return reading

    def containers(self, pods: Sequence[Pod], mono_ns: int, spare: Collection[str] = ()) -> ContainersLook:
        return self._containers.look(pods, mono_ns)

    def limits(self) -> Limits:
        group = self.machine.best_effort
        cpus = group.cpuset or self.machine.effective_cpus(BEST_EFFORT)
        return Limits(be_cfs_quota_us=group.quota_us, be_cfs_period_us=group.period_us, be_cpuset=sorted(cpus))

    def processors(self) -> list[Processor]:
        return self.machine.processors

    def hold(self, limits: Limits) -> None:
        """Set the limits of the best-effort cgroup.

        On cgroup v1, child pods with higher limits are lowered first, and restored with a raise.
        """
        wanted = Bandwidth(limits.be_cfs_quota_us, limits.be_cfs_period_us)
        if self.machine.version == 1:
            self._settle(plan_v1(self._bandwidths(), wanted, self._clipped))
        else:
            self.machine.set_quota(BEST_EFFORT, wanted.quota_us, wanted.period_us)
        if limits.be_cpuset is not None:
            self._bind(frozenset(limits.be_cpuset))

    def know(self, pods: Sequence[Pod]) -> None:
        """Set the pods of the node; knobs of others are neither read nor set."""
        self._known = {pod.uid: pod for pod in pods}

    def held(self, keys: Iterable[KnobKey]) -> Held:
        """Return the current values of knobs. A pod is one cgroup here, without containers."""
        values: dict[KnobKey, int | None] = {}
        lacking: dict[KnobKey, str] = {}
        for key in keys:
            place = knobs.place(self.machine, self._known, key.group)
            if place is None:
                continue
            if knobs.lacks(self.machine, key.knob):
                lacking[key] = f"cgroup v{self.machine.version} does not have it"
            elif key.knob == "cfs_quota_us":
                values[key] = self._own(place.path).quota_us
            else:
                values[key] = knobs.read(self.machine, str(place.path), key.knob)
        return Held(values=values, lacking=lacking)

    def put(self, key: KnobKey, value: int | None) -> None:
        """Set a knob; None: unlimited."""
        place = knobs.checked(self.machine, self._known, key, value)
        if key.knob != "cfs_quota_us":
            write(self.machine, str(place.path), key.knob, value)
            if key.knob == "cpu_idle" and not value:  # as on a real node: the kubelet's weight is restored
                write(self.machine, str(place.path), "cpu_shares", SHARES_MIN)
        elif self.machine.version == 1 and place.base.is_relative_to(BEST_EFFORT):
            group = place.path.relative_to(BEST_EFFORT)
            self._settle(plan_own_v1(self._bandwidths(), group, Bandwidth(value, 100_000), self._clipped))
        else:
            self.machine.set_quota(str(place.path), value)

    def as_reads_back(self, knob: Knob, value: int | None) -> int | None:
        return as_reads_back(knob, value, self.machine.version)

    def _own(self, path: PurePosixPath) -> Bandwidth:
        """Return a cgroup's value, or its value before it was lowered to fit."""
        group = self.machine.groups[str(path)]
        now = Bandwidth(group.quota_us, group.period_us)
        known = self._clipped.get(path.relative_to(BEST_EFFORT)) if path.is_relative_to(BEST_EFFORT) else None
        return known.own if known is not None and now in known.ours else now

    def _bandwidths(self) -> dict[PurePosixPath, Bandwidth]:
        return {
            PurePosixPath(group.path).relative_to(BEST_EFFORT): Bandwidth(group.quota_us, group.period_us)
            for group in self.machine.best_effort.walk()
        }

    def _settle(self, plan: Plan) -> None:
        for each in plan.writes:
            group = self.machine.groups[str(PurePosixPath(BEST_EFFORT, each.group))]
            if each.file == PERIOD_FILE:
                self.machine.set_quota(group.path, group.quota_us, int(each.text))
            else:
                self.machine.set_quota(group.path, None if each.text == "-1" else int(each.text), group.period_us)
        self._clipped = plan.after

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
