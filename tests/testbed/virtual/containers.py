"""Measures containers of a virtual machine. A single container shares its pod's cgroup. Pure."""

from collections.abc import Sequence

from slacktide.agents.node.cgroup.parse import Counters, PodCounters, rates
from slacktide.agents.node.interfaces import UNLIMITED_US, ContainerCpu, ContainersLook
from slacktide.deploy.virtual.machine import Group, Machine
from slacktide.schemas.inventory import Container, Pod


def only_container(pod: Pod) -> Container | None:
    """Return the pod's only container, which shares its cgroup; None: it has several, or none is known."""
    return pod.containers[0] if len(pod.containers) == 1 else None


class VirtualContainers:
    """Measures containers between two calls."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._before: Counters | None = None

    def look(self, pods: Sequence[Pod], mono_ns: int) -> ContainersLook:
        found = {pod.uid: container for pod in pods if (container := only_container(pod)) is not None}
        groups = {
            uid: group
            for uid, container in found.items()
            if container.limits.cpu_milli and (group := self._machine.pods.get(uid)) is not None
        }
        now = Counters(mono_ns=mono_ns, cpu_ns=None, pods={uid: _counters(group) for uid, group in groups.items()})
        rate = rates(self._before, now)
        self._before = now
        containers = [
            ContainerCpu(
                pod=uid,
                container=found[uid].name,
                quota_us=_quota_us(group),
                pod_quota_us=_quota_us(group),
                used_milli=rate.pods[uid].cpu_milli,
                periods=rate.pods[uid].periods,
                throttled_periods=rate.pods[uid].throttled_periods,
            )
            for uid, group in groups.items()
        ]
        return ContainersLook(containers=containers, missing=[])


def _counters(group: Group) -> PodCounters:
    return PodCounters(cpu_ns=group.usage_ns, periods=group.periods, throttled_periods=group.throttled_periods)


def _quota_us(group: Group) -> int:
    return UNLIMITED_US if group.quota_us is None else group.quota_us * 100_000 // group.period_us
