"""Models a small kernel: CPU by weight, quota and CPU set, memory, pressure. Pure.

The tree is the kubelet's: root > {system, kubepods}, kubepods > {guaranteed pods, burstable, besteffort} > pods. Pods
are leaves and demand CPU. Every cgroup may have a quota. Within a step each cgroup gets its water-filled share, so a
quota throttles evenly. Not modelled: swap, OOM kills, threads (a pod can use every CPU), IO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp

from slacktide.agents.node.cgroup.group_knobs import weight_of
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Processor
from slacktide.schemas.knob_table import KNOBS, QUOTA_US_MIN, SHARES_MAX, SHARES_MIN, Knob

_SPANS_S = (10, 60, 300)
ROOT, SYSTEM, KUBEPODS = "", "system", "kubepods"
PARENT_OF_QOS = {"Guaranteed": KUBEPODS, "Burstable": f"{KUBEPODS}/burstable", "BestEffort": f"{KUBEPODS}/besteffort"}
BEST_EFFORT = PARENT_OF_QOS["BestEffort"]
MODELLED: frozenset[Knob] = frozenset({"cfs_quota_us", "cpu_shares", "cfs_burst_us", "cpus"})
HELD = tuple(knob for knob in KNOBS if knob not in MODELLED)
_PERIOD_US_MAX = 1_000_000
"""The kernel accepts periods from 1 ms to 1 s."""


@dataclass(slots=True)
class Stall:
    """Running averages of the stalled part of time, and its total."""

    averages: list[float] = field(default_factory=lambda: [0.0] * len(_SPANS_S))
    """The averages over 10, 60 and 300 s, 0 to 1."""
    total_us: int = 0

    def step(self, dt_ms: int, part: float) -> None:
        """Advance the clock; ``part`` (0 to 1) of the time was stalled."""
        for place, span_s in enumerate(_SPANS_S):
            kept = exp(-dt_ms / 1000 / span_s)
            self.averages[place] = self.averages[place] * kept + part * (1 - kept)
        self.total_us += int(part * dt_ms * 1000)

    @property
    def avg10_pct(self) -> float:
        """Return the percentage over the last 10 s, rounded to two digits as in the kernel."""
        return round(self.averages[0] * 100, 2)

    def line(self, kind: str) -> str:
        """Format one line of a pressure file, e.g. of kind ``some``."""
        figures = " ".join(f"avg{s}={avg * 100:.2f}" for s, avg in zip(_SPANS_S, self.averages, strict=True))
        return f"{kind} {figures} total={self.total_us}"


def share(supply: int, wants: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Divide ``supply`` by weight. Unused parts are divided among the others (water-filling).

    Exact in whole units: each share is at most its demand, and ``min(supply, sum(wants))`` is distributed.
    """
    if supply >= sum(wants):
        return list(wants)
    gives = [0] * len(wants)
    # Lowest demand per weight first: the rest raises the level for the others.
    order = sorted(range(len(wants)), key=lambda place: (wants[place] / weights[place], place))
    left, weights_left = supply, sum(weights)
    for place in order:
        give = min(wants[place], left * weights[place] // weights_left)
        gives[place] = give
        left -= give
        weights_left -= weights[place]
    # Distribute the remainder of rounding down.
    for place in order:
        extra = min(left, wants[place] - gives[place])
        gives[place] += extra
        left -= extra
    return gives


@dataclass(slots=True)
class Group:
    """One cgroup. Counters only increase."""

    path: str
    weight: int
    """cpu.shares on v1, cpu.weight on v2."""
    uid: str = ""
    """The pod's uid, for a pod's cgroup."""
    request_milli: int = 0
    quota_us: int | None = None
    period_us: int = 100_000
    cpuset: frozenset[int] | None = None
    """None: inherited. Only the number of usable CPUs is modelled."""
    burst_us: int = 0
    knobs: dict[Knob, int | None] = field(default_factory=lambda: {knob: KNOBS[knob].default for knob in HELD})
    """Stored without effect."""
    demand_milli: int = 0
    """A leaf's use if it were alone."""
    mem_bytes: int = 0
    """Working set of a leaf."""
    cache_bytes: int = 0
    """Page cache of a leaf that can be dropped."""
    frozen: bool = False
    """A frozen leaf uses no CPU, and keeps its memory."""
    linger_ms: int | None = 0
    """Time that a pod runs after SIGTERM; None: until SIGKILL."""
    ends_ns: int | None = None
    """The end of the pod, in machine time; None: not terminated."""
    children: list[Group] = field(default_factory=list)
    usage_ns: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled_ns: int = 0
    _period_ns: int = 0
    _want_ns: int = 0
    _asked_ns: int = 0
    _able_ns: int = 0

    def walk(self) -> Iterator[Group]:
        """Yield the cgroup and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def sums(self) -> tuple[int, int]:
        """Sum the working set and page cache of the subtree, bytes."""
        mem_bytes, cache_bytes = self.mem_bytes, self.cache_bytes
        for child in self.children:
            below = child.sums()
            mem_bytes += below[0]
            cache_bytes += below[1]
        return mem_bytes, cache_bytes

    def ask(self, dt_ns: int) -> int:
        """Compute the subtree's demand in this step under CPU sets and quotas, CPU nanoseconds."""
        asked_ns = 0 if self.frozen else self.demand_milli * dt_ns // 1000
        for child in self.children:
            asked_ns += child.ask(dt_ns)
        self._asked_ns = asked_ns
        self._able_ns = asked_ns if self.cpuset is None else min(asked_ns, len(self.cpuset) * dt_ns)
        self._want_ns = self._able_ns
        if self.quota_us is not None:
            self._want_ns = min(self._able_ns, self.quota_us * dt_ns // self.period_us)
        return self._want_ns

    def give(self, supply_ns: int, dt_ns: int) -> int:
        """Distribute CPU to the subtree; return the unmet demand, CPU nanoseconds."""
        self.usage_ns += supply_ns
        if self.quota_us is not None and self._asked_ns:
            self._count_periods(dt_ns, held_back_ns=self._able_ns - supply_ns if supply_ns == self._want_ns else 0)
        if not self.children:
            return self._asked_ns - supply_ns
        wants = [child._want_ns for child in self.children]  # noqa: SLF001
        gives = share(supply_ns, wants, [child.weight for child in self.children])
        missed_ns = 0
        for child, given_ns in zip(self.children, gives, strict=True):
            missed_ns += child.give(given_ns, dt_ns)
        return missed_ns

    def _count_periods(self, dt_ns: int, held_back_ns: int) -> None:
        self._period_ns += dt_ns
        periods, self._period_ns = divmod(self._period_ns, self.period_us * 1_000)
        self.periods += periods
        if held_back_ns > 0:
            self.throttled_periods += periods
            self.throttled_ns += held_back_ns


class Machine:
    """A virtual machine. The caller sets demands, then advances the clock."""

    def __init__(self, *, cpus: int, mem_bytes: int, version: int = 2) -> None:
        """Create an idle machine with the kubelet's cgroups (version 1 or 2) and no pods."""
        self.cpus = cpus
        self.mem_bytes = mem_bytes
        self.version = version
        self.elapsed_ns = 0
        self.cpu_stall, self.mem_stall = Stall(), Stall()
        self.root = Group(ROOT, self.weight_of(cpus * 1000), cpuset=frozenset(range(cpus)))
        self.groups: dict[str, Group] = {ROOT: self.root}
        self.pods: dict[str, Group] = {}
        self._add(ROOT, SYSTEM, self.weight_of(1000))
        self._add(ROOT, KUBEPODS, self.weight_of(cpus * 1000))
        for path in (PARENT_OF_QOS["Burstable"], BEST_EFFORT):
            self._add(KUBEPODS, path, self.weight_of(0))

    @property
    def system(self) -> Group:
        """Return the cgroup of everything outside of pods: a leaf."""
        return self.groups[SYSTEM]

    @property
    def best_effort(self) -> Group:
        """Return the cgroup of all best-effort pods."""
        return self.groups[BEST_EFFORT]

    @property
    def processors(self) -> list[Processor]:
        """Return cores with two CPUs each, on two sockets from eight CPUs on."""
        half = self.cpus if self.cpus < 8 else (self.cpus + 3) // 4 * 2
        return [
            Processor(cpu=cpu, core=cpu // 2 * 2, socket=cpu // half, numa_node=cpu // half) for cpu in range(self.cpus)
        ]

    def effective_cpus(self, path: str) -> frozenset[int]:
        """Return the CPUs of a cgroup, intersected with those of its ancestors."""
        if not path:
            return self.root.cpuset or frozenset()
        above = self.effective_cpus(path.rpartition("/")[0])
        group = self.groups.get(path)  # a removed cgroup has no CPUs
        return above if group is None or group.cpuset is None else group.cpuset & above or above

    def weight_of(self, request_milli: int) -> int:
        """Return the kubelet's weight for a CPU request, in the unit of the cgroup version."""
        shares = max(SHARES_MIN, request_milli * 1024 // 1000)
        return shares if self.version == 1 else weight_of(shares)

    def add_pod(self, uid: str, kube_qos: str, *, request_milli: int = 0, limit_milli: int | None = None) -> Group:
        """Start an idle pod; the caller sets its demand and memory."""
        path = f"{PARENT_OF_QOS[kube_qos]}/pod{uid}"
        pod = self._add(PARENT_OF_QOS[kube_qos], path, self.weight_of(request_milli))
        pod.uid, pod.request_milli = uid, request_milli
        pod.quota_us = None if limit_milli is None else max(QUOTA_US_MIN, limit_milli * pod.period_us // 1000)
        self.pods[uid] = pod
        self._weigh_burstable()
        return pod

    def remove_pod(self, uid: str) -> None:
        """Remove a pod; its ancestors keep its use."""
        pod = self.pods.pop(uid)
        del self.groups[pod.path]
        self.groups[pod.path.rpartition("/")[0]].children.remove(pod)
        self._weigh_burstable()

    def terminate_pod(self, uid: str) -> None:
        """Send a pod SIGTERM; it ends as the clock advances."""
        pod = self.pods[uid]
        if pod.ends_ns is None and pod.linger_ms is not None:
            pod.ends_ns = self.elapsed_ns + pod.linger_ms * 1_000_000

    def set_quota(self, path: str, quota_us: int | None, period_us: int = 100_000) -> None:
        """Limit a cgroup's CPU time, like a write to its control file.

        Raises CgroupError if the cgroup is missing, or the kernel would return EINVAL: out of range, or on v1 a child
        would exceed its parent.
        """
        group = self.groups.get(path)
        if group is None:
            raise CgroupError(path, "no such cgroup")
        least_us = max(QUOTA_US_MIN, group.burst_us)
        if not QUOTA_US_MIN <= period_us <= _PERIOD_US_MAX or (quota_us is not None and quota_us < least_us):
            raise CgroupError(path, f"invalid argument: quota {quota_us} us in a period of {period_us} us")
        before = group.quota_us, group.period_us
        group.quota_us, group.period_us = quota_us, period_us
        if self.version == 1 and not _nested(self.root, None):
            group.quota_us, group.period_us = before
            raise CgroupError(path, f"invalid argument: quota {quota_us} us: a child would have more than its parent")

    def set_cpusets(self, cpusets: Mapping[str, frozenset[int]]) -> None:
        """Bind cgroups to CPUs, as by writes to their control files in order.

        Raises CgroupError if a set is empty, or has an unknown CPU, or on v1 a CPU that the parent lacks.
        """
        for path in cpusets.keys() - self.groups.keys():
            raise CgroupError(path, "no such cgroup")
        before = {path: self.groups[path].cpuset for path in cpusets}
        for path, cpus in cpusets.items():
            self.groups[path].cpuset = cpus
        wrong = [path for path, cpus in cpusets.items() if not cpus or max(cpus) >= self.cpus]
        if self.version == 1:
            wrong += [child.path for group in self.root.walk() for child in group.children if not _bound(child, group)]
        if wrong:
            for path, cpus_before in before.items():
                self.groups[path].cpuset = cpus_before
            raise CgroupError(wrong[0], "invalid argument: CPUs that the cgroup may not use")

    def set_weight(self, path: str, weight: int) -> None:
        """Set a cgroup's weight, like a write to its control file. Raises CgroupError if out of the kernel's range."""
        low, high = (SHARES_MIN, SHARES_MAX) if self.version == 1 else (1, 10_000)
        if not low <= weight <= high:
            raise CgroupError(path, f"invalid argument: weight {weight}: accepted: {low} to {high}")
        self.groups[path].weight = weight

    def set_burst(self, path: str, burst_us: int) -> None:
        """Set a cgroup's CPU burst, like a write to its control file. Raises CgroupError if it exceeds the quota."""
        quota_us = self.groups[path].quota_us
        if burst_us < 0 or (quota_us is not None and burst_us > quota_us):
            raise CgroupError(path, f"invalid argument: burst {burst_us} us over a quota of {quota_us} us")
        self.groups[path].burst_us = burst_us

    def step(self, dt_ms: int) -> None:
        """Advance the clock under the current demands and quotas."""
        dt_ns = dt_ms * 1_000_000
        supply_ns = min(self.root.ask(dt_ns), self.cpus * dt_ns)
        missed_ns = self.root.give(supply_ns, dt_ns)
        self.elapsed_ns += dt_ns
        self.cpu_stall.step(dt_ms, missed_ns / (missed_ns + supply_ns) if missed_ns else 0.0)
        self.mem_stall.step(dt_ms, self._reclaim())
        for pod in list(self.pods.values()):
            if pod.ends_ns is not None and pod.ends_ns <= self.elapsed_ns and not pod.frozen:
                self.remove_pod(pod.uid)

    def _reclaim(self) -> float:
        """Drop page cache that does not fit. Returns the part of the working sets that does not fit."""
        mem_bytes, cache_bytes = self.root.sums()
        room_bytes = max(0, self.mem_bytes - mem_bytes)
        if cache_bytes > room_bytes:
            for leaf in self.root.walk():
                leaf.cache_bytes = leaf.cache_bytes * room_bytes // cache_bytes
        return max(0, mem_bytes - self.mem_bytes) / mem_bytes if mem_bytes else 0.0

    def _weigh_burstable(self) -> None:
        """Set the weight of burstable pods by their total request, as the kubelet does."""
        burstable = self.groups[PARENT_OF_QOS["Burstable"]]
        burstable.weight = self.weight_of(sum(pod.request_milli for pod in burstable.children))

    def _add(self, parent: str, path: str, weight: int) -> Group:
        if path in self.groups:
            raise CgroupError(path, "exists")
        group = self.groups[path] = Group(path, weight)
        if self.version == 1:  # on v1 the kubelet and its runtime copy it from the parent
            group.cpuset = self.groups[parent].cpuset
        self.groups[parent].children.append(group)
        return group


def _bound(child: Group, group: Group) -> bool:
    """Return whether the child's CPUs are a subset of the parent's: cgroup v1's rule."""
    return child.cpuset is None or group.cpuset is None or child.cpuset <= group.cpuset


def _nested(group: Group, above: Fraction | None) -> bool:
    """Return whether no descendant exceeds its parent: cgroup v1's rule. None: unlimited."""
    rate = above
    if group.quota_us is not None:
        rate = Fraction(group.quota_us, group.period_us)
        if above is not None and rate > above:
            return False
    return all(_nested(child, rate) for child in group.children)
