"""What a node's services ran and waited in a minute: counters of their pods' cgroups, and their rise."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.files import read_once
from slacktide.agents.node.cgroup.hierarchy import BURSTABLE, GUARANTEED, Hierarchy
from slacktide.agents.node.pressure import CpuTimeFile, LatencySensitiveUse
from slacktide.agents.node.run_delay import groups_of, throttled_us
from slacktide.schemas.bounds import CPUS_MAX
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.service import SERVICE_CHARS_MAX, ServiceMinute


def service_of(pod: Pod) -> str:
    """Return the service that a pod belongs to, ``namespace/owner``; "": none."""
    service = f"{pod.namespace}/{pod.owner}" if pod.owner else ""
    return service if len(service) <= SERVICE_CHARS_MAX else ""


class PodTimes(NamedTuple):
    """Counters of one pod's cgroup since its creation."""

    run_us: int
    stall_us: int
    """PSI ``some`` for CPU, with the time for which limits throttled the pod."""
    mem_stall_us: int
    throttled_us: Mapping[str, int]
    """By cgroup: the pod's and each container's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """Counters at one time."""

    mono_ns: int
    be_cpu_us: int
    """Of all best-effort pods."""
    ls_cpu_us: int
    """Of all other pods."""
    pods: Mapping[str, PodTimes]
    """Of latency-sensitive pods by uid."""


class ServiceTimesReader:
    """Reads a few files of each pod. Once a minute this costs less than keeping them open."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._use = LatencySensitiveUse(hierarchy)
        self._cpu_time = CpuTimeFile.of(hierarchy)

    def read(self, uids: Collection[str], mono_ns: int) -> NodeTimes | None:
        """Read the counters of these pods, except of those in the best-effort cgroup; it may block.

        None: the node has no PSI of cgroups, or its CPU time is unknown. A pod whose counters cannot be read is left
        out.
        """
        if self._hierarchy.unified is None or (ls_cpu_ns := self._use.cpu_ns()) is None:
            return None
        pods = dict[str, PodTimes]()
        for tier in (BURSTABLE, GUARANTEED):
            with suppress(OSError):
                for uid, group in self._hierarchy.pod_groups(tier):
                    if uid in uids:
                        with suppress(OSError, ValueError):
                            pods[uid] = self._of_pod(group)
        be_cpu_us = self._use.best_effort_ns // 1_000
        return NodeTimes(mono_ns=mono_ns, be_cpu_us=be_cpu_us, ls_cpu_us=ls_cpu_ns // 1_000, pods=pods)

    def close(self) -> None:
        """Close the node's files."""
        self._use.close()

    def _of_pod(self, group: str) -> PodTimes:
        """Read a pod's counters. Raises OSError or ValueError if one cannot be read."""
        unified = self._hierarchy.unified
        throttled = dict[str, int]()
        for one in groups_of(f"{self._hierarchy.cpu}/{group}"):
            with suppress(OSError, ValueError):  # a kernel without CPU limits has no such file
                throttled[one] = throttled_us(read_once(f"{one}/cpu.stat"))
        return PodTimes(
            run_us=self._cpu_time.count_ns(read_once(self._cpu_time.path(group))) // 1_000,
            stall_us=parse.stall_us(read_once(f"{unified}/{group}/cpu.pressure")),
            mem_stall_us=parse.stall_us(read_once(f"{unified}/{group}/memory.pressure")),
            throttled_us=throttled,
        )


def service_minutes(
    before: NodeTimes, now: NodeTimes, facts: NodeFacts, pods: Sequence[Pod], observed_ms: int
) -> list[ServiceMinute]:
    """Return what each service did between two reads, by its name; none where the node's own figures are unknown.

    A pod counts if both reads have it, with the same containers, and no counter fell: otherwise it started, ended or
    restarted meanwhile.
    """
    cpus = (facts.capacity.cpu_milli or 0) // 1_000
    span_ms = (now.mono_ns - before.mono_ns) // 1_000_000
    be_cpu_us, ls_cpu_us = now.be_cpu_us - before.be_cpu_us, now.ls_cpu_us - before.ls_cpu_us
    if not 1 <= cpus <= CPUS_MAX or span_ms <= 0 or min(be_cpu_us, ls_cpu_us) < 0:
        return []
    risen: dict[str, list[_Risen]] = {}
    templates: dict[str, set[str]] = {}
    for pod in pods:
        service = service_of(pod)
        rise = _rise(before.pods.get(pod.uid), now.pods.get(pod.uid))
        if service and rise is not None:
            risen.setdefault(service, []).append(rise)
            templates.setdefault(service, set()).add(pod.template)
    return [
        ServiceMinute(
            service=service,
            node=facts.name,
            observed_ms=observed_ms,
            span_ms=span_ms,
            pods=len(rises),
            template=next(iter(templates[service])) if len(templates[service]) == 1 else "",
            run_us=sum(one.run_us for one in rises),
            wait_us=sum(one.wait_us for one in rises),
            mem_wait_us=sum(one.mem_wait_us for one in rises),
            be_cpu_us=be_cpu_us,
            ls_cpu_us=ls_cpu_us,
            cpus=cpus,
        )
        for service, rises in sorted(risen.items())
    ]


class _Risen(NamedTuple):
    run_us: int
    wait_us: int
    mem_wait_us: int


def _rise(before: PodTimes | None, now: PodTimes | None) -> _Risen | None:
    if before is None or now is None or before.throttled_us.keys() != now.throttled_us.keys():
        return None
    throttled_us = [now.throttled_us[group] - us for group, us in before.throttled_us.items()]
    run_us, mem_stall_us = now.run_us - before.run_us, now.mem_stall_us - before.mem_stall_us
    stall_us = now.stall_us - before.stall_us
    if min(run_us, stall_us, mem_stall_us, *throttled_us) < 0:
        return None
    # Throttled time is of all CPUs together, so it may be more than the stall.
    return _Risen(run_us, max(0, stall_us - sum(throttled_us)), mem_stall_us)
