"""Translates a pod's CPU and memory to its priority class's resources: batch, mid and, if enabled, free.

Reading: koordinator a7a1b76b, pkg/webhook/pod/mutating/cluster_colocation_profile.go, mutatePodResourceSpec.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import LABEL_PRIORITY_CLASS, LABEL_QOS, effective_priority_class
from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod, Amounts, Container
from slacktide.streams.decisions.because import Because

NATIVE = {"cpu": "cpu_milli", "memory": "memory_bytes"}
"""Native resource -> its name in terms."""
_TIERS = {"koord-batch": "batch", "koord-mid": "mid"}
_FREE = {"koord-free": "free"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """The translated pod. ``because`` contains first the class, then each translated amount."""

    pod: AdmittedPod
    because: tuple[Because, ...]


def translated(pod: AdmittedPod, *, free_class_enable: bool = False) -> Translated:
    """Move native CPU and memory of containers, init containers and overhead to the class's resources.

    CPU becomes millicores. An existing amount of the class's resource is overwritten. A limit without a request becomes
    the request. Production pods do not change, nor do free pods without ``free_class_enable``. Unlike the reference:
    RuntimeClass overhead stays, because the API server rejects any other overhead. A pod with pod-level CPU or memory
    does not change: pod-level resources cannot be batch resources, so the pod would request both.
    """
    tiers = _TIERS | _FREE if free_class_enable else _TIERS
    tier = tiers.get(priority_class_of(pod), "")
    if not tier or _of_whole_pod(pod):
        bound = "pod_level" if tier else "native"
        return Translated(pod=pod, because=(Because(of="resources", bound=bound, terms={}),))
    because = [Because(of="resources", bound=tier, terms={})]
    of_runtime_class = bool((pod.kept.get("spec") or {}).get("runtimeClassName"))
    changed = replace(
        pod,
        init_containers=tuple(
            _container(container, tier, f"init_containers/{container.name}", because)
            for container in pod.init_containers
        ),
        containers=tuple(
            _container(container, tier, f"containers/{container.name}", because) for container in pod.containers
        ),
        overhead=pod.overhead if of_runtime_class else _moved(pod.overhead, tier, "overhead", because),
    )
    return Translated(pod=changed, because=tuple(because))


def priority_class_of(pod: AdmittedPod) -> str:
    """Return the pod's priority class. Without label, priority and QoS label, its requests decide."""
    return effective_priority_class(
        Pod(
            uid="",
            namespace="",
            name="",
            qos_label=pod.labels.get(LABEL_QOS),
            priority_class_label=pod.labels.get(LABEL_PRIORITY_CLASS),
            priority=pod.priority,
            kube_qos=_kube_qos(pod),
        )
    )


def _kube_qos(pod: AdmittedPod) -> str:
    """Return BestEffort or Burstable. A Guaranteed pod has the same priority class as a Burstable one."""
    parts = [part for one in (*pod.containers, *pod.init_containers) for part in (one.requests, one.limits)]
    asks = _of_whole_pod(pod) or any(part.get(name, 0) > 0 for part in parts for name in NATIVE)
    return "Burstable" if asks else "BestEffort"


def _of_whole_pod(pod: AdmittedPod) -> bool:
    whole = (pod.kept.get("spec") or {}).get("resources") or {}
    return any(name in (whole.get(kind) or {}) for kind in ("requests", "limits") for name in NATIVE)


def _container(container: Container, tier: str, path: str, because: list[Because]) -> Container:
    requests = _moved(container.requests, tier, f"{path}/requests", because)
    limits = _moved(container.limits, tier, f"{path}/limits", because)
    return replace(container, requests=_filled(requests, limits, tier, f"{path}/requests", because), limits=limits)


def _moved(amounts: Amounts, tier: str, path: str, because: list[Because]) -> Amounts:
    moved = dict(amounts)
    for native, term in NATIVE.items():
        if native not in moved:
            continue
        amount = moved.pop(native)
        before = moved.get(_name(tier, native))
        moved[_name(tier, native)] = amount
        overwritten = {} if before is None else {f"before_{tier}_{term}": before}
        because.append(
            Because(
                of=f"{path}/{tier}_{term}",
                bound="moved" if before is None else "overwritten",
                terms={**overwritten, term: amount, f"{tier}_{term}": amount},
            )
        )
    return moved


def _filled(requests: Amounts, limits: Amounts, tier: str, path: str, because: list[Because]) -> Amounts:
    """Request the limit of each class resource that has no request."""
    filled = dict(requests)
    for native, term in NATIVE.items():
        name = _name(tier, native)
        if name in filled or name not in limits:
            continue
        filled[name] = limits[name]
        terms = {f"limit_{tier}_{term}": limits[name], f"{tier}_{term}": filled[name]}
        because.append(Because(of=f"{path}/{tier}_{term}", bound="from_limit", terms=dict(terms)))
    return filled


def _name(tier: str, native: str) -> str:
    return f"kubernetes.io/{tier}-{native}"
