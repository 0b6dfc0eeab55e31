"""A pod's requests for NUMA zones, per container, from its spec. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from slacktide.schemas.errors import BadMessageError, QuantityError
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.numa.placement import ZonedPod, zoned
from slacktide.streams.decisions.numa.pod import Container, Pod, Qos
from slacktide.streams.decisions.numa.resource import CPU

QOS: Final[Mapping[str, Qos]] = {qos: qos for qos in get_args(Qos)}


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
