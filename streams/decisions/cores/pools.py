"""The CPUs that pods without CPUs of their own share, and those that a pod's containers may use.

Reading: states_noderesourcetopology.go, runtimehooks/hooks/cpuset.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.cores.allocate import held_cpus
from slacktide.streams.decisions.cores.schedule import ALONE, OWNERS
from slacktide.streams.decisions.cores.take import NO_CPUS, Cpus, Topology

STATIC = "static"


class Pool(NamedTuple):
    """The CPUs of a zone that are left."""

    socket: int
    zone: int
    cpus: Cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class CoresPod:
    """A pod of the node."""

    uid: str
    qos_label: str | None
    cpus: Cpus
    """Of its annotation resource-status."""
    phase: str = "Running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """The kubelet's configuration."""

    policy: str
    strict: bool = False
    """Whether its reserved CPUs are for no pod: ``strict-cpu-reservation``."""
    shared: Cpus = NO_CPUS
    """The CPUs that it has pinned for no pod: ``defaultCpuSet`` of its state."""
    reserved_system_cpus: Cpus = NO_CPUS
    reserved_milli: int = 0
    """Of the system and of Kubernetes together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """CPUs that a node keeps off its pools."""

    reserved_cpus: Cpus = NO_CPUS
    reserved_milli: int = 0
    system: Cpus = NO_CPUS
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
    pinned: Mapping[str, Cpus],
    kept: Kept,
) -> Pools:
    """Return the pools of a node.

    ``pods``: of the kubelet's list, in any phase. ``kubelet`` None: its configuration is not read. ``pinned``: the
    CPUs of containers that the kubelet has pinned, by uid. ``kept``: off the pools. Corrected, pods that have
    ended hold none, and the kubelet's static policy is never overruled.
    """
    corrected = topology.corrected
    ls = set(topology.cpus)
    theirs: dict[str, Cpus] = {}
    reserved = NO_CPUS
    if kubelet is not None and kubelet.policy == STATIC:
        reserved = kubelet.reserved_system_cpus or packed(topology, -(-kubelet.reserved_milli // 1_000))
        ours = {pod.uid for pod in pods if raw_qos(pod.qos_label) in {"LS", "BE"} or pod.cpus}
        for uid in sorted(pinned.keys() - (set() if corrected else ours)):
            if pinned[uid]:
                theirs[uid] = pinned[uid]
        ls.difference_update(*theirs.values())
        if corrected:
            ls &= kubelet.shared or ls
            ls -= reserved if kubelet.strict else NO_CPUS
    be = set(ls)
    for pod in pods:
        alone = raw_qos(pod.qos_label) == ALONE
        if pod.cpus and not (corrected and pod.phase in ENDED_PHASES):
            cpus = held_cpus(topology, pod.cpus, alone=corrected and alone)
            ls -= cpus
            if alone:
                be -= cpus
    node_reserved = kept.reserved_cpus or packed(topology, -(-kept.reserved_milli // 1_000))
    off = node_reserved | (kept.system if kept.system_exclusive else NO_CPUS)
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
    return [Pool(socket, zone, frozenset(found[socket, zone] - off)) for socket, zone in sorted(found)]


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
    system: Cpus | None = NO_CPUS
    """Those of SYSTEM pods; None: their list is unreadable."""
    be_cpu_manager: bool = False
    topology_known: bool = True
    corrected: bool = False

    @property
    def in_force(self) -> bool:
        """Return whether the rule exists. In the reference an unreadable list of SYSTEM CPUs stops it for all."""
        return self.topology_known and (self.corrected or self.system is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetPod:
    """What decides a pod's CPUs."""

    qos_label: str | None
    kube_qos: str
    cpus: Cpus | None = None
    """Of its annotation resource-status, which may be unreadable; None: it names none."""
    zones: Sequence[tuple[int, int]] = ()
    """Its NUMA zones, with the CPU or batch-cpu that it has there."""
    container_count: int = 1


def cpus_of(pod: CpusetPod, rule: CpusetRule) -> Cpus | None:
    """Return the CPUs of a pod's containers as corrected; None: they stay as they are. They are never none."""
    return NO_CPUS.union(*parts_of(pod, rule) or ()) or None


def parts_of(pod: CpusetPod, rule: CpusetRule) -> Sequence[Cpus] | None:
    """Return the sets that a pod's containers may use together; without any, the runtime's list is cleared.

    None: it is left as it is. Corrected, SYSTEM pods get their own list also if they have zones.
    """
    if pod.cpus is not None:
        return [pod.cpus]
    qos = raw_qos(pod.qos_label)
    if not rule.in_force:
        return None
    if rule.corrected and qos == "SYSTEM" and rule.system != NO_CPUS:
        return None if rule.system is None else [rule.system]
    return None if rule.corrected and rule.kubelet_policy == STATIC else _of_pools(pod, rule, qos)


def _of_pools(pod: CpusetPod, rule: CpusetRule, qos: str) -> Sequence[Cpus] | None:
    if any(cpu_milli for _, cpu_milli in pod.zones) and (qos != "BE" or rule.be_cpu_manager):
        by_zone = {pool.zone: pool.cpus for pool in (rule.be if qos == "BE" else rule.ls)}
        return [by_zone[zone] for zone, _ in pod.zones if zone in by_zone]
    if qos == "SYSTEM" and rule.system:
        return [rule.system]
    if qos != "LS" and pod.kube_qos == "BestEffort":
        return []
    return [pool.cpus for pool in rule.ls] if qos == "LS" or rule.kubelet_policy != STATIC else None


def handled_as(pod: CpusetPod) -> str:
    """Return the class as which the agent handles a pod: with a CPU list of its own it counts as LSR."""
    qos = raw_qos(pod.qos_label)
    return "LSR" if pod.cpus is not None and not qos else qos


def unlimited(pod: CpusetPod, *, corrected: bool = False) -> bool:
    """Return whether the CFS quota of a pod's containers is lifted, because it has CPUs of its own.

    Corrected, not if it has several: without quotas, one could take all the CPU time of the others.
    """
    return pod.cpus is not None and handled_as(pod) in OWNERS and not (corrected and pod.container_count > 1)
