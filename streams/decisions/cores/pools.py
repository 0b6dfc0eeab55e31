"""The CPUs that pods without CPUs of their own share, and those that a pod's containers may use.

Reading: states_noderesourcetopology.go, runtimehooks/hooks/cpuset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.cores.allocate import held_cpus
from slacktide.streams.decisions.cores.schedule import ALONE, OWNERS
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
    phase: str = "Running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """The kubelet's configuration."""

    policy: str
    strict: bool = False
    """Whether its reserved CPUs are for no pod: ``strict-cpu-reservation``."""
    shared: str = ""
    """The CPUs that it has pinned for no pod: ``defaultCpuSet`` of its state."""
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
    lists of the containers that the kubelet has pinned, by uid. ``kept``: off the pools. Corrected, pods that have
    ended hold none, and the kubelet's static policy is never overruled.
    """
    corrected = topology.corrected
    ls = set(topology.cpus)
    theirs: dict[str, Cpus] = {}
    reserved = NO_CPUS
    if kubelet is not None and kubelet.policy == STATIC:
        reserved = readable(kubelet.reserved_system_cpus) or packed(topology, -(-kubelet.reserved_milli // 1_000))
        ours = {pod.uid for pod in pods if raw_qos(pod.qos_label) in {"LS", "BE"} or readable(pod.cpuset)}
        for uid in sorted(pinned.keys() - (set() if corrected else ours)):
            if cpus := NO_CPUS.union(*map(readable, pinned[uid])):
                theirs[uid] = cpus
        ls.difference_update(*theirs.values())
        if corrected:
            ls &= readable(kubelet.shared) or ls
            ls -= reserved if kubelet.strict else NO_CPUS
    be = set(ls)
    for pod in pods:
        alone = raw_qos(pod.qos_label) == ALONE
        if (cpus := readable(pod.cpuset)) and not (corrected and pod.phase in ENDED_PHASES):
            cpus = held_cpus(topology, cpus, alone=corrected and alone)
            ls -= cpus
            if alone:
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
    """Return a pool of each zone with CPUs. In the reference it stays, without any, if all of them are kept off."""
    found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    if topology.corrected:  # one pool of a zone, even if it spans two sockets
        lowest = {zone: min(socket for socket, its in topology.places if its == zone) for _, zone in topology.places}
        for cpu in cpus - off:
            found[lowest[topology.zones[cpu]], topology.zones[cpu]].add(cpu)
        cpus = set()
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
    corrected: bool = False

    @property
    def in_force(self) -> bool:
        """Return whether the rule exists. In the reference an unreadable list of SYSTEM CPUs stops it for all."""
        return self.topology_known and (self.corrected or read_cpus(self.system or "") is not None)

    @property
    def all_ls(self) -> str:
        """Return the LS pools."""
        return self.joined(pool.cpuset for pool in self.ls)

    def joined(self, pools: Iterable[str]) -> str:
        """Return one list. The reference joins pools without CPUs, too, so that nobody can read it."""
        return written(NO_CPUS.union(*map(readable, pools))) if self.corrected else ",".join(pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetPod:
    """What decides a pod's CPUs."""

    qos_label: str | None
    kube_qos: str
    cpuset: str = ""
    """Of its annotation resource-status,"""
    zones: Sequence[tuple[int, int]] = ()
    """and its NUMA zones, with the CPU or batch-cpu that it has there."""
    container_count: int = 1


def cpuset_of(pod: CpusetPod, rule: CpusetRule) -> str | None:
    """Return the CPU list of a pod's containers; "": clear the list of the runtime; None: leave it as it is.

    Corrected, no list is ever empty, and SYSTEM pods get their own list also if they have zones.
    """
    if pod.cpuset:
        return pod.cpuset
    if not rule.in_force:
        return None
    qos = raw_qos(pod.qos_label)
    if rule.corrected:
        if qos == "SYSTEM" and rule.system:
            return written(readable(rule.system)) or None
        return _of_pools(pod, rule, qos) or None if rule.kubelet_policy != STATIC else None
    return _of_pools(pod, rule, qos)


def _of_pools(pod: CpusetPod, rule: CpusetRule, qos: str) -> str | None:
    if any(cpu_milli for _, cpu_milli in pod.zones) and (qos != "BE" or rule.be_cpu_manager):
        by_zone = {pool.zone: pool.cpuset for pool in (rule.be if qos == "BE" else rule.ls)}
        return rule.joined([by_zone[zone] for zone, _ in pod.zones if zone in by_zone])
    if qos == "SYSTEM" and rule.system:
        return rule.system
    if qos != "LS" and pod.kube_qos == "BestEffort":
        return ""
    return rule.all_ls if qos == "LS" or rule.kubelet_policy != STATIC else None


def handled_as(pod: CpusetPod) -> str:
    """Return the class as which the agent handles a pod: with a CPU list of its own it counts as LSR."""
    qos = raw_qos(pod.qos_label)
    return "LSR" if pod.cpuset and not qos else qos


def unlimited(pod: CpusetPod, *, corrected: bool = False) -> bool:
    """Return whether the CFS quota of a pod's containers is lifted, because it has CPUs of its own.

    Corrected, not if it has several: without quotas, one could take all the CPU time of the others.
    """
    return bool(pod.cpuset) and handled_as(pod) in OWNERS and not (corrected and pod.container_count > 1)
