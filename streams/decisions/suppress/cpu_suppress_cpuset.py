"""Computes the next CPU set of the best-effort group from the allowed CPU, and selects its CPUs.

CPUs are spread over NUMA nodes, whole cores before single CPUs. Reading: koordinator a7a1b76b,
pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go, adjustByCPUSet (kubelet's CPU manager policy "none"),
calculateBESuppressCPUSetPolicy; apis/extension/{node,resource}.go: the annotations' bodies, and that CPUs of the SYSTEM
class are exclusive unless configured otherwise. The reference divides by zero if all CPUs are reserved or exclusive.
Here the set stays. Unlike the reference, a group's key is (socket, NUMA node), which is always unique.

Exclusive CPUs, which best-effort pods and sums exclude, are Slacktide's own. The reference reads CPUs of LSE pods from
an annotation of its scheduler. It leaves those of the static policy to the kubelet, which moves running containers off
them only every 10 s.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod, Processor
from slacktide.schemas.message import Message, Terms
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.known_pods import known

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """CPU ids in the order of selection."""

    cpus: tuple[int, ...]
    bound: str
    """``picked``, or ``short``: too few CPUs are given, so none is selected."""
    terms: Terms


def pick_cpus(wanted: int, processors: Collection[Processor]) -> Picked:
    """Select ``wanted`` of the given CPUs, or none if they are too few. A ``wanted`` below 1 selects none.

    Groups take turns, the largest first. Each gives two CPUs of one core while two are wanted, then single CPUs. Single
    CPUs begin after the group of the last wanted pair, or with the first group if pairs ran out.
    The ``processors`` are distinct, in any order.
    """
    terms: Terms = {"wanted_cpus": wanted, "given_cpus": len(processors)}
    if wanted > len(processors):
        return Picked(cpus=(), bound="short", terms=terms | {"picked_cpus": 0})
    wanted = max(wanted, 0)
    by_node: defaultdict[tuple[int, int], list[Processor]] = defaultdict(list)
    for processor in sorted(processors, key=lambda one: (one.core, one.cpu)):
        by_node[processor.socket, processor.numa_node].append(processor)
    groups = sorted(by_node.values(), key=lambda group: (-len(group), group[0].cpu))
    pairs = _in_turn([list(_pairs(group)) for group in groups])[: wanted // 2]
    paired = [cpu for _, pair in pairs for cpu in pair]
    taken = set(paired)
    left = [[one.cpu for one in group if one.cpu not in taken] for group in groups]
    first = pairs[-1][0] + 1 if pairs and len(pairs) == wanted // 2 else 0
    singles = [cpu for _, cpu in _in_turn(left, first)[: wanted - len(paired)]]
    counts: Terms = {"in_pairs_cpus": len(paired), "single_cpus": len(singles), "picked_cpus": wanted}
    return Picked(cpus=(*paired, *singles), bound="picked", terms=terms | counts)


def _pairs(group: Sequence[Processor]) -> Iterator[tuple[int, int]]:
    """Yield pairs of siblings. The last CPU of a core with an odd number of CPUs stays single."""
    at = 0
    while at < len(group) - 1:
        one, other = group[at], group[at + 1]
        if one.core == other.core:
            yield one.cpu, other.cpu
            at += 1
        at += 1


def _in_turn(queues: Sequence[Sequence[T]], first: int = 0) -> list[tuple[int, T]]:
    """Return all items, one of each queue in turn from queue ``first``, each with the index of its queue."""
    turns = sorted(
        (nth, (queue - first) % len(queues), queue) for queue, items in enumerate(queues) for nth in range(len(items))
    )
    return [(queue, queues[queue][nth]) for nth, _, queue in turns]


CPUS_MIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCpus:
    """A node's CPUs, and those excluded from best-effort pods."""

    processors: Sequence[Processor]
    """Distinct, in any order."""
    reserved: Collection[int] = ()
    system: Collection[int] = ()
    """CPUs of the SYSTEM class."""
    system_exclusive: bool = True
    """Whether best-effort pods may not use system CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPod:
    """A pod that is bound to CPUs."""

    qos_label: str | None
    """The label's text; an unknown class counts as none."""
    cpus: Collection[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetStep:
    """The CPU set to apply."""

    cpus: tuple[int, ...]
    """In ascending order."""
    bound: str
    """The size: ``target``, ``floored``, ``stepped`` (a raise is limited to 10% of the node) or ``pool_short`` (one
    pool is too small and gives none). No change: ``no_free_cpus`` or ``pools_short`` (both pools are too small).
    """
    terms: Terms


def next_be_cpuset(
    *, allowed_milli: int, current: Collection[int], node: NodeCpus, pods: Iterable[PinnedPod], cpus_min: int = CPUS_MIN
) -> CpusetStep:
    """Compute one step toward the allowed CPU. A raise is at most 10% of the node's CPUs; a cut is immediate.

    Two pools give CPUs in proportion to their sizes: CPUs of LSR pods, and CPUs of no pod or of other pods. They
    exclude reserved CPUs, exclusive SYSTEM CPUs and CPUs of LSE pods. ``allowed_milli`` may be negative; ``cpus_min``
    is at least 1. If several ``pods`` list a CPU, the last one decides its class. A kept set may hold excluded CPUs.
    """
    current = set(current)
    target, step = -(-allowed_milli // 1000), -(-len(node.processors) // 10)
    wanted = max(cpus_min, target)
    bound = "floored" if wanted > target else "target"
    if wanted - len(current) > step:
        wanted, bound = len(current) + step, "stepped"
    lsr, ls = _pools(node, pods)
    terms: Terms = {
        "allowed_milli": allowed_milli,
        "target_cpus": target,
        "current_cpus": len(current),
        "step_cpus": step,
        "wanted_cpus": wanted,
    }
    terms |= {"lsr_pool_cpus": len(lsr), "ls_pool_cpus": len(ls)}
    if not lsr and not ls:
        return _stays(current, "no_free_cpus", terms)
    from_lsr = wanted * len(lsr) // (len(lsr) + len(ls))
    cpus = (*pick_cpus(from_lsr, lsr).cpus, *pick_cpus(wanted - from_lsr, ls).cpus)
    terms |= {"wanted_of_lsr_cpus": from_lsr, "wanted_of_ls_cpus": wanted - from_lsr}
    if not cpus:
        return _stays(current, "pools_short", terms)
    if len(cpus) < wanted:
        bound = "pool_short"
    return CpusetStep(cpus=tuple(sorted(cpus)), bound=bound, terms=terms | {"be_cpus": len(cpus)})


def free_cpus(node: NodeCpus, pods: Iterable[PinnedPod]) -> list[int]:
    """Return the CPUs of both pools, ascending."""
    lsr, ls = _pools(node, pods)
    return sorted(one.cpu for one in (*lsr, *ls))


def _pools(node: NodeCpus, pods: Iterable[PinnedPod]) -> tuple[list[Processor], list[Processor]]:
    """Return the CPUs of LSR pods, and the CPUs of no pod or of pods that are neither LSR nor LSE."""
    owners: dict[int, str] = {}
    for pod in pods:
        owners.update(dict.fromkeys(pod.cpus, raw_qos(pod.qos_label)))
    kept = {*node.reserved, *(node.system if node.system_exclusive else ())}
    free = [one for one in node.processors if one.cpu not in kept]
    lsr = [one for one in free if owners.get(one.cpu) == "LSR"]
    ls = [one for one in free if owners.get(one.cpu) not in {"LSR", "LSE"}]
    return lsr, ls


def _stays(current: Collection[int], why: str, terms: Terms) -> CpusetStep:
    return CpusetStep(cpus=tuple(sorted(current)), bound=why, terms=terms | {"be_cpus": len(current)})


class Apart(NamedTuple):
    """Capacity and usage of exclusive CPUs."""

    milli: int
    used_milli: int


NONE_APART = Apart(0, 0)


def exclusive_cpus(pods: Sequence[Pod]) -> frozenset[int]:
    """Return all exclusive CPUs."""
    return frozenset(cpu for pod in known(pods).exclusive.values() for cpu in pod.kind.exclusive_cpus)


def kept_off(facts: NodeFacts, pods: Sequence[Pod]) -> frozenset[int]:
    """Return the CPUs that best-effort pods never use: exclusive ones, and the whole cores of LSE pods."""
    alone = known(pods).alone_cpus
    cores = {(one.socket, one.numa_node, one.core) for one in facts.processors if one.cpu in alone} if alone else ()
    siblings = (one.cpu for one in facts.processors if (one.socket, one.numa_node, one.core) in cores) if alone else ()
    return exclusive_cpus(pods).union(siblings)


def apart(sample: NodeSample, pods: Sequence[Pod]) -> Apart:
    """Compute what to subtract from the node's capacity and usage.

    Containers without exclusive CPUs use at most the pod's request beyond its exclusive CPUs.
    """
    owners = known(pods).exclusive
    if not owners:
        return NONE_APART
    used_milli = 0
    for use in sample.pod_use:
        owner = owners.get(use.uid)
        if owner is not None:
            shared_milli = max(0, owner.kind.cpu_milli - 1000 * len(owner.kind.exclusive_cpus))
            used_milli += max(0, (use.cpu_milli or 0) - shared_milli)
    return Apart(1000 * len(exclusive_cpus(pods)), used_milli)


def off_exclusive(limits: Limits, facts: NodeFacts, pods: Sequence[Pod]) -> Limits:
    """Remove CPUs of other pods from the limits; if none is left, use all others. Unchanged, it is the same object."""
    if limits.be_cpuset is None:
        return limits
    taken = kept_off(facts, pods)
    if taken.isdisjoint(limits.be_cpuset):
        return limits
    left = [cpu for cpu in limits.be_cpuset if cpu not in taken]
    left = left or sorted(one.cpu for one in facts.processors if one.cpu not in taken)
    return msgspec.structs.replace(limits, be_cpuset=left) if left else limits


ANNOTATION_SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"


class SystemQos(Message, frozen=True):
    """The annotation's body."""

    cpuset: str = ""
    exclusive: bool | None = msgspec.field(default=None, name="cpusetExclusive")


def system_qos(annotations: Mapping[str, str]) -> SystemQos:
    """Read which CPUs are for the SYSTEM class. Raises TextError if the annotation cannot be read."""
    text = annotations.get(ANNOTATION_SYSTEM_QOS) or "{}"
    found: SystemQos = json_of(text, SystemQos, where=ANNOTATION_SYSTEM_QOS)
    return found


def system_cpus(annotations: Mapping[str, str]) -> SystemQos:
    """Read the same; an annotation that cannot be read names no CPUs."""
    try:
        return system_qos(annotations)
    except TextError:
        return SystemQos()


def node_cpus(facts: NodeFacts, pods: Sequence[Pod]) -> NodeCpus:
    """Return the node's CPUs; exclusive ones count as reserved. An invalid reservation or annotation reserves none."""
    try:
        system = system_qos(facts.annotations)
    except TextError:
        system = SystemQos()
    return NodeCpus(
        processors=facts.processors,
        reserved=kept_off(facts, pods).union(cpu_list(facts.reserved_cpus) or ()),
        system=cpu_list(system.cpuset) or (),
        system_exclusive=system.exclusive is not False,
    )


def pinned_pods(pods: Sequence[Pod]) -> Iterable[PinnedPod]:
    """Return the live pods that are bound to CPUs."""
    bound = [pod for pod in pods if pod.cpuset and pod.phase in LIVE_PHASES]
    return [PinnedPod(qos_label=pod.qos_label, cpus=cpu_list(pod.cpuset) or ()) for pod in bound]
