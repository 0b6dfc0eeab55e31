"""Whether a namespace's quotas admit a pod: prod and mid fit or are refused, batch borrows, free has no quota. Pure.

Koordinator's Priority page states so of its bands. The rule is Slacktide's own: a ResourceQuota of Kubernetes 1.34 does
not count resources such as ``kubernetes.io/batch-cpu``, and lends nothing. A band is counted by its resource. Whoever
keeps native requests takes what prod was promised, whatever class it claims.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from slacktide.schemas.bounds import INT64_MAX
from slacktide.schemas.errors import BadMessageError, QuantityError
from slacktide.schemas.inventory import Resources
from slacktide.schemas.pod_admission import AdmissionResult, Band, QuotaUse
from slacktide.schemas.text import shown
from slacktide.schemas.units import cpu_milli, whole

PREFIX = "quota.slacktide.io/"
"""Prefix of Namespace annotations such as ``quota.slacktide.io/batch-cpu: "8000"``, in the resource's unit."""
BORROWING, NEVER = f"{PREFIX}batch-borrowing", "never"
"""A Namespace annotation and its only value: batch beyond the quota is refused, as mid is."""
BANDS: Mapping[Band, str] = {"prod": "", "mid": "mid_", "batch": "batch_", "free": "free_"}
"""Each band's prefix of its fields of ``Resources``. The order is that of the checks."""


class _Field(NamedTuple):
    band: Band
    annotation: str
    requested: str
    """The resource as a pod requests it."""


_FIELDS: Mapping[str, _Field] = {
    f"{prefix}{unit}": _Field(band, f"{PREFIX}{band}-{name}", f"kubernetes.io/{band}-{name}" if prefix else name)
    for band, prefix in BANDS.items()
    for unit, name in (("cpu_milli", "cpu"), ("mem_bytes", "memory"))
}
"""By field of ``Resources``."""


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace's quotas."""

    bounds: Mapping[str, int]
    """By field of ``Resources``, in the order of the checks. Free has none."""
    borrows: bool
    """Whether batch beyond its quota is admitted."""
    in_vain: Sequence[str]
    """Annotations that set a quota for free."""

    def counts(self, asked: Resources) -> bool:
        """Return whether the pod requests a resource with a quota."""
        return any(getattr(asked, field) for field in self.bounds)

    def concerns(self, asked: Resources) -> bool:
        """Return whether the answer is recorded: a quota counts the pod, or it is a free pod where quotas are set."""
        free = any(getattr(asked, field) for field, one in _FIELDS.items() if one.band == "free")
        return self.counts(asked) or (free and bool(self.bounds or self.in_vain))


class Held(NamedTuple):
    """Another pod of the namespace that runs, is pending or was just admitted."""

    requests: Resources
    borrowed: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for a pod, with its arithmetic."""

    result: AdmissionResult
    band: Band
    uses: list[QuotaUse]
    """Of each requested resource with a quota, and of free resources."""
    exceeded: QuotaUse | None = None
    """The first resource beyond its quota."""


def quotas_of(annotations: Mapping[str, str]) -> Quotas:
    """Parse a Namespace's annotations. Raise BadMessageError if one has an effect and cannot be read."""
    bounds = {
        field: _amount(field, one.annotation, annotations[one.annotation])
        for field, one in _FIELDS.items()
        if one.band != "free" and one.annotation in annotations
    }
    if (given := annotations.get(BORROWING, NEVER)) != NEVER:
        raise BadMessageError(f"value in the Namespace's annotation {BORROWING}", f"{shown(given)}; accepted: {NEVER}")
    return Quotas(bounds=bounds, borrows=BORROWING not in annotations, in_vain=in_vain(annotations))


def in_vain(annotations: Mapping[str, str]) -> list[str]:
    """Return the annotations of a Namespace that set a quota for free."""
    return [one.annotation for one in _FIELDS.values() if one.band == "free" and one.annotation in annotations]


def _amount(field: str, annotation: str, text: str) -> int:
    where = f"amount in the Namespace's annotation {annotation}"
    try:
        found = (cpu_milli if field == "cpu_milli" else whole)(text)
    except QuantityError as exc:
        raise BadMessageError(where, str(exc)) from None
    if not 0 <= found <= INT64_MAX:
        raise BadMessageError(where, f"{shown(text)}; accepted: 0 or more, in 64 bits")
    return found


def judged(quotas: Quotas, asked: Resources, there: Iterable[Held]) -> Verdict:
    """Answer for a pod that the quotas concern. ``there`` may be empty if no quota counts the pod.

    What is borrowed uses no quota, so that it never makes a later pod borrow. Without borrowing it counts, too.
    """
    others, uses = list(there), []
    for field in _FIELDS:
        wanted: int = getattr(asked, field) or 0
        if wanted and field in quotas.bounds:
            counted = [one.requests for one in others if not (quotas.borrows and one.borrowed)]
            used = sum(getattr(one, field) or 0 for one in counted)
            uses.append(QuotaUse(resource=field, asked=wanted, used=used, quota=quotas.bounds[field]))
        elif wanted and _FIELDS[field].band == "free":
            uses.append(QuotaUse(resource=field, asked=wanted))
    beyond = next((one for one in uses if one.exceeded), None)
    band = _FIELDS[(beyond or uses[0]).resource].band
    if beyond is None:
        return Verdict(result="admitted", band=band, uses=uses)
    borrowed = band == "batch" and quotas.borrows
    return Verdict(result="borrowed" if borrowed else "over_quota", band=band, uses=uses, exceeded=beyond)


def refusal_text(namespace: str, found: QuotaUse) -> str:
    """Format the error message in Kubernetes' wording."""
    one, unit = _FIELDS[found.resource], "m" if found.resource == "cpu_milli" else ""
    return (
        f"exceeded quota of namespace {namespace}: requested {one.requested}={found.asked}{unit}, used "
        f"{found.used}{unit}, limited to {found.quota}{unit} by its annotation {one.annotation}"
    )


def borrowed_text(namespace: str, found: QuotaUse) -> str:
    """Return the warning for the creator of a pod beyond its quota, which is admitted."""
    one = _FIELDS[found.resource]
    return (
        f"beyond the quota of namespace {namespace}: requested {one.requested}={found.asked}, used {found.used}, quota "
        f"{found.quota}; the pod borrows idle resources, and is evicted first"
    )


def in_vain_text(annotation: str) -> str:
    """Return the warning about a quota for free."""
    return f"the Namespace's annotation {annotation} has no effect: free has no quota, and lives from what is idle"


def annotation_of(field: str) -> str:
    """Return the annotation that sets the quota of a field of ``Resources``, as a record names it."""
    return _FIELDS[field].annotation if field in _FIELDS else f"{PREFIX}{field}"
