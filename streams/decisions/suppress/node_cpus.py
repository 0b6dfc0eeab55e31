"""The CPUs of a node, and the pods bound to them: exclusive CPUs, which best-effort pods and sums exclude, and others.

Exclusive CPUs are Slacktide's own. The reference reads CPUs of LSE pods from an annotation of its scheduler. It leaves
those of the static policy to the kubelet, which moves running containers off them only every 10 s. Reading: koordinator
a7a1b76b, apis/extension/{node,resource}.go: the annotations' bodies, and that CPUs of the SYSTEM class are exclusive
unless configured otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.message import Message
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.schemas.text import json_of
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.known_pods import known
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import NodeCpus, PinnedPod


class Apart(NamedTuple):
    """Capacity and usage of exclusive CPUs."""

    milli: int
    used_milli: int


NOTHING = Apart(0, 0)


def exclusive_cpus(pods: Sequence[Pod]) -> frozenset[int]:
    """Return all exclusive CPUs."""
    return frozenset(cpu for pod in known(pods).exclusive.values() for cpu in pod.kind.exclusive_cpus)


def apart(sample: NodeSample, pods: Sequence[Pod]) -> Apart:
    """Compute what to subtract from the node's capacity and usage.

    Containers without exclusive CPUs use at most the pod's request beyond its exclusive CPUs.
    """
    owners = known(pods).exclusive
    if not owners:
        return NOTHING
    used_milli = 0
    for use in sample.pod_use:
        owner = owners.get(use.uid)
        if owner is not None:
            shared_milli = max(0, owner.kind.cpu_milli - 1000 * len(owner.kind.exclusive_cpus))
            used_milli += max(0, (use.cpu_milli or 0) - shared_milli)
    return Apart(1000 * len(exclusive_cpus(pods)), used_milli)


def off_exclusive(limits: Limits, facts: NodeFacts, pods: Sequence[Pod]) -> Limits:
    """Remove exclusive CPUs from the limits; if none is left, use all other CPUs. Unchanged, it is the same object."""
    if limits.be_cpuset is None:
        return limits
    taken = exclusive_cpus(pods)
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


def node_cpus(facts: NodeFacts, pods: Sequence[Pod]) -> NodeCpus:
    """Return the node's CPUs; exclusive ones count as reserved. An invalid reservation or annotation reserves none."""
    try:
        system = system_qos(facts.annotations)
    except TextError:
        system = SystemQos()
    return NodeCpus(
        processors=facts.processors,
        reserved=exclusive_cpus(pods).union(cpu_list(facts.reserved_cpus) or ()),
        system=cpu_list(system.cpuset) or (),
        system_exclusive=system.exclusive is not False,
    )


def pinned_pods(pods: Sequence[Pod]) -> Iterable[PinnedPod]:
    """Return the live pods that are bound to CPUs."""
    bound = [pod for pod in pods if pod.cpuset and pod.phase in LIVE_PHASES]
    return [PinnedPod(qos_label=pod.qos_label, cpus=cpu_list(pod.cpuset) or ()) for pod in bound]
