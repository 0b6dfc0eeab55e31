"""Which pods of the best-effort tier are not suppressed: critical ones, and mid pods that their own limit holds.

kubeadm makes kube-proxy without requests, so that it lies in the best-effort tier. A quota of that tier would starve
it, and its liveness probe would fail. A mid pod bought CPU that production pods are predicted to leave. It lies in that
tier, too, for the kubelet knows nothing of mid resources. Its own quota holds it instead: the limit of its spec.
"""

from __future__ import annotations

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import effective_priority_class, raw_qos

CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Of the PriorityClass system-cluster-critical; system-node-critical has more. Users may have no higher class."""


def is_spared(pod: Pod) -> bool:
    """Whether a pod is critical, lies in the best-effort tier, and is not of class BE by its own label."""
    critical = pod.priority is not None and pod.priority >= CRITICAL_PRIORITY_MIN
    return critical and pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE"


def is_unsuppressed(pod: Pod) -> bool:
    """Whether the tier's quota must not hold a pod: it is spared, or a mid pod with a CPU limit."""
    return is_spared(pod) or is_limited_mid(pod)


def is_limited_mid(pod: Pod) -> bool:
    """Whether it is a mid pod in the best-effort tier, not of class BE, and each container has a mid CPU limit."""
    mid = pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE" and bool(pod.requests.mid_cpu_milli)
    limited = (
        bool(pod.containers) and all(one.limits.mid_cpu_milli for one in pod.containers) and not pod.init_unlimited
    )
    return mid and limited and effective_priority_class(pod) == "koord-mid"
