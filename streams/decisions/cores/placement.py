"""Decides which CPUs of a node a pod gets for itself, beside those that other pods hold there. Pure.

Slacktide's own, based on the corrected rules. Who holds what is in the pods' annotations, and what a scheduler assumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod, Processor
from slacktide.schemas.kubernetes_pod import RESOURCE_STATUS
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.zones import ZONES_STALE_S, NodeZones
from slacktide.streams.decisions.cores.allocate import Free, Ledger, held_cpus
from slacktide.streams.decisions.cores.schedule import (
    ALONE,
    MOST_FREE,
    NO_TOPOLOGY,
    RESOURCE_SPEC,
    SHARED_MIN,
    NodePolicy,
    Spec,
    schedule,
)
from slacktide.streams.decisions.cores.take import NO_CPUS, Cpus, Topology, Wish, own_cpus, readable, written
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import system_cpus

RESOURCE_CORES = "slacktide.io/cores"
"""The webhook requests as many as the pod gets CPUs for itself. No node has it, so no scheduler places the pod, except
one whose configuration ignores it, because its extender binds CPUs."""
BIND_POLICY, STRATEGY = "node.koordinator.sh/cpu-bind-policy", "node.koordinator.sh/numa-allocate-strategy"
ANSWERS_MAX = 5_000


class CoresPod(NamedTuple):
    """A pod that gets CPUs for itself. Equal ones get the same answer of a node."""

    qos_label: str | None
    priority_class_label: str | None
    priority: int | None
    request_milli: int
    spec: Spec


class Holder(NamedTuple):
    """The CPUs of a pod, and how they were chosen."""

    cpus: Cpus
    spec: Spec
    alone: bool
    """Whether nobody else gets CPUs of its cores."""

    @property
    def annotations(self) -> dict[str, str]:
        """Return what is written to the pod."""
        status = {"cpuset": written(self.cpus)}
        both = {RESOURCE_STATUS: status, RESOURCE_SPEC: self.spec}
        return {name: msgspec.json.encode(value).decode() for name, value in both.items()}


def holder_of(pod: Pod, spec: Spec) -> Holder | None:
    """Return the CPUs of a pod by its annotation; None: it has none."""
    cpus = own_cpus(pod)
    return Holder(cpus, spec, raw_qos(pod.qos_label) == ALONE) if cpus else None


class NodeRules(NamedTuple):
    """The rules for CPUs in a node's labels and annotations."""

    policy: NodePolicy = NodePolicy(strategy=MOST_FREE)
    reserved: Cpus = NO_CPUS


def rules_of(facts: NodeFacts) -> NodeRules:
    """Read them. CPUs of SYSTEM pods are reserved unless others may use them."""
    system = system_cpus(facts.annotations)
    reserved = NO_CPUS if system.exclusive is False else readable(system.cpuset)
    policy = NodePolicy(label=facts.labels.get(BIND_POLICY, ""), strategy=facts.labels.get(STRATEGY, MOST_FREE))
    return NodeRules(policy, reserved | readable(facts.reserved_cpus))


def topology_of(record: NodeZones) -> Topology:
    """Return the CPUs of a node's record of zones."""
    cores = ((zone, socket, core) for zone in record.zones for socket, cores in zone.cores.items() for core in cores)
    return Topology(
        [
            Processor(cpu=cpu, core=min(core), socket=socket, numa_node=zone.id)
            for zone, socket, core in cores
            for cpu in core
        ],
        corrected=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeCores:
    """A node's CPUs, and the pods that hold some. The same object gives the same, cached answers."""

    topology: Topology
    of_kubelet: bool
    """Its kubelet's CPU manager is static, or may be."""
    rules: NodeRules
    holders: Mapping[str, Holder]
    """By uid."""

    def free(self) -> Free:
        """Return what is left for one more pod."""
        ledger = Ledger(corrected=True)
        for uid, one in self.holders.items():
            ledger.put(uid, held_cpus(self.topology, one.cpus, alone=one.alone), one.spec.exclusive)
        return Free(topology=self.topology, taken=ledger.taken, reserved=self.rules.reserved, shared_min=SHARED_MIN)


class CoresRefusal(NamedTuple):
    """Why a pod gets no CPUs of a node."""

    reason: str
    why: str
    asked_count: int
    free_count: int

    @property
    def text(self) -> str:
        """For the pod's events."""
        return f"pod requests {self.asked_count} CPUs of its own, {self.free_count} are free: {self.why}"


class CoresGiven(NamedTuple):
    """The CPUs that a pod would get."""

    holder: Holder
    wish_kept: bool
    free_count: int
    """Before it gets them."""

    @property
    def terms(self) -> Terms:
        """As terms of a node's score."""
        return {
            "cores_count": len(self.holder.cpus), "cores_free_count": self.free_count,
            "cores_wish_kept": int(self.wish_kept),
        }  # fmt: skip


NO_CORES = NodeCores(topology=Topology([], corrected=True), of_kubelet=False, rules=NodeRules(), holders={})
"""Of a node that has not published its CPUs, or not lately."""
UNKNOWN = f"its agent has not published its CPUs for {ZONES_STALE_S:.0f} s"
NO_OWNER = "only pods of QoS class LSE or LSR get CPUs of their own"


@lru_cache(maxsize=ANSWERS_MAX)
def cores_of(pod: CoresPod, node: NodeCores) -> CoresRefusal | CoresGiven:
    """Return the CPUs that a pod gets of a node, or why it gets none."""
    free = node.free()
    asked = Pod(
        uid="", namespace="", name="", qos_label=pod.qos_label, priority_class_label=pod.priority_class_label,
        priority=pod.priority,
    )  # fmt: skip
    policy = replace(node.rules.policy, of_kubelet=node.of_kubelet)
    found, free_count = schedule(asked, pod.request_milli, pod.spec, free, policy), len(free.cpus(Wish())[0])
    if found.cpus is None:
        why = UNKNOWN if found.reason == NO_TOPOLOGY else found.reason or NO_OWNER
        return CoresRefusal(found.code, why, pod.request_milli // 1_000, free_count)
    holder = Holder(found.cpus, found.spec, raw_qos(pod.qos_label) == ALONE)
    return CoresGiven(holder, found.wish_kept, free_count)
