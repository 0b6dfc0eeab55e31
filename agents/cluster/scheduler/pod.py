"""Parses a pod for placement, and the annotation with a node's own thresholds. Pure.

These thresholds override the cluster's, kind by kind.
Source: koordinator a7a1b76b, apis/extension/load_aware.go, CustomUsageThresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, get_args

import msgspec

from slacktide.schemas.allocatable import SOLD
from slacktide.schemas.errors import BadMessageError, QuantityError
from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy.keys import seconds_of
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.load.load_aware_estimator import Aggregation, LoadAwarePod, Percents, Thresholds
from slacktide.streams.decisions.numa.placement import ZonedPod, zoned
from slacktide.streams.decisions.numa.topology import CPU, Container, Pod, Qos

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


def parsed(item: Mapping[str, Any]) -> SchedulerPod:
    """Parse a pod. Raises BadMessageError if a field is invalid; its path is in the text."""
    pod = read_pod(item)
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
            zoned=None if static else zoned_pod(spec, pod.kube_qos),
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
        return datetime.fromisoformat(str(time)).timestamp() if time else None
    except ValueError as exc:
        raise BadMessageError("Pod", f"{path}: {time!r:.80}: {exc}") from exc


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


ANNOTATION = "scheduling.koordinator.sh/usage-thresholds"
STATISTICS = ("avg", "p50", "p90", "p95", "p99")
_PerResource = dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class _Aggregated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    usage_thresholds: _PerResource | None = None
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = "0s"


class _Custom(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    usage_thresholds: _PerResource | None = None
    prod_usage_thresholds: _PerResource | None = None
    aggregated_usage: _Aggregated | None = None


_decoder = msgspec.json.Decoder(_Custom)


def own_thresholds(annotations: Mapping[str, str]) -> Thresholds:
    """Parse the node's annotation; empty without it. Raises BadMessageError if the annotation is invalid."""
    text = annotations.get(ANNOTATION)
    if not text:
        return Thresholds()
    try:
        custom = _decoder.decode(text)
        aggregated = custom.aggregated_usage or _Aggregated()
        return Thresholds(
            usage=_percents(custom.usage_thresholds),
            prod=_percents(custom.prod_usage_thresholds),
            aggregated=_percents(aggregated.usage_thresholds),
            aggregation=_aggregation(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
        )
    except (msgspec.DecodeError, ValueError, RecursionError) as exc:
        raise BadMessageError(ANNOTATION, str(exc)) from exc


def _percents(given: _PerResource | None) -> Percents | None:
    return Percents(given.get("cpu", 0), given.get("memory", 0)) if given else None


def _aggregation(kind: str, duration: str) -> Aggregation | None:
    if not kind:
        return None
    if kind not in STATISTICS:
        raise ValueError(f"usageAggregationType is {kind!r}; accepted: {', '.join(STATISTICS)}")
    return Aggregation(kind, 0 if duration == "0s" else seconds_of(duration))
