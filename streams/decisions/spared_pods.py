"""Selects pods of the best-effort tier that are not suppressed: critical pods, and mid pods with their own limit.

kubeadm creates kube-proxy without requests, so it is in the best-effort tier. A quota of that tier would starve it, and
its liveness probe would fail. Mid pods are in that tier because the kubelet ignores mid resources. Their own CPU limits
throttle them instead.
"""

from __future__ import annotations

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import effective_priority_class, raw_qos

CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Priority of system-cluster-critical; system-node-critical is higher. Users may define only lower classes."""


def is_spared(pod: Pod) -> bool:
    """Return whether a pod is critical, in the best-effort tier, and not labeled BE."""
    critical = pod.priority is not None and pod.priority >= CRITICAL_PRIORITY_MIN
    return critical and pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE"


def is_unsuppressed(pod: Pod) -> bool:
    """Return whether the tier's quota must not apply to a pod: it is spared, or a mid pod with a CPU limit."""
    return is_spared(pod) or is_limited_mid(pod)


def is_limited_mid(pod: Pod) -> bool:
    """Return whether it is a best-effort mid pod, not labeled BE, whose containers all have a mid CPU limit."""
    mid = pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE" and bool(pod.requests.mid_cpu_milli)
    limited = (
        bool(pod.containers) and all(one.limits.mid_cpu_milli for one in pod.containers) and not pod.init_unlimited
    )
    return mid and limited and effective_priority_class(pod) == "koord-mid"
