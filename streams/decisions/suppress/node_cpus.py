"""The CPUs of a node and the pods bound to them, for the CPU set rule.

Reading: koordinator a7a1b76b, apis/extension/{node,resource}.go: the annotations' bodies, and that CPUs of
the SYSTEM class are exclusive unless configured otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.message import Message
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import NodeCpus, PinnedPod
from slacktide.streams.decisions.suppress.exclusive_cpus import exclusive_cpus

ANNOTATION_SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"


class _SystemQos(Message, frozen=True):
    cpuset: str = ""
    exclusive: bool | None = msgspec.field(default=None, name="cpusetExclusive")


def node_cpus(facts: NodeFacts, pods: Sequence[Pod]) -> NodeCpus:
    """Return the node's CPUs; exclusive ones count as reserved. An invalid reservation or annotation reserves none."""
    try:
        system = msgspec.json.decode(facts.annotations.get(ANNOTATION_SYSTEM_QOS) or "{}", type=_SystemQos)
    except msgspec.MsgspecError:
        system = _SystemQos()
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
