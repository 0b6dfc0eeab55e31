"""Explains which CPUs a pod has for itself, who chose them, and who else may run there."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.qos import raw_qos
from slacktide.streams.analysis.explain.evidence import Finding, Logged
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.decisions.cores.schedule import ALONE, OWNERS
from slacktide.streams.decisions.cores.take import own_cpus, written


def cores_findings(on: NodeLog | None, pod: Pod, placement: Logged[PodPlacement] | None) -> Iterator[Finding]:
    """Report the CPUs of a pod on its node; nothing for pods whose class has none."""
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
