"""QoS classes and priority bands, from labels and priorities. Names are Koordinator's.

Reading: koordinator a7a1b76b, apis/extension/{qos,priority}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from slacktide.schemas.inventory import Pod

LABEL_QOS = "koordinator.sh/qosClass"
LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"
LABEL_SUB_PRIORITY = "koordinator.sh/priority"

QOS_CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")
# Gaps between bands are intended: a value in a gap has no class.
BANDS = {"koord-prod": (9000, 9999), "koord-mid": (7000, 7999), "koord-batch": (5000, 5999), "koord-free": (3000, 3999)}
CLASS_RANK = {name: rank for rank, name in enumerate(reversed(BANDS))}
"""Order of eviction by class: free first."""
_QOS_OF_KUBE = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}


def raw_qos(label: str | None) -> str:
    """The QoS label if it names a class, else ""."""
    return label if label in QOS_CLASSES else ""


def effective_qos(label: str | None, kube_qos: str) -> str:
    """The label's class, or that of the Kubernetes QoS class."""
    return raw_qos(label) or _QOS_OF_KUBE.get(kube_qos, "LS")


def band_of(priority: int | None) -> str:
    """The priority class whose band holds the value, or ""."""
    if priority is None:
        return ""
    return next((name for name, (low, high) in BANDS.items() if low <= priority <= high), "")


def effective_priority_class(pod: Pod) -> str:
    """The priority class of a pod: by its label, else its priority, else its QoS class.

    An invalid label hides the priority (Koordinator's rule). An ``unheld`` pod counts as koord-prod in any case.
    """
    return "koord-prod" if pod.unheld else _claimed_class(pod)


def _claimed_class(pod: Pod) -> str:
    label = pod.priority_class_label
    named = (label if label in BANDS else "") if label is not None else band_of(pod.priority)
    if named:
        return named
    return "koord-batch" if effective_qos(pod.qos_label, pod.kube_qos) == "BE" else "koord-prod"


def is_best_effort(pod: Pod) -> bool:
    """Whether CPU suppress counts the pod as best-effort: by label or by Kubernetes QoS.

    Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/helpers; cpu_suppress.go.
    """
    return not pod.unheld and (raw_qos(pod.qos_label) == "BE" or pod.kube_qos == "BestEffort")


def claims_in_vain(pod: Pod) -> bool:
    """Whether a pod claims to be best-effort, but the kubelet runs it outside the best-effort cgroup.

    The kubelet uses native requests and limits alone. A pod outside that cgroup is neither limited nor evicted.
    """
    claims = raw_qos(pod.qos_label) == "BE" or _claimed_class(pod) in {"koord-batch", "koord-free"}
    return (claims or bool(_taken_back(pod))) and pod.kube_qos != "BestEffort"


def overruled(pod: Pod) -> Pod:
    """Return the pod as BE if it requests batch or free resources in the best-effort cgroup, whatever its labels are.

    These can be taken back. A class that escapes limits and evictions would keep them.
    """
    tier = _taken_back(pod)
    if pod.kube_qos != "BestEffort" or raw_qos(pod.qos_label) == "BE" or not tier:
        return pod
    claimed = _claimed_class(pod)
    label = f"koord-{tier}" if claimed == "koord-prod" else pod.priority_class_label
    return replace(
        pod, qos_label="BE", priority_class_label=label, overruled=f"{_named_qos(pod)}priority class {claimed}"
    )


def as_held(pod: Pod) -> Pod:
    """Return the pod as its node treats it: its class overruled, or marked as outside the best-effort cgroup."""
    return replace(pod, unheld=True) if claims_in_vain(pod) else overruled(pod)


def overruling(pod: Pod) -> str:
    """Message about an overruled class, for Events, the agent's log and explain."""
    return (
        f"claims {pod.overruled}, and requests {_taken_back(pod)} resources: it is limited and evicted as a "
        f"best-effort pod of {_claimed_class(pod)}"
    )


OVERRULED_ADVICE = (
    "label it koordinator.sh/qosClass=BE with priorityClassName: koord-batch, or request native cpu and memory; the "
    "webhook rejects such a pod, so check why it was not asked"
)


def _taken_back(pod: Pod) -> str:
    """Return which requested resources can be taken back: ``batch``, ``free``, or ""."""
    asked = pod.requests
    if asked.batch_cpu_milli or asked.batch_mem_bytes:
        return "batch"
    return "free" if asked.free_cpu_milli or asked.free_mem_bytes else ""


def _named_qos(pod: Pod) -> str:
    return f"QoS class {raw_qos(pod.qos_label)} and " if raw_qos(pod.qos_label) else ""


def vain_claim(pod: Pod) -> str:
    """Message about such a claim, for Events, the agent's log and explain."""
    return (
        f"claims {_named_qos(pod)}priority class {_claimed_class(pod)}, and has native requests or limits: the kubelet "
        f"runs it as {pod.kube_qos}, outside the best-effort group; it is not held back, never evicted, and counts as "
        "koord-prod"
    )


VAIN_ADVICE = (
    "request kubernetes.io/batch-cpu and batch-memory alone, as a ClusterColocationProfile does by itself; native ones "
    "that the pod's author did not write come from a LimitRange of the namespace or from the pod's spec.resources"
)
