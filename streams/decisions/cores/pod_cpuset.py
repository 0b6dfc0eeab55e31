"""Which CPUs a pod's containers may use. Reading: runtimehooks/hooks/cpuset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.cores.pools import STATIC, Pool
from slacktide.streams.decisions.cores.topology import read_cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetRule:
    """The pools of a node, and its settings for CPU lists."""

    ls: Sequence[Pool]
    be: Sequence[Pool]
    kubelet_policy: str = ""
    system: str | None = None
    """The CPU list of SYSTEM pods."""
    be_cpu_manager: bool = False
    topology_known: bool = True

    @property
    def in_force(self) -> bool:
        """Return whether the rule exists."""
        return self.topology_known and read_cpus(self.system or "") is not None

    @property
    def all_ls(self) -> str:
        """Return the LS pools, also those without CPUs."""
        return ",".join(pool.cpuset for pool in self.ls)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetPod:
    """What decides a pod's CPUs."""

    qos_label: str | None
    kube_qos: str
    cpuset: str = ""
    """Of its annotation resource-status,"""
    zones: Sequence[tuple[int, int]] = ()
    """and its NUMA zones, with the CPU or batch-cpu that it has there."""


def cpuset_of(pod: CpusetPod, rule: CpusetRule) -> str | None:
    """Return the CPU list of a pod's containers; "": clear the list of the runtime; None: leave it as it is."""
    if pod.cpuset:
        return pod.cpuset
    if not rule.in_force:
        return None
    qos = raw_qos(pod.qos_label)
    in_zones = _in_zones(pod, rule, qos)
    return _by_class(pod, rule, qos) if in_zones is None else in_zones


def _by_class(pod: CpusetPod, rule: CpusetRule, qos: str) -> str | None:
    if qos == "SYSTEM" and rule.system:
        return rule.system
    if qos == "LS":
        return rule.all_ls
    if pod.kube_qos == "BestEffort":
        return ""
    return None if rule.kubelet_policy == STATIC else rule.all_ls


def _in_zones(pod: CpusetPod, rule: CpusetRule, qos: str) -> str | None:
    if not any(cpu_milli for _, cpu_milli in pod.zones):
        return None
    if qos == "BE" and not rule.be_cpu_manager:
        return None
    by_zone = {pool.zone: pool.cpuset for pool in (rule.be if qos == "BE" else rule.ls)}
    return ",".join(by_zone[zone] for zone, _ in pod.zones if zone in by_zone)


def handled_as(pod: CpusetPod) -> str:
    """Return the class as which the agent handles a pod: with a CPU list of its own it counts as LSR."""
    qos = raw_qos(pod.qos_label)
    return "LSR" if pod.cpuset and not qos else qos


def unlimited(pod: CpusetPod) -> bool:
    """Return whether a pod's CFS quota is lifted, because it has CPUs of its own."""
    return bool(pod.cpuset) and handled_as(pod) in {"LSE", "LSR"}
