"""Which pods of the best-effort tier are not suppressed: those that Kubernetes calls critical.

kubeadm makes kube-proxy without requests, so that it lies in the best-effort tier. A quota of that tier would starve
it, and its liveness probe would fail.
"""

from __future__ import annotations

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import raw_qos

CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Of the PriorityClass system-cluster-critical; system-node-critical has more. Users may have no higher class."""


def is_spared(pod: Pod) -> bool:
    """Whether a pod is critical, lies in the best-effort tier, and is not of class BE by its own label."""
    critical = pod.priority is not None and pod.priority >= CRITICAL_PRIORITY_MIN
    return critical and pod.kube_qos == "BestEffort" and raw_qos(pod.qos_label) != "BE"
