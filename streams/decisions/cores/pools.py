"""The CPUs that pods without CPUs of their own share, and those that a pod's containers may use.

Reading: states_noderesourcetopology.go, runtimehooks/hooks/cpuset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.cores.take import NO_CPUS, Cpus, Topology, read_cpus, readable, written

STATIC = "static"


class Pool(NamedTuple):
    """The CPUs of a zone, as text; "": none are left."""

    socket: int
    zone: int
    cpuset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoresPod:
    """A pod of the node."""

    uid: str
    qos_label: str | None
    cpuset: str | None
    """Of its annotation resource-status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """The kubelet's configuration."""

    policy: str
    reserved_system_cpus: str = ""
    reserved_milli: int = 0
    """Of the system and of Kubernetes together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """CPUs that a node keeps off its pools."""

    reserved_cpus: str = ""
    reserved_milli: int = 0
    system: str = ""
    system_exclusive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The shared CPUs of a node, and what is kept off them."""

    ls: Sequence[Pool]
    be: Sequence[Pool]
    kubelet_policy: str
    kubelet_reserved: Cpus
    pinned: Mapping[str, Cpus]
    """CPUs of pods that the kubelet has pinned, by uid."""
    node_reserved: Cpus


def pools(
    topology: Topology,
    pods: Sequence[CoresPod],
    kubelet: Kubelet | None,
    pinned: Mapping[str, Sequence[str]],
    kept: Kept,
) -> Pools:
    """Return the pools of a node.

    ``pods``: of the kubelet's list, in any phase. ``kubelet`` None: its configuration is not read. ``pinned``: CPU
    lists of the containers that the kubelet has pinned, by uid. ``kept``: off the pools.
    """
    ls = set(topology.cpus)
    theirs: dict[str, Cpus] = {}
    reserved = NO_CPUS
    if kubelet is not None and kubelet.policy == STATIC:
        reserved = readable(kubelet.reserved_system_cpus) or packed(topology, -(-kubelet.reserved_milli // 1_000))
        ours = {pod.uid for pod in pods if raw_qos(pod.qos_label) in {"LS", "BE"} or readable(pod.cpuset)}
        for uid in sorted(pinned.keys() - ours):
            if cpus := NO_CPUS.union(*map(readable, pinned[uid])):
                theirs[uid] = cpus
        ls.difference_update(*theirs.values())
    be = set(ls)
    for pod in pods:
        if cpus := readable(pod.cpuset):
            ls -= cpus
            if raw_qos(pod.qos_label) == "LSE":
                be -= cpus
    node_reserved = readable(kept.reserved_cpus) or packed(topology, -(-kept.reserved_milli // 1_000))
    off = node_reserved | (readable(kept.system) if kept.system_exclusive else NO_CPUS)
    return Pools(
        ls=_by_zone(topology, ls, off),
        be=_by_zone(topology, be, off),
        kubelet_policy="" if kubelet is None else kubelet.policy,
        kubelet_reserved=reserved,
        pinned=theirs,
        node_reserved=node_reserved,
    )


def _by_zone(topology: Topology, cpus: set[int], off: Cpus) -> list[Pool]:
    """Return a pool of each zone with CPUs; it stays, without any, if all of them are kept off."""
    found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for cpu in cpus:
        found[topology.sockets[cpu], topology.zones[cpu]].add(cpu)
    return [Pool(socket, zone, written(found[socket, zone] - off)) for socket, zone in sorted(found)]


def packed(topology: Topology, wanted: int) -> Cpus:
    """Return CPUs as the kubelet takes them on an idle machine: whole sockets, zones, cores first; none: too many."""
    if wanted <= 0 or wanted > len(topology.cpus):
        return NO_CPUS
    left, result = set(topology.cpus), set[int]()
    stages: tuple[tuple[Callable[[int], object], Callable[[list[int], int], bool]], ...] = (
        (topology.sockets.__getitem__, lambda its, _: len(its) == topology.per_socket),
        (topology.zone, lambda its, whole: len(its) == whole),
        (topology.core, lambda its, _: len(its) == topology.per_core),
    )
    for place, is_whole in stages:
        sizes = Counter(map(place, topology.cpus))
        groups: defaultdict[object, list[int]] = defaultdict(list)
        for cpu in _row(topology, left):
            groups[place(cpu)].append(cpu)
        for its in groups.values():
            if is_whole(its, sizes[place(its[0])]) and wanted >= len(its):
                result.update(its)
                left.difference_update(its)
                wanted -= len(its)
    result.update(_row(topology, left)[:wanted])
    return frozenset(result)


def _row(topology: Topology, left: set[int]) -> list[int]:
    """Sort CPUs by socket, zone and core, those with the fewest left first."""
    sockets, zones = Counter(topology.sockets[cpu] for cpu in left), Counter(map(topology.zone, left))
    cores = Counter(map(topology.core, left))

    def order(cpu: int) -> tuple[object, ...]:
        socket, zone, core = topology.sockets[cpu], topology.zone(cpu), topology.core(cpu)
        return sockets[socket], socket, zones[zone], zone, cores[core], core, cpu

    return sorted(left, key=order)


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
    if any(cpu_milli for _, cpu_milli in pod.zones) and (qos != "BE" or rule.be_cpu_manager):
        by_zone = {pool.zone: pool.cpuset for pool in (rule.be if qos == "BE" else rule.ls)}
        return ",".join(by_zone[zone] for zone, _ in pod.zones if zone in by_zone)
    if qos == "SYSTEM" and rule.system:
        return rule.system
    if qos != "LS" and pod.kube_qos == "BestEffort":
        return ""
    return rule.all_ls if qos == "LS" or rule.kubelet_policy != STATIC else None


def handled_as(pod: CpusetPod) -> str:
    """Return the class as which the agent handles a pod: with a CPU list of its own it counts as LSR."""
    qos = raw_qos(pod.qos_label)
    return "LSR" if pod.cpuset and not qos else qos


def unlimited(pod: CpusetPod) -> bool:
    """Return whether a pod's CFS quota is lifted, because it has CPUs of its own."""
    return bool(pod.cpuset) and handled_as(pod) in {"LSE", "LSR"}
