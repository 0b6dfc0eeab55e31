"""Decides on which CPUs each pod of a node runs, where some pods have CPUs of their own, or the SYSTEM class has.

Slacktide's own, based on the corrected rules. Pods of the best-effort tier are left to the tier's CPU set. So is a node
whose kubelet assigns exclusive CPUs: it also moves the pods that share the others.
"""

from collections.abc import Iterator, Sequence

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.knob import pod_group
from slacktide.schemas.message import Terms
from slacktide.schemas.qos import raw_qos
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.burst.node_burst import spec_quotas_us
from slacktide.streams.decisions.cores.pools import CoresPod, CpusetPod, CpusetRule, Kept, cpus_of, pools, unlimited
from slacktide.streams.decisions.cores.take import Topology, own_cpus, readable, written
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import system_cpus

RULE = "CPUSet"
OWN, SHARED, SYSTEM = "own", "shared", "system"


def cpusets(facts: NodeFacts, pods: Sequence[Pod]) -> Iterator[WantedSetting]:
    """Yield the CPUs of each pod that may not run on all of them, and the CFS quotas that these CPUs replace."""
    live = [pod for pod in pods if pod.phase in LIVE_PHASES]
    topology = Topology(facts.processors, corrected=True)
    own = {pod.uid: own_cpus(pod) & topology.cpus for pod in live}
    system = system_cpus(facts.annotations)
    theirs = readable(system.cpuset) & topology.cpus
    if not (theirs or any(own.values())) or any(pod.exclusive_cpus for pod in live):
        return
    pods_of_node = [CoresPod(uid=pod.uid, qos_label=pod.qos_label, cpus=own[pod.uid]) for pod in live]
    exclusive = system.exclusive is not False
    kept = Kept(reserved_cpus=readable(facts.reserved_cpus), system=theirs, system_exclusive=exclusive)
    rule = CpusetRule(ls=pools(topology, pods_of_node, None, {}, kept).ls, be=(), system=theirs, corrected=True)
    for pod in live:
        if pod.kube_qos == "BestEffort":
            continue
        whom = CpusetPod(qos_label=pod.qos_label, kube_qos=pod.kube_qos, cpus=own[pod.uid] or None)
        cpus = cpus_of(whom, rule)
        if cpus and cpus != topology.cpus:
            bound = OWN if whom.cpus else SYSTEM if theirs and raw_qos(pod.qos_label) == "SYSTEM" else SHARED
            lost = len(own_cpus(pod) - topology.cpus)
            terms: Terms = {"cpus_count": len(cpus), "node_cpus_count": len(topology.cpus), "lost_cpus_count": lost}
            yield WantedSetting(pod_group(pod.uid), "cpus", written(cpus), RULE, bound, terms)
            if whom.cpus:
                yield from _quotas(pod)


def needs_no_quota(pod: Pod) -> bool:
    """Return whether a pod's own CPUs limit it, so that its CFS quota could only throttle it."""
    one = CpusetPod(
        qos_label=pod.qos_label, kube_qos=pod.kube_qos, cpus=own_cpus(pod) or None, container_count=len(pod.containers)
    )  # fmt: skip
    return unlimited(one, corrected=True)


def _quotas(pod: Pod) -> Iterator[WantedSetting]:
    if needs_no_quota(pod):
        for group, limit_us in spec_quotas_us(pod).items():
            yield WantedSetting(group, "cfs_quota_us", None, RULE, OWN, {"limit_us": limit_us})
