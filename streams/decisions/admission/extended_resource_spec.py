"""Records containers' batch resources in an annotation, because the kubelet does not expose them on the node.

Reading: koordinator a7a1b76b, pkg/webhook/pod/mutating/extended_resource_spec.go, mutateByExtendedResources, and
apis/extension/resource.go (GetExtendedResourceSpec).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from slacktide.schemas.errors import BadMessageError, QuantityError
from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod, Amounts, amount_of, quantity_of
from slacktide.streams.decisions.because import Because

ANNOTATION = "node.koordinator.sh/extended-resource-spec"
RECORDED = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One container's requests and limits, by resource name."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The pod with the updated annotation."""

    pod: AdmittedPod
    because: Because


class _Asked(msgspec.Struct, frozen=True):
    limits: dict[str, str | int | float | None] | None = None
    requests: dict[str, str | int | float | None] | None = None


class _Spec(msgspec.Struct, frozen=True):
    containers: dict[str, _Asked | None] | None = None


_decoder = msgspec.json.Decoder(_Spec | None)


def recorded(pod: AdmittedPod) -> Recorded:
    """Write the annotation; without batch resources, only empty it. Raise BadMessageError if it is unreadable."""
    before = pod.annotations.get(ANNOTATION)
    if before is not None:
        read(before)
    asked = {container.name: of for container in pod.containers if (of := _batch(container.requests, container.limits))}
    because = Because(
        of="extended_resource_spec",
        bound="recorded" if asked else "absent" if before is None else "emptied",
        terms={"containers_count": len(asked)},
    )
    if not asked and before is None:
        return Recorded(pod=pod, because=because)
    text = msgspec.json.encode({"containers": asked} if asked else {}, order="sorted").decode()
    return Recorded(pod=replace(pod, annotations={**pod.annotations, ANNOTATION: text}), because=because)


def _batch(requests: Amounts, limits: Amounts) -> dict[str, dict[str, str]]:
    kinds = {"limits": limits, "requests": requests}
    found = {
        kind: {name: quantity_of(name, amounts[name]) for name in RECORDED if name in amounts}
        for kind, amounts in kinds.items()
    }
    return {kind: quantities for kind, quantities in found.items() if quantities}


def read(text: str) -> Mapping[str, Asked]:
    """Parse the annotation. Raise BadMessageError for invalid JSON, a wrong shape or an invalid quantity."""
    try:
        spec = _decoder.decode(text) or _Spec()
        return {
            name: Asked(requests=_amounts(asked.requests), limits=_amounts(asked.limits))
            for name, asked in (spec.containers or {}).items()
            if asked is not None
        }
    except (msgspec.DecodeError, QuantityError, UnicodeError, RecursionError) as exc:
        raise BadMessageError(f"readable annotation {ANNOTATION}", str(exc)) from None


def _amounts(quantities: Mapping[str, str | float | None] | None) -> Amounts:
    """Convert quantities to numbers; null is 0, as in Kubernetes."""
    return {name: amount_of(name, 0 if one is None else one) for name, one in (quantities or {}).items()}
