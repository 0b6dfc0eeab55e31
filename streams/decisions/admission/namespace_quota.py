"""Checks a new pod against its namespace's bounds on batch, mid and free resources.

Slacktide's own: a ResourceQuota of Kubernetes 1.34 does not count resources such as ``kubernetes.io/batch-cpu``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from slacktide.schemas.allocatable import SOLD
from slacktide.schemas.errors import BadMessageError, QuantityError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.units import whole

PREFIX = "quota.slacktide.io/"
"""Prefix of Namespace annotations such as ``quota.slacktide.io/batch-cpu: "8000"``, in the resource's unit."""
_NAMES = {field: field.replace("_cpu_milli", "-cpu").replace("_mem_bytes", "-memory") for field in SOLD}
ANNOTATIONS = {f"{PREFIX}{name}": field for field, name in _NAMES.items()}


class Exceeded(msgspec.Struct, frozen=True, kw_only=True):
    """The resource whose bound the pod exceeds."""

    resource: str
    """A field of ``Resources``."""
    asked: int
    used: int
    bound: int


def bounds_of(annotations: Mapping[str, str]) -> dict[str, int]:
    """Parse bounds by field of ``Resources``. Raise BadMessageError if an annotation is not an amount."""
    found = {}
    for name, field in ANNOTATIONS.items():
        if name not in annotations:
            continue
        try:
            found[field] = whole(annotations[name])
        except QuantityError as exc:
            raise BadMessageError(f"amount in the Namespace's annotation {name}", str(exc)) from None
    return found


def bounded(bounds: Mapping[str, int], asked: Resources) -> bool:
    """Return whether the pod requests a bounded resource."""
    return any(getattr(asked, field) for field in bounds)


def exceeded(bounds: Mapping[str, int], there: Iterable[Resources], asked: Resources) -> Exceeded | None:
    """Return the first resource whose bound the pod exceeds, if any; ``there``: requests of the other pods."""
    others = list(there)
    for field, bound in bounds.items():
        wanted = getattr(asked, field) or 0
        used = sum(getattr(one, field) or 0 for one in others)
        if wanted and used + wanted > bound:
            return Exceeded(resource=field, asked=wanted, used=used, bound=bound)
    return None


def refusal_text(namespace: str, found: Exceeded) -> str:
    """Format the error message in Kubernetes' wording."""
    name = _NAMES[found.resource]
    return (
        f"exceeded quota of namespace {namespace}: requested kubernetes.io/{name}={found.asked}, used {found.used}, "
        f"limited to {found.bound} by its annotation {PREFIX}{name}"
    )
