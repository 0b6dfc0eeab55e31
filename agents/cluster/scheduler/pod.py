"""Parses a pod for placement. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec

from slacktide.schemas.allocatable import SOLD
from slacktide.schemas.errors import BadMessageError, QuantityError, TextError
from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.text import time_ms_of
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwarePod
from slacktide.streams.decisions.numa.placement import ZonedPod, zoned
from slacktide.streams.decisions.numa.topology import CPU, Container, Pod, Qos

RESIZED = (CPU, "memory")
"""What a resize in place may change."""
SCHEDULER = "koord-scheduler"
"""The schedulerName of Koordinator."""
SINCE = ".status.conditions: lastTransitionTime"
QOS: Final[Mapping[str, Qos]] = {qos: qos for qos in get_args(Qos)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPod:
    """A pod, its node and its scheduler."""

    asked: LoadAwarePod
    node: str
    """"": not bound."""
    scheduler: str
    created_s: float | None = None
    """UTC epoch; None: unknown."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.asked.pod.uid

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.asked.pod.namespace, self.asked.pod.name

    @property
    def holds(self) -> bool:
        """Whether it is bound and has not terminated."""
        return bool(self.node) and self.asked.pod.phase not in ENDED_PHASES

    @property
    def without_benefit(self) -> bool:
        """Whether it requests batch or mid resources from a scheduler without load scoring."""
        requests = self.asked.pod.requests
        return self.scheduler != SCHEDULER and any(getattr(requests, field) for field in SOLD)


def parsed(item: Mapping[str, Any], noted: Callable[[str], object] = lambda _: None) -> SchedulerPod:
    """Parse a pod; ``noted`` as in ``read_pod``. Raises BadMessageError if a field is invalid."""
    pod = read_pod(item, noted)
    static = pod.uid != (item.get("metadata") or {}).get("uid")
    metadata, spec, status = (item.get(part) or {} for part in ("metadata", "spec", "status"))
    since = {
        one.get("type"): one.get("lastTransitionTime")
        for one in _maps(status, ".status.conditions")
        if one.get("status") == "True"
    }
    return SchedulerPod(
        asked=LoadAwarePod(
            # A static pod's cgroups are named by its manifest's hash, which copies of the manifest share.
            pod=msgspec.structs.replace(pod, uid=_text(metadata, ".metadata.uid") or pod.uid),
            scheduled_s=_epoch_s(since.get("PodScheduled"), SINCE),
            initialized_s=_epoch_s(since.get("Initialized"), SINCE),
            daemonset=any(one.get("kind") == "DaemonSet" for one in _maps(metadata, ".metadata.ownerReferences")),
            # Records of zones name a static pod by its manifest's hash; no scheduler places it.
            zoned=None if static else zoned_pod(allocated(spec, status), pod.kube_qos),
        ),
        node=_text(spec, ".spec.nodeName"),
        scheduler=_text(spec, ".spec.schedulerName"),
        created_s=_epoch_s(metadata.get("creationTimestamp"), ".metadata.creationTimestamp"),
    )


def _maps(there: Mapping[str, Any], path: str) -> list[Mapping[str, Any]]:
    """Return the list at a path; absent: empty."""
    found = there.get(path.rpartition(".")[2]) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadMessageError("Pod", f"{path}: {found!r:.80}; accepted: a list of maps")
    return found


def _text(there: Mapping[str, Any], path: str) -> str:
    """Absent: ""."""
    found = there.get(path.rpartition(".")[2]) or ""
    if not isinstance(found, str):
        raise BadMessageError("Pod", f"{path}: {found!r:.80}; accepted: a text")
    return found


def _epoch_s(time: object, path: str) -> float | None:
    """In UTC epoch seconds; None: unknown."""
    try:
        return time_ms_of(str(time), where=path) / 1_000 if time else None
    except TextError as exc:
        raise BadMessageError("Pod", str(exc)) from exc


def allocated(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec with the CPU and memory that the kubelet has allocated. A resize in place may wait for more."""
    spec_of = {**spec}
    for part, reported in (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")):
        held = {one.get("name"): one for one in status.get(reported) or ()}
        spec_of[part] = [_resized(one, held.get(one.get("name")) or {}) for one in spec.get(part) or ()]
    if spec.get("resources"):
        whole = _resized(spec, status)["resources"]
        given = status.get("allocatedResources") or {}
        whole["requests"] = {name: given.get(name, amount) for name, amount in whole["requests"].items()}
        spec_of["resources"] = whole
    return spec_of


def _resized(part: Mapping[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    wanted, held = part.get("resources") or {}, reported.get("resources") or {}

    def of(kind: str) -> dict[str, Any]:
        given = held.get(kind) or {}
        return {
            name: given.get(name, amount) if name in RESIZED else amount
            for name, amount in (wanted.get(kind) or {}).items()
        }

    return {**part, "resources": {kind: of(kind) for kind in ("requests", "limits")}}


def zoned_pod(spec: Mapping[str, Any], kube_qos: str) -> ZonedPod | None:
    """Parse the containers' requests. Their structure was validated before.

    Raises:
        BadMessageError: an amount is invalid.
    """
    qos = QOS.get(kube_qos, "BestEffort")
    parts = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if qos != "Guaranteed" and not any("/" in name for part in parts for name in _written(part)):
        return None
    return zoned(
        Pod(
            qos=qos,
            containers=[_container(one) for one in spec.get("containers") or ()],
            inits=[_container(one) for one in spec.get("initContainers") or ()],
            overhead=_amounts(spec.get("overhead") or {}),
            pod_level=_amounts(_written(spec)) if spec.get("resources") else None,
        )
    )


def _container(one: Mapping[str, Any]) -> Container:
    return Container(
        name=str(one.get("name") or ""), requests=_amounts(_written(one)), sidecar=one.get("restartPolicy") == "Always"
    )


def _written(part: Mapping[str, Any]) -> dict[str, Any]:
    """Requests; absent ones default to the limits, as at the API server."""
    resources = part.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _amounts(written: Mapping[str, Any]) -> dict[str, int]:
    try:
        return {name: cpu_milli(amount) if name == CPU else whole(amount) for name, amount in written.items()}
    except QuantityError as exc:
        raise BadMessageError("Pod", f".spec: resources: {exc}") from exc
