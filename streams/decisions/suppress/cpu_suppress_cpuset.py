"""From the allowed CPU to the next CPU set of the best-effort group.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go,
adjustByCPUSet (kubelet's CPU manager policy "none"). Different on purpose: where every CPU is reserved
or exclusive the set stays and the bound gives the reason, instead of a division by zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import Processor
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset_pick import pick_cpus

CPUS_MIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCpus:
    """A node's CPUs and those kept from best-effort pods."""

    processors: Sequence[Processor]
    """Distinct CPUs; their order does not matter."""
    reserved: Collection[int] = ()
    system: Collection[int] = ()
    """CPUs of the SYSTEM class."""
    system_exclusive: bool = True
    """Whether best-effort pods are kept from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPod:
    """A pod that is bound to CPUs."""

    qos_label: str | None
    """As written; a text that names no class counts as none."""
    cpus: Collection[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetStep:
    """The CPU set that shall hold."""

    cpus: tuple[int, ...]
    """Ascending."""
    bound: str
    """How many CPUs: ``target``, ``floored``, ``stepped`` (a raise is cut to 10% of the node), or
    ``pool_short`` (one pool has too few and gives none). Why the set stays: ``no_free_cpus`` (all are
    reserved or exclusive) or ``pools_short`` (neither pool has as many as are wanted of it)."""
    terms: Terms


def next_be_cpuset(
    *,
    allowed_milli: int,
    current: Collection[int],
    node: NodeCpus,
    pods: Iterable[PinnedPod],
    cpus_min: int = CPUS_MIN,
) -> CpusetStep:
    """One step toward the allowed CPU: cuts at once, raises by at most 10% of the node's CPUs.

    The CPUs come from two pools in proportion to their sizes: those of LSR pods, and those of nobody
    or of other pods. Reserved CPUs, exclusive ones of the SYSTEM class and those of LSE pods are in none.

    Args:
        allowed_milli: what ``be_allowed_cpu`` gave; may be negative.
        current: the CPU set in force. A set that stays may hold CPUs that were since taken from it.
        node: the node's CPUs.
        pods: of a CPU that several list, the last one's class counts.
        cpus_min: the fewest CPUs to aim at, at least 1.

    """
    current = set(current)
    wanted, bound, terms = _wanted(allowed_milli, len(current), len(node.processors), cpus_min)
    lsr, ls = _pools(node, pods)
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
    """All CPUs that best-effort pods may have, ascending: those of both pools."""
    lsr, ls = _pools(node, pods)
    return sorted(one.cpu for one in (*lsr, *ls))


def _wanted(allowed_milli: int, current: int, total: int, cpus_min: int) -> tuple[int, str, Terms]:
    """How many CPUs, what fixed the number, and its arithmetic."""
    target = -(-allowed_milli // 1000)
    wanted = max(cpus_min, target)
    bound = "floored" if wanted > target else "target"
    step = -(-total // 10)
    if wanted - current > step:
        wanted, bound = current + step, "stepped"
    terms: Terms = {
        "allowed_milli": allowed_milli,
        "target_cpus": target,
        "current_cpus": current,
        "step_cpus": step,
        "wanted_cpus": wanted,
    }
    return wanted, bound, terms


def _pools(node: NodeCpus, pods: Iterable[PinnedPod]) -> tuple[list[Processor], list[Processor]]:
    """The processors of LSR pods, and those that no pod or one of another class than LSE is bound to."""
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
