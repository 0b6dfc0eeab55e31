"""Explains what each CPU of a node is for, which ones a pod has for itself, who chose them, and who else runs there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.knob import pod_group
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.qos import raw_qos
from slacktide.streams.analysis.explain.evidence import Finding, Logged
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.decisions.cores.allocate import held_cpus
from slacktide.streams.decisions.cores.schedule import ALONE, OWNERS
from slacktide.streams.decisions.cores.take import Topology, own_cpus, readable, written
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import kept_off, system_cpus

CpuOwner = Literal["LSE", "LSR", "SYSTEM", "kubelet", "idle", "reserved", "shared"]
"""``kubelet``: a pod's by the kubelet's static policy. ``idle``: nobody's, because its core is an LSE pod's.
``shared``: of all pods that have no CPUs of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGroup:
    """CPUs of a NUMA zone that are for the same pods."""

    zone: int
    cpus: str
    """A list such as ``0-3,6``."""
    owner: CpuOwner
    pods: list[str]
    """The pods that have them for themselves, or because of which they are idle."""
    best_effort: bool
    """Whether best-effort pods may run there now."""


def cpu_groups(log: NodeLog) -> list[CpuGroup]:
    """Return what each CPU of a node is for, by zone; empty if its topology is not among the records."""
    facts = next((one.body.facts for one in reversed(log.samples) if one.body.facts is not None), None)
    if facts is None:
        return []
    live = [pod for pod in log.pods if pod.phase in LIVE_PHASES]
    owners = _owners(facts, live)
    limits = None if log.sample is None else log.sample.body.limits
    barred = kept_off(facts, live)
    groups: dict[tuple[int, CpuOwner, tuple[str, ...], bool], list[int]] = {}
    for one in sorted(facts.processors, key=lambda one: (one.numa_node, one.cpu)):
        owner, pods = owners.get(one.cpu, ("shared", ()))
        allowed = one.cpu not in barred if limits is None or limits.be_cpuset is None else one.cpu in limits.be_cpuset
        groups.setdefault((one.numa_node, owner, pods, allowed), []).append(one.cpu)
    return [
        CpuGroup(zone=zone, cpus=written(frozenset(cpus)), owner=owner, pods=list(pods), best_effort=best_effort)
        for (zone, owner, pods, best_effort), cpus in groups.items()
    ]


def _owners(facts: NodeFacts, live: Sequence[Pod]) -> dict[int, tuple[CpuOwner, tuple[str, ...]]]:
    """Return the owner of each CPU that is not shared; of two that claim one, the pod that is listed last."""
    topology, system = Topology(facts.processors, corrected=True), system_cpus(facts.annotations)
    found: dict[int, tuple[CpuOwner, tuple[str, ...]]] = {}
    found |= dict.fromkeys(readable(facts.reserved_cpus), ("reserved", ()))
    if system.exclusive is not False:
        found |= dict.fromkeys(readable(system.cpuset), ("SYSTEM", ()))
    for pod in live:
        name = (f"{pod.namespace}/{pod.name}",)
        alone = raw_qos(pod.qos_label) == ALONE
        for cpu in held_cpus(topology, own_cpus(pod), alone=True) if alone else ():
            found.setdefault(cpu, ("idle", name))
        found |= dict.fromkeys(own_cpus(pod), ("LSE" if alone else "LSR", name))
        found |= dict.fromkeys(readable(pod.exclusive_cpus), ("kubelet", name))
    return found


def cores_findings(
    on: NodeLog | None, pod: Pod, placement: Logged[PodPlacement] | None, outcomes: Sequence[Logged[NodeOutcome]] = ()
) -> Iterator[Finding]:
    """Report the CPUs of a pod on its node; nothing for pods whose class has none. ``outcomes``: about pods."""
    qos, cpus = raw_qos(pod.qos_label), own_cpus(pod)
    if on is None or pod.phase not in LIVE_PHASES or not (cpus or qos in OWNERS):
        return
    facts = on.keyframe.body.facts if on.keyframe is not None else None
    there = frozenset(one.cpu for one in facts.processors) if facts is not None else frozenset[int]()
    if not cpus or (there and not cpus & there):
        why = f"the node has none of its CPUs {written(cpus)}" if cpus else "no scheduler gave it CPUs"
        if pod.cpuset and not cpus:
            why = f"its annotation resource-status names CPUs {pod.cpuset!r}: not a list, or more than it requests"
        yield Finding(
            "pod.no-cores",
            f"it shares the CPUs of LS pods, although its class is {qos or 'none'}: {why}",
            advice="set exclusiveCpus in admission-config of the policy, then create the pod again",
        )
        return
    group = pod_group(pod.uid)
    acts = (one.body for one in reversed(outcomes) if one.body.target == group)
    last = next((one for one in acts if one.knob is not None and one.knob.knob == "cpus"), None)
    if last is not None and last.result not in {"applied", "unchanged"}:
        yield Finding(
            "pod.cores-unset",
            f"the agent did not bind it to its CPUs {written(cpus)}: {last.result}: {last.reason or last.bound}",
            advice=f"run `slacktide doctor` on node {on.node}",
        )
        return
    others = "nobody else runs on their cores" if qos == ALONE else "best-effort pods may run there, too"
    yield Finding("pod.cores", f"CPUs {written(cpus)} are its own: {_chosen(on.node, pod, placement)}; {others}")
    if there and cpus - there:
        yield Finding("pod.cores-lost", f"the node lacks {written(cpus - there)} of the pod's CPUs {written(cpus)}")


def _chosen(node: str, pod: Pod, placement: Logged[PodPlacement] | None) -> str:
    """Return who chose them; the scheduler's record names what was free."""
    best = next((one for one in placement.body.best if one.node == node), None) if placement is not None else None
    if placement is None or best is None or placement.body.pod_uid != pod.uid or not best.cores:
        return "named by its annotation"
    kept = "" if best.terms.get("cores_wish_kept", 1) else ", where its exclusive policy could not be kept"
    return f"the scheduler chose them of {best.terms.get('cores_free_count', 0)} free CPUs{kept}"
